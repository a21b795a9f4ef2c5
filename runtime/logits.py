"""What is done with logits besides choosing from them: adjustments before the choice, probabilities to report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hw.errors import WordlineError

__all__ = ["Adjustment", "log_probabilities", "most_probable"]

BIAS_LIMIT = 100.0
PENALTY_LIMIT = 2.0


@dataclass(frozen=True)
class Adjustment:
    """What is added to the logits of some tokens before one is chosen.

    Parameters
    ----------
    bias : mapping of int to float
        Added to the logits of these tokens, -100 to 100.
    presence_penalty, frequency_penalty : float
        Taken from the logits of tokens that were generated before: once, and once for each time; -2 to 2.
    """

    bias: Mapping[int, float] = field(default_factory=dict)
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0

    def __post_init__(self) -> None:
        for name in ("presence_penalty", "frequency_penalty"):
            if not -PENALTY_LIMIT <= getattr(self, name) <= PENALTY_LIMIT:
                raise WordlineError(f"{name} must be a number from -2 to 2; got {getattr(self, name)!r}")
        for token, value in self.bias.items():
            if not -BIAS_LIMIT <= value <= BIAS_LIMIT:
                raise WordlineError(f"a bias must be a number from -100 to 100; got {value!r} for token {token}")

    @property
    def neutral(self) -> bool:
        """Whether nothing is changed."""
        return not (self.bias or self.presence_penalty or self.frequency_penalty)

    def apply(self, logits: np.ndarray, generated: Sequence[int]) -> np.ndarray:
        """Adjusted copy of logits (vocab,), after `generated` tokens."""
        logits = logits.astype(np.float64)
        for token, value in self.bias.items():
            logits[token] += value
        if generated and (self.presence_penalty or self.frequency_penalty):
            tokens, counts = np.unique(np.asarray(generated), return_counts=True)
            logits[tokens] -= self.presence_penalty + self.frequency_penalty * counts
        return logits


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    """Natural logarithms of the probabilities that logits (vocab,) stand for, float64."""
    values = logits.astype(np.float64)
    values -= values.max()
    return values - np.log(np.exp(values).sum())


def most_probable(log_probs: np.ndarray, count: int) -> list[tuple[int, float]]:
    """The `count` most probable tokens and their logarithms, best first, ties by id."""
    if count <= 0:
        return []
    count = min(count, len(log_probs))
    least = np.partition(log_probs, len(log_probs) - count)[len(log_probs) - count]
    candidates = np.flatnonzero(log_probs >= least)
    order = candidates[np.argsort(-log_probs[candidates], kind="stable")][:count]
    return [(int(token), float(log_probs[token])) for token in order]
