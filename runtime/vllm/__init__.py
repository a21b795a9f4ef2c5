"""vLLM on a Wordline device: a platform plugin that nothing else of the project imports."""
