"""What vLLM wants to know of a model before it runs: its configuration, and a class that says it makes text."""

from typing import Any

import torch
from transformers import PretrainedConfig
from vllm.platforms import current_platform

from runtime.vllm.modeltype import MODEL_TYPE

__all__ = ["WordlineConfig", "WordlineForCausalLM"]

NO_PLATFORM = ("the Wordline platform was wanted for a Wordline model; vLLM chose {0}: unset VLLM_TARGET_DEVICE, and "
               "let VLLM_PLUGINS name 'wordline' or leave it unset")


class WordlineConfig(PretrainedConfig):
    """The `config.json` that `wordline vllm` writes.

    Parameters
    ----------
    image : str
        The image's file; a relative path begins at the folder of `config.json`.
    device : str
        URI of the device.
    slots : int
        Sequences that the image's KV cache holds at once.
    digest : str
        Says which image the folder was written for.

    Raises `ValueError` when vLLM runs on another platform.
    """

    model_type = MODEL_TYPE

    def __init__(self, image: str = "", device: str = "model:", slots: int = 1, digest: str = "",
                 **others: Any) -> None:
        if image and current_platform.device_name != MODEL_TYPE:
            raise ValueError(NO_PLATFORM.format(type(current_platform).__name__))
        self.image = image
        self.device = device
        self.slots = slots
        self.digest = digest
        super().__init__(**others)


class WordlineForCausalLM(torch.nn.Module):
    """What the registry looks at to see that this is a text model. A device runs it, so nobody makes one."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        raise ValueError(NO_PLATFORM.format(f"{type(current_platform).__name__} to run it with torch"))

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        """On the device, with everything else."""
        raise NotImplementedError

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """On the device, with everything else."""
        raise NotImplementedError

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """On the device, with everything else."""
        raise NotImplementedError
