"""The dot unit equals its definition on every row format, for ordinary, extreme and special scales."""

import numpy as np
import pytest
import softfloatpy
from numba import njit

from hw.dot import DotUnit
from hw.isa import RowFormat
from sim import numerics
from tests.exact import VECTORS, canonical_bits
from tests.rtlbatch import Unit

pytestmark = pytest.mark.rtl

E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12])
"""OCP MX specification, section 5.3.3, doubled."""

COUNT = 60_000


@pytest.fixture(scope="module", params=[True, False], ids=["packed", "split"])
def unit(request):
    return Unit(DotUnit(packed=request.param), "dot")


def operands(rng, count):
    """(q, e, sum): full-range, small, sparse and extreme blocks."""
    q = rng.integers(-255, 256, (count, 32))
    style = rng.integers(0, 5, count)
    q[style == 1] >>= 6
    q[style == 2] *= rng.integers(0, 12, q[style == 2].shape) == 0
    q[style == 3] = np.where(rng.integers(0, 2, (np.sum(style == 3), 1)), 255, -255)
    q[rng.integers(0, 50, count) == 0] = 0
    e = np.where(style == 4, rng.choice([-102, 90, -101, 89], count), rng.integers(-102, 91, count))
    return q, e, q.sum(axis=1)


def halves(rng, count):
    """fp16 words: ordinary scales, any bits at all, subnormals, powers of two, zeros, infinities and NaN."""
    ordinary = (rng.standard_normal(count) * 2.0 ** rng.uniform(-12, 2, count)).astype(np.float16)
    choices = [
        ordinary.view(np.uint16),
        rng.integers(0, 1 << 16, count),
        rng.integers(0, 1 << 10, count) | rng.integers(0, 2, count) << 15,
        rng.integers(0, 31, count) << 10,
        rng.choice([0, 0x8000, 0x7C00, 0xFC00, 0x7E01, 0x7BFF, 0xFBFF, 1], count),
    ]
    return np.choose(rng.choice(5, count, p=[0.5, 0.2, 0.1, 0.1, 0.1]), choices).astype(np.int64)


def decode(row, row_format):
    """Integer elements of rows (n, 8) uint32, as int64 (n, 1 or 2, 32)."""
    raw = np.ascontiguousarray(row).view(np.uint8)
    if row_format == RowFormat.Q8:
        return raw.view(np.int8).astype(np.int64)[:, None]
    nibbles = np.stack([raw & 15, raw >> 4], axis=2).reshape(-1, 2, 32).astype(np.int64)
    return nibbles if row_format == RowFormat.Q4 else E2M1[nibbles]


@njit
def terms(s, x, d, m, e):
    out = np.empty(s.size, np.float32)
    for i in range(s.size):
        out[i] = numerics.dot_term(s[i], x[i], d[i], m[i], e[i])
    return out


@pytest.mark.parametrize("row_format", list(RowFormat))
def test_equals_definition(unit, row_format):
    rng = np.random.default_rng(int(row_format))
    q, e, total = operands(rng, COUNT)
    row = rng.integers(0, 1 << 32, (COUNT, 8), dtype=np.uint64).astype(np.uint32)
    row[rng.integers(0, 30, COUNT) == 0] = 0
    row[rng.integers(0, 30, COUNT) == 0] = 0x80808080
    side = np.stack([halves(rng, COUNT) for _ in range(4)], axis=1)
    words = side.astype(np.uint64)
    inputs = {f"q__{i}": q[:, i] for i in range(32)}
    out = unit.run(row=row, side=words[:, 0] | words[:, 1] << 16 | words[:, 2] << 32 | words[:, 3] << 48,
                   format=int(row_format), e=e, sum=total, **inputs)
    weights = decode(row, row_format)
    for k in range(weights.shape[1]):
        s = (weights[:, k] * q).sum(axis=1)
        wanted = terms(s, total, side[:, 2 * k], side[:, 2 * k + 1], e).view(np.uint32)
        np.testing.assert_array_equal(out[f"term{k}"], wanted, err_msg=f"term{k}")


