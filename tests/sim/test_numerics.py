"""The machine's arithmetic against SoftFloat, NumPy and exact fractions."""

from fractions import Fraction
from itertools import pairwise
from math import floor

import numpy as np
import pytest
import softfloatpy

from hw.isa import TABLE_ENTRIES, FunctionKind
from sim import numerics
from tests.exact import CANONICAL_NAN, assert_equal, judged, nearest, random_pairs, special_values

SEED = 21
INFINITY = 0x7F80_0000


def floats(bits) -> np.ndarray:
    return np.array(bits, np.uint32).view(np.float32)


def bits(values) -> np.ndarray:
    return np.asarray(values, np.float32).view(np.uint32)


def exact(word: int) -> Fraction:
    """The value of finite binary32 bits."""
    field, fraction = word >> 23 & 255, word & 0x7F_FFFF
    magnitude = Fraction(fraction + (1 << 23 if field else 0)) * Fraction(2) ** (max(field, 1) - 150)
    return -magnitude if word >> 31 else magnitude


@pytest.mark.parametrize("function, operation", [
    (numerics.add, softfloatpy.f32_add), (numerics.multiply, softfloatpy.f32_mul)], ids=["add", "multiply"])
def test_add_and_multiply(function, operation):
    values = special_values()
    a, b = random_pairs(100_000, SEED)
    a = np.concatenate([a, np.repeat(values, values.size)])
    b = np.concatenate([b, np.tile(values, values.size)])
    with np.errstate(all="ignore"):
        o = numerics.elementwise(function)(floats(a), floats(b))
    assert o.dtype == np.float32
    assert_equal(bits(o), judged(operation, a, b), a, b, SEED)


def test_half_to_float_knows_every_half():
    halves = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(invalid="ignore"):  # signaling NaNs are among them
        expected = halves.view(np.float16).astype(np.float32)
    expected = np.where(np.isnan(expected), CANONICAL_NAN, bits(expected))
    np.testing.assert_array_equal(bits(numerics.elementwise(numerics.half_to_float)(halves)), expected)


def test_powers_of_two_as_halves():
    for e in range(-24, 16):
        expected = int(np.float16(2.0 ** e).view(np.uint16))
        assert numerics.pow2_to_half(e) == expected, e
        assert numerics.float_to_half_pow2(np.float32(2.0 ** e)) == expected, e
        assert numerics.power_exponent(np.float32(2.0 ** e)) == e


def test_scale_term_is_one_rounding():
    rng = np.random.default_rng(SEED)
    borders = [0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x7C01]
    for d in borders * 10 + rng.integers(0, 1 << 16, 4000).tolist():
        s = int(rng.choice([0, 1, -1, (1 << 20) - 1, -(1 << 20), int(rng.integers(-(1 << 20), 1 << 20))]))
        e = int(rng.choice([-102, 90, int(rng.integers(-102, 91))]))
        got = int(bits(numerics.scale_term(s, d, e)))
        half = np.uint16(d).view(np.float16)
        negative = (s < 0) != bool(d >> 15)
        if np.isnan(half) or (np.isinf(half) and s == 0):
            expected = CANONICAL_NAN
        elif np.isinf(half):
            expected = INFINITY | negative << 31
        else:
            expected = nearest(abs(s) * Fraction(float(abs(half))) * Fraction(2) ** e) | negative << 31
        assert f"{got:#010x}" == f"{expected:#010x}", (s, hex(d), e)


def test_dot_term_adds_two_scaled_terms():
    rng = np.random.default_rng(SEED)
    for _ in range(300):
        s, x = int(rng.integers(-(1 << 18), 1 << 18)), int(rng.integers(-8160, 8161))
        d, m = rng.standard_normal(2).astype(np.float16)
        e = int(rng.integers(-12, 5))
        expected = (np.float32(np.float64(s) * d) * np.float32(2.0 ** e)
                    + np.float32(np.float64(x) * m) * np.float32(2.0 ** e))
        got = numerics.dot_term(s, x, int(d.view(np.uint16)), int(m.view(np.uint16)), e)
        assert np.float32(got) == expected


# Blocks


