"""The instructions that the bench of an engine's front gives to it, for the bench and for the design alike."""

from amaranth.lib import data

__all__ = ["front_layout"]


def front_layout(vector: bool) -> data.StructLayout:
    """What a front looks at, as in the vector engine or in the matrix engine, and a number that tells each apart."""
    return data.StructLayout({"wait": 4, "signal": 1, "fence": 1, **({"chain": 1, "reduce_fence": 1} if vector else {}),
                              "number": 12})
