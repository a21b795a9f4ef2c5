"""Devices, resident models, sessions and generation, on any transport."""