def reference_block(words: list[int], width: int, lowest: int, highest: int, given: int | None = None):
    """Block of binary32 bits by the rule of the definition, in fractions."""
    limit = (1 << (width - 1)) - 1
    finite = [exact(w) for w in words if w & 0x7FFF_FFFF < INFINITY]
    nonfinite = len(finite) < len(words)
    amax = max((abs(v) for v in finite), default=Fraction(0))
    if given is not None:
        e = given
    elif nonfinite:
        e = highest
    elif amax == 0:
        e = 0
    else:
        log = amax.numerator.bit_length() - amax.denominator.bit_length()
        log -= amax < Fraction(2) ** log
        e = min(max(log - (width - 2), lowest), highest)
    q = []
    for w in words:
        magnitude = w & 0x7FFF_FFFF
        if magnitude > INFINITY:
            q.append(0)
        elif magnitude == INFINITY:
            q.append(-limit if w >> 31 else limit)
        else:
            q.append(min(max(round(exact(w) / Fraction(2) ** e), -limit), limit))
    return q, e, sum(q), nonfinite


def blocks() -> list[list[int]]:
    """Blocks around every border: sizes from subnormal to infinite, ties, the clamp, zeros of both signs."""
    rng = np.random.default_rng(SEED)
    out = [[0] * 32, [0x8000_0000] * 32, [1] + [0] * 31, [0x7F_FFFF, 0x8000_0003] + [0] * 30,
           [0x7F7F_FFFF] * 32, [0x3F80_0000, INFINITY] + [0] * 30, [0x3F80_0000, 0xFF80_0000] + [0] * 30,
           [0x7FC0_0000] + [0] * 31, [0x7F80_0001] + [0x4000_0000] * 31, [0xFFFF_FFFF] * 32]
    for _ in range(300):
        top = int(rng.integers(0, 256))
        field = np.clip(top - rng.integers(0, 14, 32), 0, 254)
        # Few bits make ties, full fractions make the clamp.
        fraction = rng.choice([0, 0x400000, 0x600000, 0x7F0000, 0x7FFFFF, 0x7F8000, 0x010000], 32)
        if rng.integers(2):
            fraction = rng.integers(0, 1 << 23, 32)
        out.append((rng.integers(0, 2, 32) << 31 | field << 23 | fraction).tolist())
    return out


@pytest.mark.parametrize("width, bounds, function", [
    (9, numerics.OPERAND_RANGE, lambda x: numerics.quantize_operand(x, 9)),
    (8, numerics.OPERAND_RANGE, lambda x: numerics.quantize_operand(x, 8)),
    (8, numerics.KV_RANGE, numerics.quantize_kv),
], ids=["operand9", "operand8", "kv"])
def test_blocks(width, bounds, function):
    for words in blocks():
        q, e, total, nonfinite = function(floats(words))
        assert (q.tolist(), e, total, nonfinite) == reference_block(words, width, *bounds), words


def test_blocks_at_a_given_exponent():
    rng = np.random.default_rng(SEED)
    for words in blocks():
        given = int(rng.choice([-24, 15, int(rng.integers(-24, 16))]))
        q, e, total, nonfinite = numerics.quantize_given(floats(words), given, 8)
        assert (q.tolist(), e, total, nonfinite) == reference_block(words, 8, 0, 0, given), (given, words)


# Special functions


class Tables:
    """A coefficient memory with one table a kind, fitted through three points of each segment."""

    def __init__(self) -> None:
        self.c0, self.c1, self.c2 = (np.zeros(TABLE_ENTRIES, np.int64) for _ in range(3))
        self.base: dict[FunctionKind, int] = {}
        self._next = 0
        self._fit(FunctionKind.EXP2, 6, np.exp2)
        self._fit(FunctionKind.RECIP, 7, lambda u: 1 / (1 + u))
        self._fit(FunctionKind.RSQRT, 6, lambda u: 1 / np.sqrt(1 + u))
        base = self.base[FunctionKind.RSQRT]
        self._fit(FunctionKind.RSQRT, 6, lambda u: 1 / np.sqrt(2 + 2 * u))
        self.base[FunctionKind.RSQRT] = base
        self._fit(FunctionKind.TABLE, 9, lambda u: np.tanh(16 * u - 8))  # domain 3

    def _fit(self, kind: FunctionKind, segments: int, function) -> None:
        self.base[kind] = self._next
        n = 1 << segments
        points = (1 - np.cos((np.arange(3) + 0.5) * np.pi / 3)) / 2
        for i in range(n):
            y = function((i + points) / n)
            c2, c1, c0 = (round(c * 2**27) for c in np.polyfit(points, y, 2))
            self.c0[self._next], self.c1[self._next], self.c2[self._next] = c0, c1, c2
            self._next += 1

    def evaluate(self, kind: FunctionKind, x, segments=9, domain=3, lo=-1.0, hi=1.0) -> np.ndarray:
        return bits(numerics.evaluate_all(
            np.asarray(x, np.float32), int(kind), self.base.get(kind, 0), segments, domain, np.float32(lo),
            np.float32(hi), self.c0, self.c1, self.c2))


