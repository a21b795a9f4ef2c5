"""Stages of the two pipelines: what happens how many cycles after the engine issues a step.

The matrix engine's read a row and add it up; the vector engine's read operands and end in scratch, quantizer or
reduction tree. Distances between instructions (`hw.timing`) are differences of stages.
"""

from hw.latency import ADD, CONVERT, DOT, MULTIPLY, SPECIAL

__all__ = ["ACC_ADD", "ACC_READ", "ACC_WRITE", "ARRAY", "BUFFER", "FACTOR", "FUNCTION", "LANE_ADD", "LAST", "READ",
           "RESULT", "ROW", "SELECT"]

ARRAY = 2
"""Matrix stage: array access."""
ROW = ARRAY + 1
"""Matrix stage: the row has been read; the dot unit takes it."""
BUFFER = ROW + 1
"""Matrix stage: write into the row buffer."""
ACC_ADD = ROW + DOT
"""Matrix stage: terms and old accumulators meet at the adders."""
ACC_READ = ACC_ADD - 1
"""Matrix stage: accumulator read."""
ACC_WRITE = ACC_ADD + ADD
"""Matrix stage: accumulator write."""

READ = 0
"""Vector stage: scratch, accumulators, row buffer and scalars are read."""
SELECT = READ + 1
"""Vector stage: operands are selected and row elements converted."""
FACTOR = SELECT + CONVERT
"""Vector stage: the factors enter the first multiplier."""
LANE_ADD = FACTOR + MULTIPLY
"""Vector stage: product and addend enter the adder."""
FUNCTION = LANE_ADD + ADD
"""Vector stage: the sum enters the special-function unit."""
LAST = FUNCTION + SPECIAL
"""Vector stage: the function's result enters the second multiplier."""
RESULT = LAST + MULTIPLY
"""Vector stage: results leave the lane."""
