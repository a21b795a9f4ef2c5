"""Chooses the next token from logits: the best one, or a draw that a seed makes repeatable."""

from dataclasses import dataclass

import numpy as np

from hw.errors import WordlineError

__all__ = ["Sampler", "Sampling", "SamplingError"]


class SamplingError(WordlineError, ValueError):
    """A setting out of its range, or logits that nothing can be chosen from."""


@dataclass(frozen=True)
class Sampling:
    """How to choose. The default takes the best token.

    The filters apply in the order of the fields, each to what the one before has left.

    Parameters
    ----------
    temperature : float
        Divides the logits. 0 takes the best token and ignores the rest.
    top_k : int
        Keep this many of the best tokens; 0 keeps all.
    top_p : float
        Keep the best tokens until their probabilities sum to this.
    min_p : float
        Keep tokens at least this share as probable as the best.
    seed : int or None
        Same seed, same logits, same tokens. None draws a fresh one.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None

    def __post_init__(self) -> None:
        checks = (
            ("temperature", "a number from 0 to 100", 0 <= self.temperature <= 100),
            ("top_k", "a whole number, 0 or more", isinstance(self.top_k, int) and self.top_k >= 0),
            ("top_p", "a number above 0, up to 1", 0 < self.top_p <= 1),
            ("min_p", "a number from 0 to 1", 0 <= self.min_p <= 1),
            ("seed", "a whole number, 0 or more", self.seed is None or self.seed >= 0),
        )
        for name, wanted, fits in checks:
            if not fits:  # NaN fits nowhere
                raise SamplingError(f"{name} must be {wanted}; got {getattr(self, name)!r}")

    @property
    def greedy(self) -> bool:
        """Whether the best token is always taken."""
        return self.temperature == 0


def _best_first(values: np.ndarray, count: int) -> np.ndarray:
    """Positions of the `count` largest values, largest first, equal ones by position."""
    if count < len(values):
        least = np.partition(values, len(values) - count)[len(values) - count]
        above = np.flatnonzero(values > least)
        equal = np.flatnonzero(values == least)[: count - len(above)]
        candidates = np.sort(np.concatenate((above, equal)))
    else:
        candidates = np.arange(len(values))
    return candidates[np.argsort(-values[candidates], kind="stable")]


class Sampler:
    """Chooses tokens one after another for one sequence."""

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self._random = np.random.Generator(np.random.Philox(sampling.seed))

    def choose(self, logits: np.ndarray) -> int:
        """The next token for logits (vocab,). Ties go to the lower id, as on the device; NaN never wins."""
        logits = np.asarray(logits, np.float64)
        logits = np.where(np.isnan(logits), -np.inf, logits)
        best = int(np.argmax(logits))
        if not np.isfinite(logits[best]):
            raise SamplingError(
                f"logits with a finite largest value were wanted, {logits[best]} came: "
                "the model's weights or the device are damaged"
            )
        if self.sampling.greedy:
            return best
        weights = np.exp((logits - logits[best]) / self.sampling.temperature)
        kept = self._filter(weights)
        cumulative = np.cumsum(weights[kept])
        # The draw lies below the total, so the position found always exists.
        drawn = np.searchsorted(cumulative, self._random.random() * cumulative[-1], side="right")
        return int(kept[min(int(drawn), len(kept) - 1)])

    def _filter(self, weights: np.ndarray) -> np.ndarray:
        """Ids that stay in the draw; `weights` (vocab,) are probabilities relative to the best's."""
        s = self.sampling
        if s.top_k or s.top_p < 1:
            kept = _best_first(weights, s.top_k or len(weights))
        else:
            kept = np.flatnonzero(weights > 0)
        if s.top_p < 1:
            cumulative = np.cumsum(weights[kept])
            kept = kept[: int(np.searchsorted(cumulative, s.top_p * cumulative[-1], side="left")) + 1]
        return kept[weights[kept] >= s.min_p]
