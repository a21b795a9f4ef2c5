"""The quantizer: words of the lanes to blocks of 32 small integers with one exponent."""

from amaranth import C, Cat, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw import latency
from hw.config import BLOCK, MAX_TILES

__all__ = ["Quantizer"]

NARROW_BITS = 8
"""Operand width of a KV cache block."""

LIMITS = {9: (-102, 90), 8: (-102, 90)}
"""Range of the exponent by operand width: scaled sums stay normal fp32 numbers."""

NARROW_LIMITS = (-24, 15)
"""Range of the exponent of a KV cache block: 2^e is an fp16 number."""


class Quantizer(wiring.Component):
    """Blocks of 32 integers ``rne(x * 2**-e)`` from fp32 words, one word of all lanes a cycle.

    ``32 / tiles`` valid words make a block; element ``j`` of it is lane ``j % tiles`` of word ``j // tiles``.
    The exponent is ``floor(log2 max|x|) - (bits - 2)`` within its limits, or that of `scale` when `given`; a
    block of zeros has exponent 0. Integers saturate at ``±(2**(bits - 1) - 1)``; infinities become these
    bounds and NaN becomes 0.

    Timing: the block leaves `latency.QUANTIZE` cycles after its last word; free-running, and words may pause.
    `narrow`, `given`, `scale` and `address` are taken with the last word.

    Parameters
    ----------
    tiles : int
        Lanes; a power of two up to `MAX_TILES`.
    bits : int
        Operand width of a block that is not `narrow`, 9 or 8.
    address_width : int
        Width of the block address that travels along.

    Members
    -------
    valid, first, x : In
        A word of the lanes; `first` begins a block whatever came before.
    narrow, given, scale, address : In
        8-bit block; exponent given by this fp32 power of two; where the block goes.
    o_valid, o_address, o_q, o_e, o_sum, nonfinite : Out
        A block: integers, exponent and exact sum; `nonfinite` if an element was infinite or NaN.
    """

    latency = latency.QUANTIZE

    def __init__(self, *, tiles: int, bits: int = 9, address_width: int = 12) -> None:
        if not 1 <= tiles <= MAX_TILES or tiles & (tiles - 1):
            raise ValueError(f"tiles must be a power of two from 1 to {MAX_TILES}; got {tiles!r}")
        if bits not in LIMITS:
            raise ValueError(f"bits must be 8 or 9; got {bits!r}")
        self.tiles = tiles
        self.bits = bits
        self.address_width = address_width
        super().__init__({
            "valid":     In(1),
            "first":     In(1),
            "x":         In(32).array(tiles),
            "narrow":    In(1),
            "given":     In(1),
            "scale":     In(32),
            "address":   In(address_width),
            "o_valid":   Out(1),
            "o_address": Out(address_width),
            "o_q":       Out(signed(9)).array(BLOCK),
            "o_e":       Out(signed(8)),
            "o_sum":     Out(signed(14)),
            "nonfinite": Out(1),
        })

    def elaborate(self, platform):
        m = Module()

        # Cycle 0: gather the block and the largest exponent field, which alone decides floor(log2 max|x|).
        # -------
        words = BLOCK // self.tiles
        index, start = Signal(range(words)), Signal()
        block = [Signal(32, name=f"x_{j}") for j in range(BLOCK)]
        top, any_bit = Signal(8), Signal()
        word_top = _maximum(m, [x[23:31] for x in self.x])
        word_any = Signal()
        complete, narrow, given = Signal(), Signal(), Signal()
        given_field = Signal(8)
        address = Signal(self.address_width)
        m.d.comb += [
            start.eq(self.first | (index == 0)),
            word_any.eq(Cat(x[:31].any() for x in self.x).any()),
        ]
        m.d.sync += complete.eq(0)
        with m.If(self.valid):
            following = Mux(start, 1, index + 1)
            m.d.sync += [
                index.eq(following),
                # Oldest word lowest: after the last one every element stands at its place.
                *(old.eq(new) for old, new in zip(block, [*block[self.tiles:], *self.x], strict=True)),
                top.eq(Mux(start | (word_top > top), word_top, top)),
                any_bit.eq(word_any | (any_bit & ~start)),
                complete.eq(following[:len(index)] == 0 if words > 1 else 1),
                narrow.eq(self.narrow),
                given.eq(self.given),
                given_field.eq(self.scale[23:31]),
                address.eq(self.address),
            ]

        # Cycle 1: exponent, and every integer.
        lowest, highest = LIMITS[self.bits]
        down, low, high = Signal(4), Signal(8), Signal(8)
        wanted, own, field = Signal(signed(9)), Signal(8), Signal(8)
        largest = Signal(8)
        m.d.comb += [
            down.eq(Mux(narrow, NARROW_BITS - 2, self.bits - 2)),
            low.eq(127 + Mux(narrow, NARROW_LIMITS[0], lowest)),
            high.eq(127 + Mux(narrow, NARROW_LIMITS[1], highest)),
            wanted.eq(top - down),
            own.eq(Mux(any_bit, Mux(wanted < low, low, Mux(wanted > high, high, wanted)), 127)),
            field.eq(Mux(given, given_field, own)),
            largest.eq(Mux(narrow, (1 << (NARROW_BITS - 1)) - 1, (1 << (self.bits - 1)) - 1)),
        ]
        q = [Signal(signed(9), name=f"q_{j}") for j in range(BLOCK)]
        q_valid, q_nonfinite = Signal(), Signal()
        q_address = Signal(self.address_width)
        q_e = Signal(signed(8))
        m.d.sync += [
            *(integer.eq(_integer(m, x, field, largest)) for integer, x in zip(q, block, strict=True)),
            q_valid.eq(complete),
            q_nonfinite.eq(complete & (top == 255)),
            q_address.eq(address),
            q_e.eq(field - 127),
        ]

        # Cycle 2: sum.
        m.d.sync += [
            *(out.eq(integer) for out, integer in zip(self.o_q, q, strict=True)),
            self.o_sum.eq(_total(q)),
            self.o_valid.eq(q_valid),
            self.nonfinite.eq(q_nonfinite),
            self.o_address.eq(q_address),
            self.o_e.eq(q_e),
        ]
        return m


