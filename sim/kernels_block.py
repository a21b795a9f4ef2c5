"""Block quantisation and reductions over buffers: the bits of `sim.numerics` from loops that become vector code.

A buffer is float32 (words * T,), lane t of word n at ``n*T + t``.
"""

import numpy as np
from numba import int32, int64

from hw.config import BLOCK
from hw.jit import njit
from sim.numerics import canonical

__all__ = ["LEAST_KEY", "find_key", "greatest_key", "quantize_at", "segment_sums", "sum_lanes"]

_INFINITE = 0x7F80_0000
_ROUND = np.float32(3 << 22)  # added and taken away again, leaves a float32 below 2^22 rounded to an integer
_ONE_FIELD = 127

LEAST_KEY = -(1 << 31)
"""Key of a NaN, below all others."""


@njit(inline="always")
def _bits(x):
    return np.float32(x).view(np.int32)


@njit
def _scale_of(e):
    """float32 2^-e, -128 <= -e <= 127, subnormals included."""
    if -e >= -126:
        return np.int32((-e + _ONE_FIELD) << 23).view(np.float32)
    return np.int32(1 << (23 - (e - 126))).view(np.float32)


@njit
def quantize_at(values, n, given, e, bits, lowest, highest, q):
    """Quantize the 32 elements from `n` on into int16 `q`; (exponent, sum of q, whether an element is not finite).

    The exponent is `e` if it is `given`, else the block's own within bounds. As `quantize_given` and `quantize_block`
    of `sim.numerics`, in binary32: scaling by a power of two is exact, but for results below the smallest normal
    number, which round to the integer zero, and above the largest, which are clamped.
    """
    greatest = int32(0)
    for k in range(BLOCK):
        greatest = max(greatest, _bits(values[n + k]) & int32(0x7FFF_FFFF))
    if not given:
        field = int64(greatest) >> 23
        e = int64(min(max(field - _ONE_FIELD - (bits - 2), lowest), highest))
        if field == 0:
            e = int64(lowest) if greatest != 0 else int64(0)
    scale = _scale_of(e)
    limit = np.float32((1 << (bits - 1)) - 1)
    total = int32(0)
    for k in range(BLOCK):
        x = np.float32(values[n + k] * scale)
        x = limit if x > limit else x
        x = -limit if x < -limit else x
        x = np.float32(0) if values[n + k] != values[n + k] else x
        value = np.int32(np.float32(np.float32(x + _ROUND) - _ROUND))
        q[k] = np.int16(value)
        total = int32(total + value)
    return e, int64(total), greatest >= int32(_INFINITE)


@njit
def _halve(source, count, target):
    for k in range(count):
        target[k] = np.float32(source[2 * k] + source[2 * k + 1])


@njit
def sum_lanes(values, words, tiles, one, two):
    """Sum of the lanes of each word, as `tree_sum`: in `one` if T is an odd power of two, else in `two`.

    A NaN stays one in a sum; it is made canonical with the sums of the words.
    """
    if tiles == 1:
        for n in range(words):
            two[n] = values[n]
        return
    # Never onto itself: a level then has no order and is one vector loop.
    count = words * (tiles >> 1)
    _halve(values, count, one)
    while count > words:
        count >>= 1
        _halve(one, count, two)
        one, two = two, one


@njit
def segment_sums(sums, first, words, partial, summed):
    """Add words `first` on to the four running sums; `summed` words are in them already. Returns their new number."""
    for w in range(first, first + words):
        slot = summed & 3
        partial[slot] = np.float32(partial[slot] + sums[w])
        summed += 1
    for slot in range(4):
        partial[slot] = canonical(partial[slot])
    return summed


@njit(inline="always")
def _key(x):
    bits = _bits(x)
    key = bits ^ int32(0x7FFF_FFFF) if bits < 0 else bits
    return int32(LEAST_KEY) if x != x else key


@njit
def greatest_key(values, start, end):
    """Greatest order key (as `order_key`) of the elements `start` to `end` - 1; `LEAST_KEY` if all are NaN."""
    best = int32(LEAST_KEY)
    for n in range(start, end):
        best = max(best, _key(values[n]))
    return best


@njit
def find_key(values, start, key):
    """First element from `start` on with this key."""
    n = start
    while _key(values[n]) != key:
        n += 1
    return n