def test_cancelling_and_tied_sums(unit):
    """d*S and m*X of opposite signs, and products of 25 to 31 bits whose rounding is a tie."""
    rng = np.random.default_rng(5)
    q, e, total = operands(rng, COUNT)
    row = np.repeat(rng.integers(0, 256, (COUNT, 1)).astype(np.uint32) * np.uint32(0x01010101), 8, axis=1)
    weight = decode(row, RowFormat.Q8)[:, 0]
    d = halves(rng, COUNT)
    d = np.where(rng.integers(0, 2, COUNT), d & 0xFF00, d)
    # m = -w*d cancels exactly when it is representable, and nearly otherwise.
    with np.errstate(over="ignore", invalid="ignore"):
        value = -d.astype(np.uint16).view(np.float16).astype(np.float64) * weight[:, 0]
        m = value.astype(np.float16).view(np.uint16).astype(np.int64)
    inputs = {f"q__{i}": q[:, i] for i in range(32)}
    out = unit.run(row=row, side=d | m << 16, format=0, e=e, sum=total, **inputs)
    s = (weight * q).sum(axis=1)
    wanted = terms(s, total, d, m, e)
    assert (wanted == 0).sum() > COUNT // 10
    np.testing.assert_array_equal(out["term0"], wanted.view(np.uint32))


def test_format_may_change_every_cycle(unit):
    rng = np.random.default_rng(6)
    q, e, total = operands(rng, COUNT)
    row = rng.integers(0, 1 << 32, (COUNT, 8), dtype=np.uint64).astype(np.uint32)
    d, m = halves(rng, COUNT), halves(rng, COUNT)
    row_format = rng.integers(0, 3, COUNT)
    s = np.choose(row_format, [(decode(row, f)[:, 0] * q).sum(axis=1) for f in RowFormat])
    inputs = {f"q__{i}": q[:, i] for i in range(32)}
    out = unit.run(row=row, side=d | m << 16, format=row_format, e=e, sum=total, **inputs)
    np.testing.assert_array_equal(out["term0"], terms(s, total, d, m, e).view(np.uint32))


def softfloat_terms(s, x, d, m, e):
    """`sim.numerics.dot_term` in SoftFloat's operations; their order is the definition's."""
    halves_of = [softfloatpy.f16_to_f32(softfloatpy.Float16.from_bytes(bits.to_bytes(2))) for bits in range(1 << 16)]
    powers = {n: softfloatpy.Float64.from_float(2.0 ** n).to_f32() for n in range(-102, 91)}

    def scaled(integer, half, power):
        number = softfloatpy.i32_to_f32(softfloatpy.Int32.from_int(integer))
        return softfloatpy.f32_mul(softfloatpy.f32_mul(number, halves_of[half]), power)

    return canonical_bits(softfloatpy.f32_add(scaled(a, b, powers[n]), scaled(c, f, powers[n]))
                          for a, b, c, f, n in zip(*(v.tolist() for v in (s, d, x, m, e)), strict=True))


def ties(s, d):
    """How many products of integers and fp16 words lie in the middle between two fp32 numbers."""
    fraction = np.where(d >> 10 & 31, d & 0x3FF | 0x400, d & 0x3FF)
    product = np.abs(s) * fraction
    dropped = np.frexp(product.astype(np.float64))[1].astype(np.int64) - 24   # exact: below 2^32
    rest = product & ((1 << np.maximum(dropped, 0)) - 1)
    return int(np.sum((dropped > 0) & (rest == 1 << np.maximum(dropped - 1, 0))))


def test_scale_and_round_as_softfloat_has_them():
    """fp16 and integers to fp32, both scalings and their sum, judged outside the project; all formats, both rows."""
    unit, rng, tied = Unit(DotUnit(), "dot"), np.random.default_rng(8), 0
    for start in range(0, VECTORS, COUNT):
        count = min(COUNT, VECTORS - start)
        q, e, total = operands(rng, count)
        row = rng.integers(0, 1 << 32, (count, 8), dtype=np.uint64).astype(np.uint32)
        # Few weights, so that sums have few bits and products many zeros behind them.
        row[rng.integers(0, 2, count) == 0, 1:] = 0
        row_format, second = rng.integers(0, 3, count), rng.integers(0, 2, count)
        second[row_format == RowFormat.Q8] = 0
        side = np.stack([halves(rng, count) for _ in range(4)], axis=1)
        words = side.astype(np.uint64)
        out = unit.run(row=row, side=words[:, 0] | words[:, 1] << 16 | words[:, 2] << 32 | words[:, 3] << 48,
                       format=row_format, e=e, sum=total, **{f"q__{i}": q[:, i] for i in range(32)})
        lines = np.arange(count)
        s = np.choose(row_format, [(decode(row, f)[lines, second * (f != RowFormat.Q8)] * q).sum(axis=1)
                                   for f in RowFormat])
        d, m = side[lines, 2 * second], side[lines, 2 * second + 1]
        tied += ties(s, d) + ties(total, m)
        np.testing.assert_array_equal(np.where(second, out["term1"], out["term0"]), softfloat_terms(s, total, d, m, e))
    assert tied > VECTORS // 200
