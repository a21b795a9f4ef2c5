"""One module an operation: the kernels that carry it out, hand-written and generated, in one registry."""
