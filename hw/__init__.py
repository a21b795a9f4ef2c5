"""The machine: configuration, instruction set, Amaranth components and Verilog emission."""
