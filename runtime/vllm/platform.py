"""The platform that vLLM runs on: what a Wordline device cannot do is refused here, before anything is loaded."""

from pathlib import Path
from typing import Any

import torch
from vllm.exceptions import VLLMValidationError
from vllm.logger import init_logger
from vllm.platforms.interface import Platform, PlatformEnum

from hw.errors import WordlineError
from runtime.vllm.modeltype import ARCHITECTURE, MODEL_TYPE
from runtime.vllm.requests import check

__all__ = ["PROMPT_CHUNK", "WordlinePlatform", "device_of", "image_of"]

log = init_logger("vllm.wordline")

PROMPT_CHUNK = 16
"""Tokens of a prompt that are run in one step while other sequences wait, unless vLLM is told otherwise."""


class WordlinePlatform(Platform):
    """A Wordline device, as vLLM sees it. Its tensors, which hold nothing but bookkeeping, are the CPU's."""

    _enum = PlatformEnum.OOT
    device_name = MODEL_TYPE
    device_type = "cpu"
    dispatch_key = "CPU"
    dist_backend = "gloo"

    @property
    def supported_dtypes(self) -> list[torch.dtype]:
        """That of the logits; what is inside is the image's."""
        return [torch.float32]

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        """What logs and metrics call it."""
        return cls.device_name

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        """0: what an image needs was settled when it was compiled."""
        return 0

    @classmethod
    def import_kernels(cls) -> None:
        """There are none."""

    @classmethod
    def set_device(cls, device: torch.device) -> None:
        """Nothing: the worker opens its device by name."""

    @classmethod
    def manual_seed_all(cls, seed: int) -> None:
        """Nothing: every sequence has a seed of its own."""

    @classmethod
    def update_block_size_for_backend(cls, vllm_config: Any) -> None:
        """Nothing: a block is a slot."""

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        """Make vLLM's settings those of the image; raises `ValueError` for what cannot be."""
        from vllm.config import CompilationMode, CUDAGraphMode  # here, since it imports the platform itself

        c, model = vllm_config, vllm_config.model_config
        if model is None:
            return
        if model.hf_config.model_type != MODEL_TYPE:
            raise ValueError(
                f"a model folder made by `wordline vllm` was wanted, since the Wordline platform is active; got "
                f"{model.model!r} of type {model.hf_config.model_type!r}: make one, or set VLLM_PLUGINS to the plugins "
                "you want ('' for none) to run other models")
        for wanted, came, fits in cls._conditions(c):
            if not fits:
                raise ValueError(f"{wanted} was wanted for a Wordline device; got {came}: leave that setting out")
        context, slots = model.hf_config.max_position_embeddings, model.hf_config.slots
        if model.max_model_len > context:
            raise ValueError(f"max_model_len of at most {context}, the image's context, was wanted; got "
                             f"{model.max_model_len}: lower it, or compile with --context {model.max_model_len}")
        device_of(c), image_of(c)
        if c.scheduler_config.max_num_seqs > slots:
            log.info("max_num_seqs is %d, the image's slots; further sequences wait", slots)
            c.scheduler_config.max_num_seqs = slots
        if c.scheduler_config.long_prefill_token_threshold == 0 and c.scheduler_config.enable_chunked_prefill:
            c.scheduler_config.long_prefill_token_threshold = min(PROMPT_CHUNK, model.max_model_len)
        c.scheduler_config.async_scheduling = False  # a command needs the token that the one before it made
        # A block is a slot, and there is one more that vLLM keeps for itself. Its own prefix cache works by blocks.
        c.cache_config.block_size = model.max_model_len
        c.cache_config.num_gpu_blocks_override = slots + 1
        c.cache_config.enable_prefix_caching = False
        c.parallel_config.worker_cls = "runtime.vllm.worker.WordlineWorker"
        c.compilation_config.mode = CompilationMode.NONE
        c.compilation_config.cudagraph_mode = CUDAGraphMode.NONE

    @classmethod
    def _conditions(cls, c: Any) -> list[tuple[str, str, bool]]:
        """What was wanted, what came, and whether it fits."""
        model, parallel = c.model_config, c.parallel_config
        return [
            (f"architecture {ARCHITECTURE}", repr(model.architecture), model.architecture == ARCHITECTURE),
            ("generation of text", f"runner {model.runner_type!r}", model.runner_type == "generate"),
            ("one worker", f"a world of {parallel.world_size} and {parallel.data_parallel_size} replicas",
             parallel.world_size == parallel.data_parallel_size == 1),
            ("a worker in the engine's process", f"executor {parallel.distributed_executor_backend!r}",
             parallel.distributed_executor_backend in (None, "uni")),
            ("float32 logits", f"dtype {model.dtype}", model.dtype == torch.float32),
            ("the image's own formats", f"quantization {model.quantization!r}", model.quantization is None),
            ("the image's own KV cache", f"kv_cache_dtype {c.cache_config.cache_dtype!r}",
             c.cache_config.cache_dtype == "auto"),
            ("logprobs_mode 'raw_logprobs'", repr(model.logprobs_mode), model.logprobs_mode == "raw_logprobs"),
            ("no logits processors", repr(model.logits_processors), not model.logits_processors),
            ("no prompt embeddings", "enable_prompt_embeds", not model.enable_prompt_embeds),
            ("no LoRA", repr(c.lora_config), c.lora_config is None),
            ("no speculation", repr(c.speculative_config), c.speculative_config is None),
            ("no transfer of the KV cache", repr(c.kv_transfer_config), c.kv_transfer_config is None),
        ]

    @classmethod
    def validate_request(cls, processed_inputs: Any, params: Any) -> None:
        """Raises for a request that would have to be answered in part."""
        try:
            check(params)
        except WordlineError as error:
            raise VLLMValidationError(str(error)) from error


def device_of(vllm_config: Any) -> str:
    """URI of the device: of `additional_config`, else of the folder; raises `ValueError` for settings unknown."""
    given = (vllm_config.additional_config or {}).get(MODEL_TYPE, {})
    if not isinstance(given, dict) or set(given) - {"device"}:
        raise ValueError("additional_config={'wordline': {'device': URI}} was wanted; got "
                         f"{vllm_config.additional_config!r}: leave the rest out")
    return given.get("device", vllm_config.model_config.hf_config.device)


def image_of(vllm_config: Any) -> Path:
    """The image's file; raises `ValueError` when it is not there."""
    model = vllm_config.model_config
    path = Path(model.model) / model.hf_config.image
    if not path.is_file():
        raise ValueError(f"the image {str(path)!r} was wanted, which {model.model}/config.json names; there is no such "
                         "file: make the folder again with `wordline vllm`")
    return path
