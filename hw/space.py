"""The spaces of a device's state, their ids at the host port and their shapes, as docs/machine.md lists them."""

from enum import IntEnum

from hw.config import LINE_WORDS, REGISTERS, SCALARS, HardwareConfig
from hw.isa import FUNCTIONS, TABLE_ENTRIES

__all__ = ["OPERAND_WORDS", "TILED", "Space", "shape"]

OPERAND_WORDS = 17
"""Host words of an operand block: 16 pairs of integers, then sum and exponent."""


class Space(IntEnum):
    """What the host can read and write; the value is `host_space`."""

    ARRAY = 0
    SCRATCH = 1
    ACCUMULATORS = 2
    ROW_BUFFER = 3
    OPERANDS = 4
    SCALARS = 5
    REGISTERS = 6
    MICROCODE = 7
    TABLES = 8
    FUNCTIONS = 9


TILED = frozenset({Space.ARRAY, Space.SCRATCH, Space.ACCUMULATORS, Space.ROW_BUFFER})
"""Spaces that every tile has for itself; their last axis is the tile."""


def shape(space: Space, config: HardwareConfig) -> tuple[int, ...]:
    """Shape of a whole space as the host sees it, in uint32 words."""
    tiles = config.tiles
    return {
        Space.ARRAY: (config.rows, LINE_WORDS, tiles),
        Space.SCRATCH: (config.scratch, tiles),
        Space.ACCUMULATORS: (config.accumulators, tiles),
        Space.ROW_BUFFER: (config.row_buffer, LINE_WORDS, tiles),
        Space.OPERANDS: (config.operands, OPERAND_WORDS),
        Space.SCALARS: (SCALARS,),
        Space.REGISTERS: (REGISTERS,),
        Space.MICROCODE: (config.microcode, LINE_WORDS),
        Space.TABLES: (TABLE_ENTRIES, 3),
        Space.FUNCTIONS: (FUNCTIONS, 4),
    }[Space(space)]
