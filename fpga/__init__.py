"""FPGA platforms and top levels."""
