"""What the lane sees of a row buffer entry: one element as fp32, its row's scale and minimum, and plain words."""

from amaranth import C, Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw import latency
from hw.config import BLOCK
from hw.dot import Half, SideBits
from hw.fp32 import CANONICAL_NAN, leading_zeros
from hw.isa import RowFormat

__all__ = ["ElementSelect", "from_half"]


class ElementSelect(wiring.Component):
    """Element `index` of a row as fp32, with the scale and the minimum that belong to it. All three are exact.

    Timing: free running; outputs stand `latency.CONVERT` cycles after the inputs.

    Members
    -------
    row, side : In
        256 data bits and 64 side bits (`hw.dot.SideBits`).
    format, half, index : In
        `hw.isa.RowFormat`; which output row of a two-row format; element.
    element, scale, minimum : Out(32)
        fp32.
    """

    row: In(256)
    side: In(64)
    format: In(2)
    half: In(1)
    index: In(5)
    element: Out(32)
    scale: Out(32)
    minimum: Out(32)

    latency = latency.CONVERT

    def elaborate(self, platform):
        m = Module()
        byte, nibble = Signal(8), Signal(4)
        sign, size = Signal(), Signal(8)
        second = Signal()
        m.d.comb += [
            second.eq(self.half & (self.format != RowFormat.Q8)),
            byte.eq(self.row.word_select(self.index, 8)),
            nibble.eq(self.row.word_select(Cat(self.index, second), 4)),
        ]
        with m.Switch(self.format):
            with m.Case(RowFormat.Q8):
                m.d.comb += [sign.eq(byte[7]), size.eq(Mux(byte[7], -byte, byte))]
            with m.Case(RowFormat.Q4):
                m.d.comb += size.eq(nibble)
            with m.Default():
                # E2M1, doubled: 0, 1, 2, 3, 4, 6, 8, 12.
                m.d.comb += [
                    sign.eq(nibble[3]),
                    size.eq(Mux(nibble[1:3] == 0, nibble[0], Cat(nibble[0], 1) << (nibble[1:3] - 1)[:2])),
                ]
        zeros = leading_zeros(m, size)
        fraction = Signal(7)
        side = data.View(SideBits, self.side)
        m.d.comb += fraction.eq((size << zeros)[:7])
        scale, minimum = Signal(Half), Signal(Half)
        m.d.comb += [
            scale.eq(Mux(second, side.d1, side.d0)),
            minimum.eq(Mux(second, side.m1, side.m0)),
        ]
        m.d.sync += [
            # An integer zero is +0, also a doubled E2M1 one.
            self.element.eq(Mux(size == 0, 0, Cat(C(0, 16), fraction, (134 - zeros)[:8], sign))),
            self.scale.eq(from_half(m, scale)),
            self.minimum.eq(from_half(m, minimum)),
        ]
        return m


assert BLOCK == 32, "index and format decoding are written for blocks of 32"


def from_half(m: Module, half) -> Signal:
    """fp32 of an fp16 number, exactly."""
    zeros = leading_zeros(m, half.fraction)
    word = Signal(32, name="from_half")
    with m.Switch(half.exponent):
        with m.Case(0):
            # fraction * 2^-24: the hidden bit is the top one of the fraction.
            moved = Signal(10, name="half_moved")
            m.d.comb += [
                moved.eq((half.fraction << zeros) << 1),
                word.eq(Mux(half.fraction == 0, Cat(C(0, 31), half.sign),
                            Cat(C(0, 13), moved, (112 - zeros)[:8], half.sign))),
            ]
        with m.Case(31):
            m.d.comb += word.eq(Mux(half.fraction.any(), CANONICAL_NAN, Cat(C(0, 23), C(255, 8), half.sign)))
        with m.Default():
            m.d.comb += word.eq(Cat(C(0, 13), half.fraction, (half.exponent + 112)[:8], half.sign))
    return word
