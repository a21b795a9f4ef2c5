"""IEEE-754 binary32 addition and multiplication as pipelines, and the exact rounding they share with others.

Round to nearest even, subnormals in and out, and one canonical NaN (IEEE 754-2019 sections 3.4, 4.3.1, 6.2).

Every result is made in two steps. *Normalizing* (`normalize`) finds out how far a magnitude has to move and
which exponent it then has; *packing* (`pack`) moves, rounds once and assembles the word. They are two
functions so that a pipeline can put a register between them; `round_pack` is both in one cycle.
"""

from dataclasses import dataclass, replace

from amaranth import C, Cat, Module, Mux, Shape, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw import latency

__all__ = ["Adder", "Alignment", "CANONICAL_NAN", "Float", "Multiplier", "NEGATIVE_ZERO", "align",
           "leading_zeros", "normalize", "pack", "round_pack"]

CANONICAL_NAN = 0x7FC0_0000
"""The only NaN a unit produces."""

NEGATIVE_ZERO = 0x8000_0000
"""The neutral element of addition: ``x + -0.0`` is ``x`` for every ``x``, ``-0.0`` included."""

Float = data.StructLayout({
    "fraction": 23,
    "exponent":  8,
    "sign":      1,
})
"""Fields of a binary32 word, lowest first."""

WINDOW = 54
"""Bits behind the packing shifter: 26 of magnitude, a sticky bit below, and room to move up by `FURTHEST`."""

FURTHEST = 27
"""A magnitude moved this far below the smallest subnormal leaves nothing but a sticky bit."""


def shift_left(m: Module, value: Value, amount: Value) -> Value:
    """``value << amount``, cut to the width of the value.

    Amaranth makes a shift as wide as its result can be, and the simulator is slow above 64 bits. So the largest steps
    of a shifter that would grow beyond are selections, which keep the width.
    """
    width = len(value)
    steps = len(amount)
    while width <= 64 < width + (1 << steps) - 1:
        steps -= 1
        moved = Signal(width, name=f"shift_{1 << steps}")
        m.d.comb += moved.eq(Mux(amount[steps], Cat(C(0, 1 << steps), value[:-(1 << steps)]), value))
        value = moved
    return (value << amount[:steps])[:width]


def leading_zeros(m: Module, value: Value) -> Signal:
    """Number of zero bits above the highest one; ``len(value)`` if there is none.

    A binary search: the simulator pays one comparison and one selection a result bit, where a chain of
    conditions would cost one for every input bit.
    """
    width = len(value)
    steps = width.bit_length()
    # Ones below the value stop the search, so that zero counts to the width and no further.
    rest = Cat(C(-1, (1 << steps) - width), value)
    bits = []
    for step in reversed(range(steps)):
        half = 1 << step
        upper, lower = rest[half:], rest[:half]
        empty = Signal(name=f"lz_{step}")
        m.d.comb += empty.eq(upper == 0)
        bits.insert(0, empty)
        if step:
            following = Signal(half, name=f"lz_rest_{step}")
            m.d.comb += following.eq(Mux(empty, lower, upper))
            rest = following
    count = Signal(range(width + 1), name="lz")
    m.d.comb += count.eq(Cat(*bits))
    return count


@dataclass(frozen=True)
class Alignment:
    """How a magnitude becomes a significand; the members may be registered between `normalize` and `pack`.

    Attributes
    ----------
    shift : distance to the left, counted from the lowest position the magnitude can take.
    field : biased exponent less one, never below 0; from 254 upwards the result is infinite.
    tiny : set if the magnitude moves down, because even its top bit weighs less than the smallest normal;
        None where that cannot happen.
    """

    shift: Value
    field: Value
    tiny: Value | None

    def registered(self, m: Module) -> "Alignment":
        """The same, one clock later."""
        def later(value, name):
            register = Signal.like(value, name=name)
            m.d.sync += register.eq(value)
            return register
        return Alignment(later(self.shift, "shift_r"), later(self.field, "field_r"),
                         None if self.tiny is None else later(self.tiny, "tiny_r"))


def align(m: Module, limit: Value, zeros: Value, *, lowest: int | None = None,
          empty: Value | int = 0) -> Alignment:
    """Alignment of a magnitude with `zeros` leading zeros, whose top bit weighs 2^-126 moved up by `limit`.

    `lowest` bounds `limit` from below: from 0 upwards nothing ever moves down, and that part is left out.
    `empty` says that the magnitude is zero, which has the lowest exponent whatever the limit.
    """
    shape = limit.shape()
    if lowest is None:
        lowest = -(1 << (shape.width - 1)) if shape.signed else 0
    difference = Signal(signed(max(shape.width, len(zeros)) + 2), name="align_difference")
    subnormal = Signal(name="align_subnormal")
    field = Signal(len(difference) - 1, name="align_field")
    m.d.comb += [
        difference.eq(limit - zeros),
        subnormal.eq(difference < 0),
        field.eq(Mux(subnormal | empty, 0, difference)),
    ]
    if lowest >= 0:
        shift = Signal(len(zeros), name="align_shift")
        m.d.comb += shift.eq(Mux(subnormal, limit, zeros))
        return Alignment(shift, field, None)
    shift = Signal(max(5, len(zeros)), name="align_shift")
    tiny = Signal(name="align_tiny")
    m.d.comb += [
        tiny.eq(limit < 0),
        shift.eq(Mux(tiny, Mux(limit < -FURTHEST, 0, limit + FURTHEST), Mux(subnormal, limit, zeros))),
    ]
    return Alignment(shift, field, tiny)


