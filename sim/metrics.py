"""How far one model's next-token distributions are from another's: perplexity, divergence, agreement.

Fed in chunks, since the logits of a text do not fit memory comfortably.
"""

from dataclasses import dataclass

import numpy as np

__all__ = ["Comparison", "Perplexity", "log_softmax"]


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Natural logarithms of the probabilities: float64, over the last axis."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


@dataclass
class Perplexity:
    """exp of the mean negative log likelihood of the tokens that really followed."""

    count: int = 0
    total: float = 0.0

    def add(self, logits: np.ndarray, following: np.ndarray) -> None:
        """logits (n, vocab) and the token that follows each of the n positions (n,)."""
        likelihood = np.take_along_axis(log_softmax(logits), np.asarray(following)[:, None], axis=-1)
        self.total -= float(likelihood.sum())
        self.count += len(likelihood)

    @property
    def value(self) -> float:
        """NaN before anything was added."""
        return float(np.exp(self.total / self.count)) if self.count else float("nan")


@dataclass
class Comparison:
    """Divergence of test logits from reference logits over a text."""

    count: int = 0
    divergence: float = 0.0
    agreements: int = 0

    def add(self, reference: np.ndarray, test: np.ndarray) -> None:
        """Two sets of logits (n, vocab) at the same positions."""
        p, q = log_softmax(reference), log_softmax(test)
        self.divergence += float((np.exp(p) * (p - q)).sum())
        self.agreements += int((reference.argmax(axis=-1) == test.argmax(axis=-1)).sum())
        self.count += len(reference)

    @property
    def mean_kl(self) -> float:
        """Mean of KL(reference || test), in nats."""
        return self.divergence / self.count if self.count else float("nan")

    @property
    def top1(self) -> float:
        """Share of positions whose best token is the same."""
        return self.agreements / self.count if self.count else float("nan")
