"""The quantizer equals its definition: number of lanes, widths, own and given exponents, with pauses."""

import numpy as np
import pytest
import softfloatpy

from hw import latency
from hw.quantizer import Quantizer
from sim import numerics
from tests.exact import VECTORS
from tests.rtlbatch import Unit

pytestmark = pytest.mark.rtl

BLOCKS = 3000
SIZES = [(2, 8), (16, 9), (32, 9)]
"""(tiles, bits)"""


@pytest.fixture(scope="module", params=SIZES, ids=lambda p: f"{p[0]} tiles, {p[1]} bits")
def unit(request):
    tiles, bits = request.param
    return Unit(Quantizer(tiles=tiles, bits=bits), f"quantizer_{tiles}_{bits}"), tiles, bits


def blocks(rng, count):
    """fp32 words (count, 32): ordinary, wide-ranging, tied, tiny, zero, arbitrary and non-finite blocks."""
    x = (rng.standard_normal((count, 32)) * 2.0 ** rng.uniform(-40, 40, (count, 1))).astype(np.float32)
    style = rng.integers(0, 8, count)

    def some(n):
        return (int((style == n).sum()), 32)
    x[style == 1] *= (2.0 ** rng.integers(-30, 1, some(1))).astype(np.float32)
    # Multiples of half a step, so that every rounding is a tie or exact.
    x[style == 2] = rng.integers(-1024, 1024, some(2)) * 2.0 ** rng.integers(-32, 28, (some(2)[0], 1))
    bits = x.view(np.uint32)
    bits[style == 3] = rng.integers(0, 1 << 23, some(3)) | rng.integers(0, 2, some(3)) << 31
    bits[style == 4] = rng.integers(0, 1 << 32, some(4), dtype=np.uint64)
    bits[style == 5] = rng.integers(0, 2, some(5)) << 31
    special = rng.choice([0x7F800000, 0xFF800000, 0x7FC00000, 0xFFFFFFFF, 0x7F7FFFFF, 1, 0], some(6))
    bits[style == 6] = np.where(rng.integers(0, 6, some(6)) == 0, special, bits[style == 6])
    # Just below a power of two: rounding reaches the clamp.
    fields = rng.integers(100, 150, (some(7)[0], 1))
    bits[style == 7] = (fields << 23 | 0x7FFFFF) - rng.integers(0, 1 << 17, some(7))
    return bits


def expected(x, bits, narrow, given, scale):
    lowest, highest = numerics.KV_RANGE if narrow else numerics.OPERAND_RANGE
    width = 8 if narrow else bits
    x = x.view(np.float32)
    if given:
        e = numerics.power_exponent(np.uint32(scale).view(np.float32))
        return numerics.quantize_given(x, np.int64(e), width)
    return numerics.quantize_block(x, width, lowest, highest)


def run(unit, tiles, x, narrow, given, scale, address, gaps):
    """Blocks (n, 32) in, each word followed by a pause of `gaps` (n, words) cycles; blocks out."""
    words = 32 // tiles
    at = np.cumsum(1 + gaps.ravel()) - 1 - gaps.ravel()
    length = int(at[-1]) + 2 + latency.QUANTIZE
    rng = np.random.default_rng(0)
    inputs = {f"x__{lane}": rng.integers(0, 1 << 32, length, dtype=np.uint64) for lane in range(tiles)}
    for lane in range(tiles):
        inputs[f"x__{lane}"][at] = x.reshape(-1, tiles)[:, lane]
    valid = np.zeros(length, np.int64)
    valid[at] = 1
    facts = {"narrow": narrow, "given": given, "scale": scale, "address": address}
    for name, values in facts.items():
        inputs[name] = rng.integers(0, 2, length)
        inputs[name][at] = np.repeat(values, words)
    out = unit.cycles(valid=valid, **inputs)
    # Row n is what stands after edge n, the first edge of a latency.
    last = at[words - 1::words] + latency.QUANTIZE - 1
    wanted = np.zeros(length, np.uint32)
    wanted[last] = 1
    np.testing.assert_array_equal(out["o_valid"], wanted)
    assert not out["nonfinite"][wanted == 0].any()
    return {name: column[last] for name, column in out.items()}


