"""What vLLM's sampling parameters mean to the engine, and which of them it cannot honour."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from hw.errors import WordlineError
from runtime.job import Request
from runtime.logits import Adjustment
from runtime.sampling import Sampling

__all__ = ["Bitmask", "check", "request"]

GREEDY_BELOW = 1e-5
"""Temperatures that vLLM takes for 0."""

HONOURED = frozenset({
    # by the device's side
    "temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs",
    "structured_outputs",
    # by vLLM's scheduler and front end, whatever the device
    "n", "stop", "stop_token_ids", "ignore_eos", "max_tokens", "include_stop_str_in_output", "detokenize",
    "skip_special_tokens", "spaces_between_special_tokens", "output_kind", "stream_interval", "flat_logprobs",
    "repetition_detection",
    # about work that is saved, which changes no token
    "skip_clone", "skip_reading_prefix_cache", "output_text_buffer_length",
})
"""Fields that may have any value. Those that begin with an underscore are vLLM's own notes."""


class Bitmask:
    """A constraint that somebody else follows: each step's allowed tokens come as bits."""

    complete = False

    def __init__(self) -> None:
        self.bits: np.ndarray | None = None

    def mask(self, logits: np.ndarray) -> np.ndarray:
        """A copy of logits (vocab,) with minus infinity for every token whose bit is 0."""
        if self.bits is None:
            return logits.astype(np.float64)
        allowed = np.unpackbits(self.bits.view(np.uint8), bitorder="little")[:len(logits)]  # 32 tokens a word
        return np.where(allowed, logits.astype(np.float64), -np.inf)

    def accept(self, token: int) -> None:
        """Nothing: who makes the bits knows."""


def check(params: Any) -> None:
    """Raises `WordlineError` for sampling parameters (vLLM's) that would have to be ignored."""
    default = type(params)()
    for name in default.__struct_fields__:
        if name in HONOURED or name.startswith("_"):
            continue
        value = getattr(params, name)
        if not _asks_nothing(value, getattr(default, name)):
            raise WordlineError(f"sampling parameters that a Wordline device can honour were wanted; got {name}="
                                f"{value!r}: leave it out")
    request(params, (0,))


def _asks_nothing(value: Any, default: Any) -> bool:
    if isinstance(value, bool | list | dict | str):
        return not value or value == default
    return value is None or (isinstance(value, int | float) and value == default)


def request(params: Any, prompt: Sequence[int]) -> Request:
    """The engine's request for vLLM's sampling parameters; how it ends is vLLM's business.

    Raises `WordlineError` for a value out of its range.
    """
    sampling = Sampling(
        temperature=0.0 if params.temperature < GREEDY_BELOW else float(params.temperature),
        top_k=max(params.top_k, 0), top_p=float(params.top_p), min_p=float(params.min_p), seed=params.seed)
    adjustment = Adjustment({int(token): float(value) for token, value in (params.logit_bias or {}).items()},
                            params.presence_penalty, params.frequency_penalty)
    logprobs = sys.maxsize if params.logprobs == -1 else params.logprobs  # -1: of every token
    return Request(tuple(prompt), sampling, logprobs=logprobs, adjustment=adjustment,
                   constraint=None if params.structured_outputs is None else Bitmask())