@pytest.fixture(scope="module")
def tables() -> Tables:
    return Tables()


def interpolated(t: Tables, u: int, segments: int, base: int) -> Fraction:
    """The piecewise quadratic with its two roundings half up, in fractions."""
    entry, position = divmod(Fraction(u, 1 << 27) * (1 << segments), 1)
    c0, c1, c2 = (int(c[(base + int(entry)) % TABLE_ENTRIES]) for c in (t.c0, t.c1, t.c2))
    position = Fraction(floor(position * (1 << 21)), 1 << 21)
    h = c1 + floor(c2 * position + Fraction(1, 2))
    return Fraction(c0 + floor(h * position + Fraction(1, 2)), 1 << 27)


def reference_function(t: Tables, kind: FunctionKind, word: int, segments: int, domain: int, lo: int,
                       hi: int) -> int:
    """Result bits by the definition, in fractions."""
    magnitude, sign = word & 0x7FFF_FFFF, word >> 31
    base = t.base.get(kind, 0)
    if kind is FunctionKind.SCALE:
        if magnitude == 0:
            return 0x3F80_0000
        return nearest(Fraction(2) ** min(max((magnitude >> 23) - 133, -24), 15))
    if magnitude > INFINITY:
        return CANONICAL_NAN
    infinite = magnitude == INFINITY
    x = Fraction(0) if infinite else exact(word)
    if kind is FunctionKind.EXP2:
        if x >= 128 or (infinite and not sign):
            return INFINITY
        if x < -150 or infinite:
            return 0
        v = floor(x * 2**27)
        return nearest(interpolated(t, v % 2**27, 6, base) * Fraction(2) ** (v // 2**27))
    if kind is FunctionKind.RECIP:
        if magnitude == 0 or infinite:
            return sign << 31 | (0 if infinite else INFINITY)
        k, m = normalized(abs(x))
        return sign << 31 | nearest(interpolated(t, int((m - 1) * 2**27), 7, base) / Fraction(2) ** k)
    if kind is FunctionKind.RSQRT:
        if magnitude == 0:
            return sign << 31 | INFINITY
        if sign:
            return CANONICAL_NAN
        if infinite:
            return 0
        k, m = normalized(x)
        j, p = divmod(k, 2)
        return nearest(interpolated(t, int((m - 1) * 2**27), 6, base + 64 * p) / Fraction(2) ** j)
    if kind is FunctionKind.TABLE:
        end = Fraction(2) ** domain
        if infinite or not -end <= x < end:
            return lo if sign else hi
        return nearest(interpolated(t, floor(x / end * 2**26) + 2**26, segments, base))
    return word


def normalized(x: Fraction) -> tuple[int, Fraction]:
    """(k, m) with x = m * 2^k and 1 <= m < 2."""
    k = x.numerator.bit_length() - x.denominator.bit_length()
    k -= x < Fraction(2) ** k
    return k, x / Fraction(2) ** k


def operands(rng: np.random.Generator) -> np.ndarray:
    """Special values, any bits, moderate numbers, and the neighbours of the borders of EXP2 and TABLE."""
    borders = bits([128, -150, -149, -126, -127, 0.5, 1, 8, 0.00390625, 64, 127.99999, -8, -1, 2.0 ** -27])
    near = np.concatenate([borders + np.uint32(k) for k in range(3)] + [borders - np.uint32(1)])
    moderate = bits(rng.uniform(-160, 140, 400))
    return np.concatenate([special_values(), near, moderate, rng.integers(0, 1 << 32, 400, dtype=np.uint32)])


@pytest.mark.parametrize("kind, segments, domain", [
    *((kind, 6, 0) for kind in FunctionKind if kind is not FunctionKind.TABLE),
    *((FunctionKind.TABLE, *shape) for shape in ((9, 3), (6, -8), (10, 7), (7, 0))),
])
def test_functions(tables, kind, segments, domain):
    words = operands(np.random.default_rng(SEED))
    got = tables.evaluate(kind, floats(words), segments, domain, lo=-0.25, hi=2.5)
    lo, hi = bits([-0.25, 2.5]).tolist()
    for word, result in zip(words.tolist(), got.tolist(), strict=True):
        expected = reference_function(tables, kind, word, segments, domain, lo, hi)
        assert f"{result:#010x}" == f"{expected:#010x}", f"{kind.name}({word:#010x})"


@pytest.mark.parametrize("kind, function, low, high", [
    (FunctionKind.EXP2, np.exp2, -126, 128),
    (FunctionKind.RECIP, lambda x: 1 / x, 2.0 ** -120, 2.0 ** 120),
    (FunctionKind.RSQRT, lambda x: 1 / np.sqrt(x), 2.0 ** -120, 2.0 ** 120),
])
def test_functions_within_two_ulp(tables, kind, function, low, high):
    """Judged by double precision: the definition is of the functions it is named after."""
    rng = np.random.default_rng(SEED)
    if low < 0:
        x = rng.uniform(low, high, 100_000).astype(np.float32)
    else:
        x = np.exp2(rng.uniform(np.log2(low), np.log2(high), 100_000)).astype(np.float32)
    got = tables.evaluate(kind, x).view(np.float32).astype(np.float64)
    true = function(x.astype(np.float64))
    ulp = np.exp2(np.floor(np.log2(true)) - 23)
    assert np.max(np.abs(got - true) / ulp) <= 2.0


def test_kv_scale_is_the_exponent_of_a_kv_block(tables):
    """SCALE and an 8-bit block of one value agree on the exponent."""
    rng = np.random.default_rng(SEED)
    words = np.concatenate([special_values(), rng.integers(0, 1 << 32, 500, np.uint32)])
    scales = tables.evaluate(FunctionKind.SCALE, floats(words)).view(np.float32)
    for word, scale in zip(words.tolist(), scales, strict=True):
        assert numerics.power_exponent(scale) == numerics.quantize_kv(floats([word] * 32))[1], hex(word)


# Reductions


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 9, 64])
@pytest.mark.parametrize("tiles", [1, 2, 4, 16])
def test_reduce_sum_has_one_order(count, tiles):
    words = np.random.default_rng([SEED, count, tiles]).standard_normal((count, tiles)).astype(np.float32)
    level = words
    while level.shape[1] > 1:
        level = level[:, 0::2] + level[:, 1::2]
    partial = [np.float32(-0.0)] * 4
    for w in range(count):
        partial[w % 4] = partial[w % 4] + level[w, 0]
    expected = (partial[0] + partial[1]) + (partial[2] + partial[3])
    assert np.float32(numerics.reduce_sum(words)) == expected


