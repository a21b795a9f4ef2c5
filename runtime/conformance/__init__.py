"""What every device promises, as tests that run on any transport: see docs/runtime.md, "Conformance"."""
