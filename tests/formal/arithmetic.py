"""Properties of the arithmetic units that no number of vectors can show."""

from amaranth import Module, Mux, Signal, signed
from amaranth.hdl import Assert, Assume
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from hw import fp32
from tests.formal.prove import Proof

__all__ = ["PROOFS"]

FINITE = 255 << 23


class AddCommutes(wiring.Component):
    """Two adders with exchanged addends."""

    a: In(32)
    b: In(32)

    def elaborate(self, platform):
        m = Module()
        m.submodules.forth = forth = fp32.Adder()
        m.submodules.back = back = fp32.Adder()
        m.d.comb += [forth.a.eq(self.a), forth.b.eq(self.b), back.a.eq(self.b), back.b.eq(self.a),
                     Assert(forth.o == back.o)]
        return m


class AddNeutral(wiring.Component):
    """x + -0.0 is x, except that a NaN becomes the canonical one: accumulators begin with it."""

    a: In(32)

    def elaborate(self, platform):
        m = Module()
        m.submodules.add = add = fp32.Adder()
        m.d.comb += [add.a.eq(fp32.NEGATIVE_ZERO), add.b.eq(self.a)]
        value, age = self.a, Signal(range(8))
        for n in range(add.latency):
            later = Signal(32, name=f"value_{n}")
            m.d.sync += later.eq(value)
            value = later
        m.d.sync += age.eq(Mux(age == add.latency, age, age + 1))
        with m.If(age == add.latency):
            m.d.comb += Assert(add.o == Mux(value[:31] > FINITE, fp32.CANONICAL_NAN, value))
        return m


class AddMonotone(wiring.Component):
    """If a <= b then a + c <= b + c, all finite and a, b of one sign: rounding keeps the order."""

    a: In(32)
    b: In(32)
    c: In(32)

    def elaborate(self, platform):
        m = Module()
        m.submodules.low = low = fp32.Adder()
        m.submodules.high = high = fp32.Adder()
        m.d.comb += [
            low.a.eq(self.a), low.b.eq(self.c), high.a.eq(self.b), high.b.eq(self.c),
            *(Assume(value[:31] < FINITE) for value in (self.a, self.b, self.c)),
            Assume(_key(self.a) <= _key(self.b)),
            Assert(_key(low.o) <= _key(high.o)),
        ]
        return m


def _key(word):
    """A signed number in the order of finite and infinite floats; both zeros are 0."""
    return Mux(word[31], -word[:31], word[:31].as_signed() & ((1 << 31) - 1))


class PackMonotone(wiring.Component):
    """Of two magnitudes of one exponent the larger never rounds to the smaller word, nor does the larger exponent."""

    exponent: In(signed(10))
    small: In(40)
    large: In(40)

    def elaborate(self, platform):
        m = Module()
        words = [fp32.round_pack(m, 0, exponent, significand)
                 for exponent, significand in ((self.exponent, self.small), (self.exponent, self.large),
                                               (self.exponent + 1, self.small))]
        m.d.comb += [
            Assume(self.small <= self.large),
            Assert(words[0] <= words[1]),
            Assert(words[0] <= words[2]),
            *(Assert(word <= FINITE) for word in words),
        ]
        return m


PIPELINE = "the pipeline has no feedback and is shorter"

PROOFS = (
    Proof("add-commutes", "a + b and b + a are the same bits, for all 2^64 pairs", AddCommutes, 5, complete=PIPELINE,
          solver="bitwuzla"),
    Proof("add-neutral", "-0.0 + x is x, and the canonical NaN if x is one, for all x", AddNeutral, 6,
          complete=PIPELINE, solver="bitwuzla", quick=True),
    Proof("pack-monotone", "a larger magnitude or exponent never rounds to a smaller word, and none to a NaN",
          PackMonotone, 2, complete="it is combinational", solver="bitwuzla"),
)