def test_reduce_sum_keeps_the_sign_of_zero():
    assert bits(numerics.reduce_sum(np.full((5, 2), -0.0, np.float32))) == 0x8000_0000


@pytest.mark.parametrize("words, maximum, index", [
    ([[1, 3], [3, 2]], 3, 1),                      # a tie goes to the lower index
    ([[-0.0, 0.0], [0.0, -0.0]], 0, 1),            # +0 is above -0
    ([[-1, -2], [-0.5, -0.25]], -0.25, 3),
    ([[np.nan, -np.nan], [-np.inf, -5]], -5, 3),   # NaN of either sign never wins
    ([[np.nan, np.nan], [np.nan, np.nan]], -np.inf, 0),
    ([[np.nan, np.inf], [np.inf, np.nan]], np.inf, 1),
    ([[1e-45, 0], [0, 1e-45]], 1e-45, 0),
])
def test_maximum(words, maximum, index):
    words = np.array(words, np.float32)
    best, where = numerics.reduce_argmax(words)
    assert (int(bits(best)), where) == (int(bits(maximum)), index)
    assert bits(numerics.reduce_max(words)) == bits(maximum)


def test_order_key_orders_numbers_as_they_are():
    values = np.unique(floats([w for w in special_values() if w & 0x7FFF_FFFF <= INFINITY]))
    keys = [numerics.order_key(v) for v in values]
    assert all(below < above for below, above in pairwise(keys))
    assert numerics.order_key(np.float32(-0.0)) < numerics.order_key(np.float32(0.0))
