"""The fp32 units against Berkeley SoftFloat, and the shared rounding against exact fractions."""

from fractions import Fraction

import numpy as np
import pytest
import softfloatpy
from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.fp32 import CANONICAL_NAN, Adder, Multiplier, leading_zeros, normalize, pack, round_pack
from tests.exact import VECTORS, assert_equal, judged, nearest, random_pairs, special_values
from tests.rtlbatch import Unit

pytestmark = pytest.mark.rtl

SEED = 20


@pytest.fixture(scope="module")
def adder() -> Unit:
    return Unit(Adder(), "fp32_adder")


@pytest.fixture(scope="module")
def multiplier() -> Unit:
    return Unit(Multiplier(), "fp32_multiplier")


OPERATIONS = [("adder", softfloatpy.f32_add), ("multiplier", softfloatpy.f32_mul)]


@pytest.mark.parametrize("name, operation", OPERATIONS)
def test_special_values(request, name, operation):
    values = special_values()
    assert len(set(values.tolist())) >= 100
    a, b = np.repeat(values, values.size), np.tile(values, values.size)
    assert_equal(request.getfixturevalue(name).run(a=a, b=b)["o"], judged(operation, a, b), a, b, SEED)


@pytest.mark.parametrize("name, operation", OPERATIONS)
def test_random_values(request, name, operation):
    a, b = random_pairs(VECTORS, SEED)
    assert_equal(request.getfixturevalue(name).run(a=a, b=b)["o"], judged(operation, a, b), a, b, SEED)


def test_typed_results(adder, multiplier):
    """Results known from the standard, so that judge and unit cannot be wrong together."""
    sums = np.array([
        (0x3F800000, 0x3F800000, 0x40000000),  # 1 + 1
        (0x3F800000, 0xBF800000, 0x00000000),  # x - x is +0
        (0x80000000, 0x80000000, 0x80000000),  # -0 + -0
        (0x80000000, 0x00000000, 0x00000000),
        (0x4B800000, 0x3F800000, 0x4B800000),  # 2^24 + 1, a tie to even
        (0x4B800001, 0x3F800000, 0x4B800002),
        (0x7F7FFFFF, 0x73000000, 0x7F800000),  # half a unit above the largest number
        (0x7F7FFFFF, 0x72FFFFFF, 0x7F7FFFFF),
        (0x7F800000, 0xFF800000, CANONICAL_NAN),
        (0xFFC00001, 0x00000000, CANONICAL_NAN),
        (0x00400000, 0x00400000, 0x00800000),  # subnormals to the smallest normal
    ], np.uint32).T
    products = np.array([
        (0x40400000, 0x40400000, 0x41100000),  # 3 * 3
        (0x00000001, 0x3F000000, 0x00000000),  # half the smallest number, a tie to even
        (0x00000003, 0x3F000000, 0x00000002),
        (0x80000001, 0x3F000001, 0x80000001),
        (0x00000001, 0x4B800000, 0x01000000),  # a subnormal to a normal
        (0x7F7FFFFF, 0x3F800001, 0x7F800000),
        (0x7F800000, 0x80000000, CANONICAL_NAN),
        (0xFF800000, 0x80000001, 0x7F800000),
        (0x00FFFFFF, 0x3F000000, 0x00800000),  # rounds up to the smallest normal
    ], np.uint32).T
    for unit, (a, b, expected) in ((adder, sums), (multiplier, products)):
        assert_equal(unit.run(a=a, b=b)["o"], expected, a, b, SEED)


class Rounder(wiring.Component):
    """`round_pack` of one width, and the same with a register between its halves."""

    latency = 1

    def __init__(self, width: int, lowest: int | None, sticky: bool):
        self.width, self.lowest, self.with_sticky = width, lowest, sticky
        super().__init__({"sign": In(1), "exponent": In(range(-512, 512)), "significand": In(width),
                          "sticky": In(1), "o": Out(32), "apart": Out(32), "zeros": Out(range(width + 1))})

    def elaborate(self, platform):
        m = Module()
        sticky = self.sticky if self.with_sticky else 0
        m.d.sync += [
            self.o.eq(round_pack(m, self.sign, self.exponent, self.significand, sticky, lowest=self.lowest)),
            self.zeros.eq(leading_zeros(m, self.significand)),
        ]
        sign, significand, sticky_r = Signal(), Signal(self.width), Signal()
        m.d.sync += [sign.eq(self.sign), significand.eq(self.significand), sticky_r.eq(sticky)]
        alignment = normalize(m, self.exponent, self.significand, lowest=self.lowest).registered(m)
        m.d.comb += self.apart.eq(pack(m, sign, alignment, significand, sticky_r))
        return m


def magnitudes(rng: np.random.Generator, width: int, count: int) -> list[int]:
    """Integers of every length up to the width, half of them with long runs of equal bits."""
    out = []
    for _ in range(count):
        length = int(rng.integers(0, width + 1))
        value = int.from_bytes(rng.bytes(16), "little") & ((1 << length) - 1)
        if rng.integers(2):
            run = int(rng.integers(0, 128))
            value = value >> run << run if rng.integers(2) else value | ((1 << min(run, length)) - 1)
        out.append(value)
    return out


@pytest.mark.parametrize("width, lowest, sticky", [
    (8, None, False),    # int8
    (28, None, False),   # special functions
    (32, -24, False),    # integer times fp16: never subnormal
    (48, None, True),
    (70, None, True),
])
def test_round_pack(width, lowest, sticky):
    rng = np.random.default_rng([SEED, width])
    count = 3000
    significand = magnitudes(rng, width, count)
    exponent = rng.integers(-190 if lowest is None else lowest, 140, count)
    sign = rng.integers(0, 2, count)
    # A sticky bit means something only below the rounding position.
    rest = [int(sticky and value >> 25 > 0 and bool(rng.integers(2))) for value in significand]
    unit = Unit(Rounder(width, lowest, sticky), f"rounder_{width}")
    got = unit.run(sign=sign, exponent=exponent, significand=np.array(significand, object), sticky=rest)
    for i, value in enumerate(significand):
        exact = (value + Fraction(rest[i], 3)) * Fraction(2) ** int(exponent[i])
        expected = nearest(exact) | int(sign[i]) << 31
        what = f"{value:#x} * 2^{exponent[i]} (sticky {rest[i]}, seed {SEED})"
        assert f"{got['o'][i]:#010x}" == f"{expected:#010x}", what
        assert got["apart"][i] == expected, f"with a register between: {what}"
        assert got["zeros"][i] == width - value.bit_length(), what