def _integer(m: Module, x, field: Signal, largest: Signal):
    """``clamp(rne(x * 2**-e))`` for one word, with ``field = e + 127``."""
    sign, exponent, fraction = x[31], x[23:31], x[:23]
    # The significand moves up by 0 to 10 below a rounding point at bit 25: less is under one half, more
    # saturates.
    # The distance counts from 256, so that nothing here is signed: the simulator pays for signs.
    normal, distance, shift = Signal(), Signal(10), Signal(4)
    moved, size, bounded = Signal(34), Signal(10), Signal(8)
    m.d.comb += [
        normal.eq(exponent != 0),
        distance.eq((exponent | ~normal) + (C(256 + 2, 10) - field)[:10]),
        shift.eq(Mux(distance < 256, 0, Mux((distance > 266) | (exponent == 255), 10, distance[:4]))),
        moved.eq(Cat(fraction, normal) << shift),
        size.eq((moved + ((1 << 24) - 1) + moved[25]) >> 25),
        bounded.eq(Mux((exponent == 255) & fraction.any(), 0, Mux(size > largest, largest, size))),
    ]
    return Mux(sign, -bounded, bounded)


def _maximum(m: Module, values: list):
    """The largest of some unsigned values, as a balanced tree."""
    while len(values) > 1:
        level = []
        for a, b in zip(values[::2], values[1::2], strict=True):
            larger = Signal(len(a), name="larger")
            m.d.comb += larger.eq(Mux(a > b, a, b))
            level.append(larger)
        values = level
    return values[0]


def _total(integers: list):
    """The exact sum of the integers, in 32 bits all the way, which the simulator neither cuts nor extends."""
    total = C(0, 32)
    for integer in integers:
        total = (total.as_signed() + integer)[:32]
    return total
