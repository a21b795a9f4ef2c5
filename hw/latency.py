"""Pipeline depths of the arithmetic units, in cycles: the only place they are written.

A depth is the number of clock edges from an operand at a unit's input to the result at its output. Components
build exactly this many stages; the timing model adds the same numbers.
"""

__all__ = ["ADD", "CONVERT", "DOT", "MULTIPLY", "QUANTIZE", "SPECIAL", "reduce_depth"]

MULTIPLY = 2
"""fp32 multiplier (`hw.fp32.Multiplier`)."""

ADD = 3
"""fp32 adder (`hw.fp32.Adder`)."""

SPECIAL = 5
"""Special-function unit (`hw.special.SpecialUnit`), table read included."""

DOT = 4
"""From array row and operand block to the scaled fp32 terms (`hw.dot.DotUnit`), before the accumulator."""

CONVERT = 1
"""Row element to fp32 (`hw.rowformat.ElementSelect`)."""

QUANTIZE = 3
"""From the last word of a block to the finished block (`hw.quantizer.Quantizer`)."""


def reduce_depth(tiles: int) -> int:
    """From the last word of a segment to its scalar (`hw.reducer.Reducer`), the same for every operation.

    A tree over the lanes, the running sum, one cycle in which all four partial sums are written, and their
    tree.
    """
    levels = (tiles - 1).bit_length()
    return ADD * levels + ADD + 1 + 2 * ADD
