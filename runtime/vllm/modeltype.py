"""What `config.json` calls a Wordline model; nobody else knows the names, so without our plugin vLLM refuses it."""

__all__ = ["ARCHITECTURE", "MODEL_TYPE"]

MODEL_TYPE = "wordline"

ARCHITECTURE = "WordlineForCausalLM"
