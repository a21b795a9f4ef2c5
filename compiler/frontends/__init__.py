"""Readers of model files; nothing outside this folder knows a file format or an architecture's naming."""
