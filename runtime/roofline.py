"""The row-read bound: cycles that a token must take because every tile reads one array row a cycle."""

from collections.abc import Sequence

from hw.image import Image
from hw.roofline import cache_rows
from runtime.session import Step

__all__ = ["row_bound", "share_of_bound"]


def row_bound(image: Image, kind: str, context: int) -> float:
    """Rows that every tile must read for one command: weights, and keys and values of `context` tokens.

    A command is one token, or two for ``pair``. ``prefill`` needs no output projection.
    """
    needed, shape = image.report["needed_rows"], image.model["shape"]
    cache = cache_rows(image.config, shape["layers"], shape["heads"], shape["head_dim"], context)
    one = needed["layers"] + (needed["output"] if kind != "prefill" else 0) + cache
    return 2 * one if kind == "pair" else one


def share_of_bound(image: Image, steps: Sequence[Step]) -> float | None:
    """The bound of some steps over the cycles they took; None without steps."""
    cycles = sum(s.cycles for s in steps)
    return sum(row_bound(image, s.kind, s.position + 1) for s in steps) / cycles if cycles else None
