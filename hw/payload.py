"""Instructions with all register sums made, as they wait in front of an engine.

Widths are those of the memories of the device: an address is only meaningful modulo its memory. Counts are kept
less one, with a zero counted as one.
"""

from amaranth import C, Mux, Shape, Value, signed
from amaranth.lib import data
from amaranth.utils import bits_for

from hw.config import HardwareConfig
from hw.isa import MATRIX, VECTOR, Format

__all__ = ["Payloads", "field_of"]

COUNT = 16
"""Bits of a resolved count."""


def field_of(word: Value, form: Format, name: str) -> Value:
    """A field of a microcode word."""
    f = form[name]
    value = word[f.offset:f.offset + f.width]
    return value.as_signed() if f.signed else value


class Payloads:
    """Layouts `matrix` and `vector` of one device's resolved instructions, and how they are made."""

    def __init__(self, config: HardwareConfig) -> None:
        self.lane_bits = config.tiles.bit_length() - 1
        # Resolved width of what a register is added to or stands for; everything else keeps the field's shape.
        row, block = bits_for(config.rows - 1), bits_for(max(1, config.operands - 1))
        scratch = bits_for(max(1, config.scratch - 1))
        accumulator = bits_for(max(config.accumulators, config.row_buffer) - 1)
        tile = max(1, self.lane_bits)
        widths = {"row": row, "block": block, "acc": accumulator, "z": accumulator, "x": scratch, "y": scratch,
                  "w_word": scratch, "index": 32, "tile_reg": tile, "w_tile_reg": tile, "column_reg": 5, "half_reg": 1,
                  "length_reg": 32, "nj": COUNT, "nr": COUNT, "inner": COUNT}
        self.matrix = self._layout(MATRIX, widths, opcode=4)
        self.vector = self._layout(VECTOR, widths)

    @staticmethod
    def _layout(form: Format, widths: dict[str, int], **more: int) -> data.StructLayout:
        names = {f.name for f in form.fields}
        members: dict[str, object] = dict(more)
        for f in form.fields:
            base = f.name.removesuffix("_reg")
            if base != f.name and base in names:
                continue
            members[base] = widths.get(f.name, signed(f.width) if f.signed else f.width)
        return data.StructLayout(members)

    def resolve(self, form: Format, layout: data.StructLayout, word: Value, register) -> dict[str, Value]:
        """Every member's value from a microcode word; `register` reads a register by its number."""
        values: dict[str, Value] = {}
        for f in form.fields:
            base = f.name.removesuffix("_reg")
            value = field_of(word, form, f.name)
            if base == f.name:
                values[f.name] = value
            elif base in values:
                values[base] = (values[base] + register(value))[:Shape.cast(layout[base].shape).width]
            else:
                values[base] = register(value)[:Shape.cast(layout[base].shape).width]
        if self.lane_bits == 0:
            for name in ("tile", "w_tile"):
                if name in values:
                    values[name] = C(0, 1)
        for name in ("nj", "nh", "nr", "outer", "inner"):
            if name in values:
                value = values[name]
                values[name] = Mux(value == 0, 0, value - 1)[:len(value)]
        return values
