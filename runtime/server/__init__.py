"""A server with OpenAI's interface for the models that run on a device."""
