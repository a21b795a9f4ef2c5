"""vLLM on a Wordline device: a platform plugin, and the folder that vLLM takes for a model."""