@pytest.mark.parametrize("paused", [False, True])
def test_equals_definition(unit, paused):
    unit, tiles, bits = unit
    rng = np.random.default_rng(tiles + paused)
    x = blocks(rng, BLOCKS)
    narrow, given = rng.integers(0, 2, (2, BLOCKS))
    near = (x.max(axis=1) >> 23 & 255) - rng.integers(0, 12, BLOCKS)
    scale = np.where(rng.integers(0, 4, BLOCKS), np.clip(near, 1, 254), rng.integers(25, 218, BLOCKS)) << 23
    address = rng.integers(0, 1 << 12, BLOCKS)
    gaps = rng.integers(0, 3, (BLOCKS, 32 // tiles)) * paused
    out = run(unit, tiles, x, narrow, given, scale, address, gaps)
    np.testing.assert_array_equal(out["o_address"], address)
    got = np.stack([out[f"o_q__{j}"] for j in range(32)], axis=1)
    for n in range(BLOCKS):
        q, e, total, nonfinite = expected(x[n], bits, narrow[n], given[n], scale[n])
        context = (f"block {n}: narrow={narrow[n]} given={given[n]} scale={scale[n]:#x} "
                   f"x={[hex(v) for v in x[n]]}")
        np.testing.assert_array_equal(got[n], q, err_msg=context)
        assert (out["o_e"][n], out["o_sum"][n], bool(out["nonfinite"][n])) == (e, total, nonfinite), context


def test_first_word_drops_an_unfinished_block(unit):
    unit, tiles, bits = unit
    x = blocks(np.random.default_rng(3), 1)[0]
    words = 32 // tiles
    lanes = np.concatenate([np.full((words - 1, tiles), 0x7F000000, np.uint32), x.reshape(words, tiles)])
    first = np.zeros(len(lanes) + latency.QUANTIZE, np.int64)
    first[[0, words - 1]] = 1
    valid = np.arange(len(first)) < len(lanes)
    padded = np.concatenate([lanes, np.zeros((latency.QUANTIZE, tiles), np.uint32)])
    out = unit.cycles(valid=valid, first=first, **{f"x__{lane}": padded[:, lane] for lane in range(tiles)})
    assert out["o_valid"].nonzero()[0].tolist() == [len(lanes) - 1 + latency.QUANTIZE - 1]
    q, e, total, _ = expected(x, bits, 0, 0, 0)
    at = len(lanes) + latency.QUANTIZE - 2
    assert [out[f"o_q__{j}"][at] for j in range(32)] == q.tolist()
    assert (out["o_e"][at], out["o_sum"][at]) == (e, total)


def softfloat_integers(x, e, limit):
    """fp32 words to the nearest integers times 2^e, in SoftFloat's operations and a clamp."""
    powers = {n: softfloatpy.Float64.from_float(2.0 ** -n) for n in range(-127, 128)}
    most, least = (softfloatpy.Float64.from_float(float(n)) for n in (limit, -limit))
    raw, q = x.astype(">u4").tobytes(), np.zeros(x.size, np.int64)
    for n, power in enumerate(e.tolist()):
        word = softfloatpy.Float32.from_bytes(raw[4 * n:4 * n + 4])
        value = softfloatpy.f64_mul(softfloatpy.f32_to_f64(word), powers[power])
        if softfloatpy.f64_lt(most, value):
            q[n] = limit
        elif softfloatpy.f64_lt(value, least):
            q[n] = -limit
        elif not softfloatpy.f64_is_nan(value):
            q[n] = softfloatpy.f64_to_i32(value).to_int()
    return q


def test_integers_as_softfloat_has_them(unit):
    """fp32 to integers, judged outside the project, under exponents of the unit's own choice."""
    unit, tiles, bits = unit
    rng, count = np.random.default_rng(11), VECTORS // 32 // len(SIZES)
    x = blocks(rng, count)
    narrow, zeros = rng.integers(0, 2, count), np.zeros(count, np.int64)
    out = run(unit, tiles, x, narrow, zeros, zeros, zeros, np.zeros((count, 32 // tiles), np.int64))
    got = np.stack([out[f"o_q__{j}"] for j in range(32)], axis=1)
    for width, chosen in ((8, narrow == 1), (bits, narrow == 0)):
        e = np.repeat(out["o_e"][chosen], 32)
        wanted = softfloat_integers(x[chosen].ravel(), e, (1 << width - 1) - 1)
        np.testing.assert_array_equal(got[chosen].ravel(), wanted)