def normalize(m: Module, exponent: Value | int, significand: Value, *,
              lowest: int | None = None) -> Alignment:
    """Alignment of ``significand * 2**exponent``, the significand an unsigned integer of any width.

    `lowest` is the smallest `exponent` that occurs, where the caller knows it better than the shape tells: if
    no subnormal result needs a shift to the right, that part of the shifter is left out.
    """
    if isinstance(exponent, int):
        lowest, exponent = exponent, C(exponent, Shape.cast(range(min(exponent, 0), max(exponent, 0) + 1)))
    shape = exponent.shape()
    if lowest is None:
        lowest = -(1 << (shape.width - 1)) if shape.signed else 0
    offset = len(significand) - 1 + 126
    limit = Signal(signed(max(shape.width, offset.bit_length()) + 2), name="normalize_limit")
    m.d.comb += limit.eq(exponent + offset)
    zeros = leading_zeros(m, significand)
    return align(m, limit, zeros, lowest=lowest + offset, empty=zeros == len(significand))


def pack(m: Module, sign: Value, alignment: Alignment, significand: Value, sticky: Value | int = 0, *,
         headroom: int = 0) -> Signal:
    """The binary32 word of a magnitude that `normalize` has seen, rounded once to nearest even.

    Too large is infinity. `sticky` says that the magnitude exceeds the significand by less than one unit of
    its last place; it may only be set where the significand keeps a bit below the rounding position. With
    `headroom` 1, the alignment was made for the bit below the top one; the top bit may be set in addition:
    a product of two significands is known only to lie between 1 and 4.
    """
    window = max(len(significand), 26 if alignment.tiny is None else WINDOW)
    upright = Signal(window, name="pack_upright")
    m.d.comb += upright.eq(Cat(C(0, window - len(significand)), significand))
    source = upright
    if alignment.tiny is not None:
        # Moving down is moving up from below, so that one shifter does both; what is cut off is a sticky bit.
        kept, rest = upright[window - 26:], upright[:window - 26]
        source = Signal(window, name="pack_source")
        m.d.comb += source.eq(Mux(alignment.tiny, Cat(C(0, window - WINDOW), rest.any(), kept), upright))
    shifted = Signal(window, name="pack_shifted")
    m.d.comb += shifted.eq(shift_left(m, source, alignment.shift))

    top = window - 24 - headroom
    kept, tail, below = shifted[top:top + 24], shifted[top - 1], shifted[:top - 1].any() | sticky
    exponent = Cat(C(0, 23), alignment.field)
    if headroom:
        above = shifted[-1]
        tail, below = Mux(above, shifted[top], tail), below | (above & shifted[top - 1])
        kept = Mux(above, shifted[top + 1:], kept)
        exponent = exponent + Cat(C(0, 23), above)
    # The hidden bit counts one into the exponent, and so does a rounding that carries out of the significand.
    word = Signal(len(alignment.field) + 25, name="pack_word")
    result = Signal(32, name="packed")
    m.d.comb += [
        word.eq(exponent + kept + (tail & (below | kept[0]))),
        result.eq(Cat(Mux(word[23:] >= 255, 255 << 23, word[:31]), sign)),
    ]
    return result


def round_pack(m: Module, sign: Value, exponent: Value | int, significand: Value, sticky: Value | int = 0, *,
               lowest: int | None = None) -> Signal:
    """The binary32 word nearest to ``(-1)**sign * significand * 2**exponent``, ties to even, in one cycle.

    The significand is an unsigned integer of any width, the exponent a (signed) value or a number. `sticky`
    is as in `pack`, `lowest` as in `normalize`. A zero keeps its sign.
    """
    return pack(m, sign, normalize(m, exponent, significand, lowest=lowest), significand, sticky)


