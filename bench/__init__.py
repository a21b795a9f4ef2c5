"""Measurements of speed and memory on real models: `make bench` runs them all and writes JSON."""
