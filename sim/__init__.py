"""Functional model, timing model and the Verilator build of the machine."""
