"""The functional model's vector loops against the scalar definitions of `sim.numerics`, on all sorts of bits."""

import numpy as np
import pytest

from hw.isa import TABLE_ENTRIES, FunctionKind
from sim import numerics
from sim.kernels_block import LEAST_KEY, find_key, greatest_key, quantize_at, segment_sums, sum_lanes
from sim.kernels_function import CHUNK, evaluate_buffer


def all_sorts(seed: int, size: int) -> np.ndarray:
    """float32: any bits, usual numbers, subnormals, and the edges of the range reductions."""
    random = np.random.default_rng(seed)
    edges = np.array([0, -0.0, np.inf, -np.inf, np.nan, 128, -128, -150, 1, 2, 4, 8, -8, 0.25, 127.99999], np.float32)
    edges = np.concatenate([edges, np.nextafter(edges, np.float32(np.inf)), np.nextafter(edges, np.float32(-np.inf))])
    return np.concatenate([
        random.integers(0, 1 << 32, size, dtype=np.uint32).view(np.float32),
        (random.standard_normal(size) * 40).astype(np.float32),
        random.integers(0, 1 << 24, size).astype(np.uint32).view(np.float32), edges])


@pytest.mark.parametrize("kind", [*FunctionKind, 6])
@pytest.mark.parametrize("segments, domain, base", [(6, 3, 0), (8, 7, 37), (10, -8, 1000)])
def test_special_functions(kind: int, segments: int, domain: int, base: int) -> None:
    random = np.random.default_rng(kind)
    coefficients = np.stack([random.integers(-1 << (bits - 1), 1 << (bits - 1), TABLE_ENTRIES)
                             for bits in (32, 28, 20)])
    lo, hi = np.float32(-0.125), np.uint32(0xFFC0_0001).view(np.float32)
    x = all_sorts(kind, 20_000)
    got = x.copy()
    evaluate_buffer(got, int(kind), base, segments, domain, lo, hi, coefficients, np.zeros((6, CHUNK), np.int64))
    wanted = numerics.evaluate_all(x, int(kind), base, segments, domain, lo, hi, *coefficients)
    wrong = got.view(np.uint32) != wanted.view(np.uint32)
    assert not wrong.any(), (x[wrong][:3], got[wrong][:3], wanted[wrong][:3])


@pytest.mark.parametrize("bits, bounds", [(9, numerics.OPERAND_RANGE), (8, numerics.OPERAND_RANGE),
                                          (8, numerics.KV_RANGE)])
@np.errstate(over="ignore", invalid="ignore")
def test_quantizer(bits: int, bounds: tuple[int, int]) -> None:
    random = np.random.default_rng(bits)
    q = np.zeros(32, np.int16)
    for turn in range(1500):
        # Blocks of one magnitude each, so that the exponent's bounds, ties and clamps all occur.
        x = random.standard_normal(32) * np.exp2(random.integers(-10, 3, 32) + random.integers(-140, 128))
        x = x.astype(np.float32)
        if turn % 3 == 0:
            x = np.round(x / x.max() * 510).astype(np.float32) * np.float32(0.5)
        if turn % 7 == 0:
            x[random.integers(0, 32, 2)] = random.choice(all_sorts(turn, 5), 2)
        if turn % 50 == 0:
            x = np.zeros(32, np.float32) * random.choice([-1, 1], 32).astype(np.float32)
        given, e = turn % 2 == 0, int(random.integers(-127, 129))
        e, total, odd = quantize_at(np.concatenate([np.ones(5, np.float32), x]), 5, given, e, bits, *bounds, q)
        wanted = numerics.quantize_given(x, e, bits) if given else numerics.quantize_block(x, bits, *bounds)
        assert q.tolist() == wanted[0].tolist() and (e, total, odd) == wanted[1:], (turn, x)


@pytest.mark.parametrize("tiles", [1, 2, 4, 8, 16, 32])
def test_sums(tiles: int) -> None:
    random = np.random.default_rng(tiles)
    words = (random.standard_normal((23, tiles)) * np.exp2(random.integers(-30, 30, (23, tiles)))).astype(np.float32)
    for odd in (False, True):
        if odd:
            words[7, tiles // 2] = np.inf
            words[11, 0] = -np.inf
        one, two = np.zeros(words.size, np.float32), np.zeros(words.size, np.float32)
        sum_lanes(words.reshape(-1), len(words), tiles, one, two)
        sums = two if tiles in (1, 4, 16) else one
        assert np.array_equal(sums[:23], [numerics.tree_sum(word) for word in words], equal_nan=True)
        partial = np.full(4, -0.0, np.float32)
        assert segment_sums(sums, 0, 9, partial, 0) == 9
        assert segment_sums(sums, 9, 14, partial, 9) == 23
        total = numerics.add(numerics.add(partial[0], partial[1]), numerics.add(partial[2], partial[3]))
        assert np.float32(total).tobytes() == np.float32(numerics.reduce_sum(words)).tobytes()


def test_keys() -> None:
    x = all_sorts(9, 300)
    keys = np.array([LEAST_KEY if np.isnan(v) else numerics.order_key(v) for v in x])
    for start in range(0, len(x), 37):
        end = min(start + 100, len(x))
        greatest = greatest_key(x, start, end)
        assert greatest == keys[start:end].max()
        assert find_key(x, start, greatest) == start + keys[start:end].argmax()
