"""The entry points through which vLLM finds Wordline. vLLM loads them in each of its processes."""

from runtime.vllm.modeltype import ARCHITECTURE, MODEL_TYPE

__all__ = ["platform", "register"]


def platform() -> str:
    """The platform's class. It refuses every model but Wordline's, so it never takes one over silently."""
    return "runtime.vllm.platform.WordlinePlatform"


def register() -> None:
    """Make the model type and the architecture known."""
    from transformers import AutoConfig  # here: vLLM asks for `platform` before it can be imported itself
    from vllm import ModelRegistry

    from runtime.vllm.model import WordlineConfig

    AutoConfig.register(MODEL_TYPE, WordlineConfig, exist_ok=True)
    if ARCHITECTURE not in ModelRegistry.get_supported_archs():
        ModelRegistry.register_model(ARCHITECTURE, f"runtime.vllm.model:{ARCHITECTURE}")
