"""How close a compiled model is to the fp32 forward pass over the same weights, under teacher forcing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from runtime.session import Session
from sim.metrics import Comparison, Perplexity
from sim.reference import Shape, forward

__all__ = ["EVALUATION_TEXT", "Evaluation", "evaluate"]

EVALUATION_TEXT = Path(__file__).with_name("evaluation.txt")
"""Plain text of more than 1,100 tokens, written for this project."""


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation measured. Divergence in nats, agreement as a share of positions."""

    tokens: int
    reference_perplexity: float
    perplexity: float
    mean_kl: float
    top1: float

    @property
    def perplexity_change(self) -> float:
        """Relative to the reference; 0.01 is one percent worse."""
        return self.perplexity / self.reference_perplexity - 1


def evaluate(session: Session, shape: Shape, weights: Mapping[str, np.ndarray], tokens: Sequence[int],
             progress: Callable[[str, float], None] = lambda stage, share: None) -> Evaluation:
    """Every token of a text given in turn to the session's device and to the reference; logits compared.

    `weights` are those of the model file, dequantised, under the names that `sim.reference` uses.
    """
    device = session.score(tokens)
    comparison, of_reference, of_device = Comparison(), Perplexity(), Perplexity()
    progress("reference", 0.0)
    for start, reference in forward(shape, weights, tokens):  # (rows, vocabulary)
        rows = []
        for n in range(len(reference)):
            rows.append(next(device))
            progress("device", (start + n + 1) / len(tokens))
        found = np.stack(rows)  # (rows, vocabulary)
        comparison.add(reference, found)
        following = np.asarray(tokens[start + 1:start + 1 + len(reference)])
        of_reference.add(reference[:len(following)], following)  # the last token has nothing after it
        of_device.add(found[:len(following)], following)
    return Evaluation(len(tokens), of_reference.value, of_device.value, comparison.mean_kl, comparison.top1)
