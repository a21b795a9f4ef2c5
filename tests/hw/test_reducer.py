"""The reducer equals its definition on segments of every length, with and without pauses, at its latency."""

import numpy as np
import pytest

from hw.isa import Reduce
from hw.latency import reduce_depth
from hw.reducer import Reducer
from sim import numerics
from tests.rtlbatch import Unit

pytestmark = pytest.mark.rtl

SEGMENTS = 4000


@pytest.fixture(scope="module", params=[1, 4, 32], ids=lambda t: f"{t} tiles")
def unit(request):
    return Unit(Reducer(tiles=request.param), f"reducer_{request.param}"), request.param


def lanes(rng, count, tiles):
    """fp32 words (count, tiles): ordinary ones, ties, and zeros, infinities and NaN of both signs."""
    x = (rng.standard_normal((count, tiles)) * 2.0 ** rng.uniform(-20, 20, (count, 1))).astype(np.float32)
    style = rng.integers(0, 12, (count, tiles))
    x = np.where(style == 0, np.float32(rng.integers(-3, 4, (count, tiles))), x)
    bits = x.view(np.uint32)
    bits = np.where(style == 1, rng.choice([0, 0x80000000], (count, tiles)), bits)
    rare = rng.integers(0, 60, (count, tiles)) == 0
    odd = [0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0xFFFFFFFF, 1, 0x80000001]
    bits = np.where(rare, rng.choice(odd, (count, tiles)), bits)
    nothing = rng.integers(0, 10, (count, 1))
    return np.where(nothing == 0, 0xFFC00000, np.where(nothing == 1, 0xFF800000, bits)).astype(np.uint32)


def scalar(x, op, absolute):
    """(value, index) of a segment's words (n, tiles)."""
    if absolute:
        x = x & np.uint32(0x7FFFFFFF)
    if op == Reduce.TAKE:
        return int(np.float32(numerics.canonical(x[-1, 0].view(np.float32))).view(np.uint32)), 0
    if op == Reduce.SUM:
        return int(np.float32(numerics.reduce_sum(x.view(np.float32))).view(np.uint32)), 0
    best, where = numerics.reduce_argmax(x.view(np.float32))
    return int(np.float32(best).view(np.uint32)), int(where)


def run(unit, tiles, segments, gaps, **facts):
    """Words (n, tiles) of segments in a row, `gaps` idle cycles after each word; facts are per word."""
    at = np.cumsum(1 + gaps) - 1 - gaps
    depth = reduce_depth(tiles)
    length = int(at[-1]) + 1 + depth
    rng = np.random.default_rng(0)
    inputs = {f"x__{lane}": rng.integers(0, 1 << 32, length, dtype=np.uint64) for lane in range(tiles)}
    for lane in range(tiles):
        inputs[f"x__{lane}"][at] = segments[:, lane]
    for name, values in facts.items():
        inputs[name] = rng.integers(0, 2, length)
        inputs[name][at] = values
    inputs["valid"] = np.zeros(length, np.int64)
    inputs["valid"][at] = 1
    out = unit.cycles(**inputs)
    wanted = np.zeros(length, np.uint32)
    wanted[at[np.asarray(facts["emit"]) == 1] + depth - 1] = 1
    np.testing.assert_array_equal(out["o_valid"], wanted)
    return {name: column[wanted == 1] for name, column in out.items()}


@pytest.mark.parametrize("paused", [False, True])
def test_equals_definition(unit, paused):
    unit, tiles = unit
    rng = np.random.default_rng(tiles)
    sizes = rng.choice([1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 30], SEGMENTS)
    ends = np.cumsum(sizes)
    words = int(ends[-1])
    x = lanes(rng, words, tiles)
    init, emit, word = np.zeros(words, np.int64), np.zeros(words, np.int64), np.zeros(words, np.int64)
    init[ends - sizes], emit[ends - 1] = 1, 1
    word = np.arange(words) - np.repeat(ends - sizes, sizes)
    op = rng.choice([Reduce.SUM, Reduce.MAX, Reduce.ARGMAX, Reduce.TAKE], SEGMENTS)
    absolute, dest = rng.integers(0, 2, SEGMENTS), rng.integers(0, 64, SEGMENTS)
    out = run(unit, tiles, x, rng.integers(0, 3, words) * paused, init=init, emit=emit, word=word,
              op=np.repeat(op, sizes), absolute=np.repeat(absolute, sizes), dest=np.repeat(dest, sizes))
    np.testing.assert_array_equal(out["o_dest"], dest)
    np.testing.assert_array_equal(out["o_argmax"], op == Reduce.ARGMAX)
    wanted = [scalar(x[end - size:end], o, a)
              for size, end, o, a in zip(sizes, ends, op, absolute, strict=True)]
    np.testing.assert_array_equal(out["o_value"], [value for value, _ in wanted])
    indexed = op == Reduce.ARGMAX
    np.testing.assert_array_equal(out["o_index"][indexed], np.array([index for _, index in wanted])[indexed])


def test_large_word_indices(unit):
    unit, tiles = unit
    x = np.full((3, tiles), 0xBF800000, np.uint32)
    x[1, -1] = 0x3F800000
    word = (1 << 20) - 3 + np.arange(3)
    out = run(unit, tiles, x, np.zeros(3, np.int64), init=[1, 0, 0], emit=[0, 0, 1], op=int(Reduce.ARGMAX),
              absolute=0, word=word, dest=5)
    assert out["o_index"].tolist() == [word[1] * tiles + tiles - 1]


def test_continues_after_a_result(unit):
    """Words without `init` go on where the words before them stopped, whatever came between, and count on."""
    unit, tiles = unit
    rng = np.random.default_rng(11)
    words = 4000
    x = lanes(rng, words, tiles)
    init, emit = (rng.integers(0, 12, words) == 0) * 1, (rng.integers(0, 5, words) == 0) * 1
    init[0] = emit[-1] = 1
    op = rng.choice([Reduce.SUM, Reduce.MAX, Reduce.ARGMAX, Reduce.TAKE], words, p=[0.6, 0.2, 0.1, 0.1])
    word = rng.integers(0, 1 << 20, words)
    out = run(unit, tiles, x, np.zeros(words, np.int64), init=init, emit=emit, op=op, word=word,
              absolute=0, dest=0)
    values, indices = [], []
    for n in range(words):
        if init[n]:
            summed, compared = [], []
        if op[n] == Reduce.SUM:
            summed.append(x[n])
        elif op[n] != Reduce.TAKE:
            compared.append(n)
        if not emit[n]:
            continue
        part = {Reduce.SUM: summed, Reduce.TAKE: [x[n]]}.get(op[n], [x[k] for k in compared])
        value, index = scalar(np.array(part, np.uint32).reshape(-1, tiles), op[n], False)
        values.append(value)
        if op[n] == Reduce.ARGMAX:
            won = value != 0xFF800000
            indices.append(int(word[compared[index // tiles]]) * tiles + index % tiles if won else 0)
    np.testing.assert_array_equal(out["o_value"], values)
    np.testing.assert_array_equal(out["o_index"][out["o_argmax"] == 1], indices)