class Adder(wiring.Component):
    """Sum of two binary32 numbers.

    Timing: free running; the sum of the operands at one clock edge stands on ``o`` after `latency` edges,
    that one included. One sum a cycle.

    Members
    -------
    a, b : In(32)
        Addends.
    o : Out(32)
        Sum, rounded to nearest even.
    """

    a: In(32)
    b: In(32)
    o: Out(32)

    latency = latency.ADD

    def elaborate(self, platform):
        m = Module()

        # First cycle: order by magnitude, and align the smaller; three more bits hold all that rounding asks.
        swap = Signal()
        large, small = Signal(Float), Signal(Float)
        m.d.comb += [
            swap.eq(self.a[:31] < self.b[:31]),
            large.as_value().eq(Mux(swap, self.b, self.a)),
            small.as_value().eq(Mux(swap, self.a, self.b)),
        ]
        distance, moved = Signal(8), Signal(50)
        hidden_large, hidden_small = large.exponent.any(), small.exponent.any()
        exponent, larger, smaller = Signal(8), Signal(24), Signal(27)
        sign, subtract, infinite, invalid = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            # A subnormal has the exponent of the smallest normal.
            distance.eq((large.exponent | ~hidden_large) - (small.exponent | ~hidden_small)),
            moved.eq(Cat(C(0, 26), small.fraction, hidden_small) >> Mux(distance > 26, 26, distance[:5])),
        ]
        m.d.sync += [
            exponent.eq(large.exponent | ~hidden_large),
            larger.eq(Cat(large.fraction, hidden_large)),
            smaller.eq(Cat(moved[:24].any(), moved[24:])),
            sign.eq(large.sign),
            subtract.eq(large.sign ^ small.sign),
            infinite.eq(large.exponent == 255),
            invalid.eq((large.exponent == 255) & (large.fraction.any()
                                                  | ((small.exponent == 255) & (large.sign ^ small.sign)))),
        ]

        # Second cycle: add, and find the top bit. The sum counts 2^(exponent - 153), so that its top bit, the
        # carry, has to move up by the exponent to weigh 2^-126.
        total, total_r = Signal(28), Signal(28)
        sign_r, invalid_r = Signal(), Signal()
        m.d.comb += total.eq(Mux(subtract, Cat(C(0, 3), larger) - smaller, Cat(C(0, 3), larger) + smaller))
        zeros = leading_zeros(m, total)
        empty = total == 0
        alignment = align(m, exponent, zeros, empty=empty)
        alignment = replace(alignment, field=Mux(infinite, 255, alignment.field)[:8]).registered(m)
        m.d.sync += [
            total_r.eq(total),
            sign_r.eq(sign & ~(subtract & empty)),  # x - x is +0
            invalid_r.eq(invalid),
        ]

        # Third cycle: round.
        m.d.sync += self.o.eq(Mux(invalid_r, CANONICAL_NAN, pack(m, sign_r, alignment, total_r)))
        return m


class Multiplier(wiring.Component):
    """Product of two binary32 numbers.

    Timing: free running; the product of the operands at one clock edge stands on ``o`` after `latency` edges,
    that one included. One product a cycle.

    Members
    -------
    a, b : In(32)
        Factors.
    o : Out(32)
        Product, rounded to nearest even.
    """

    a: In(32)
    b: In(32)
    o: Out(32)

    latency = latency.MULTIPLY

    def elaborate(self, platform):
        m = Module()
        a, b = data.View(Float, self.a), data.View(Float, self.b)
        hidden_a, hidden_b = a.exponent.any(), b.exponent.any()
        significand_a, significand_b, search = Signal(24), Signal(24), Signal(24)
        m.d.comb += [
            significand_a.eq(Cat(a.fraction, hidden_a)),
            significand_b.eq(Cat(b.fraction, hidden_b)),
            search.eq(Mux(hidden_a, significand_b, significand_a)),
        ]

        # First cycle: multiply, and find the top bit beside it. At most one factor may be subnormal, or the
        # product is next to nothing; so the leading zeros of one factor are those of the product.
        limit, infinite = Signal(signed(10)), Signal()
        zeros = leading_zeros(m, search)
        zero = ~search.any()
        m.d.comb += [
            limit.eq((a.exponent | ~hidden_a) + (b.exponent | ~hidden_b) - 128),
            infinite.eq((a.exponent == 255) | (b.exponent == 255)),
        ]
        alignment = align(m, limit, zeros, empty=zero)
        alignment = replace(alignment, field=Mux(infinite, 511, alignment.field)[:9]).registered(m)
        product, sign, invalid = Signal(48), Signal(), Signal()
        m.d.sync += [
            product.eq(significand_a * significand_b),
            sign.eq(a.sign ^ b.sign),
            invalid.eq(((a.exponent == 255) & (a.fraction.any() | ~(b.exponent.any() | b.fraction.any())))
                       | ((b.exponent == 255) & (b.fraction.any() | ~(a.exponent.any() | a.fraction.any())))),
        ]

        # Second cycle: round.
        m.d.sync += self.o.eq(Mux(invalid, CANONICAL_NAN, pack(m, sign, alignment, product, headroom=1)))
        return m
