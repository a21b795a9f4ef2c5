"""The machine's arithmetic, one scalar function an operation: the definition that hardware is held to.

Floats are binary32 (numba `float32`), rounded to nearest even, subnormals kept, every NaN result
`CANONICAL_NAN`. Integers are exact. What looks like double precision below is exact too: an integer of at
most 53 bits times a power of two is a binary64 number, and converting it to binary32 is the one rounding that
is meant.

The functions are compiled by numba and call each other; `elementwise` makes a NumPy ufunc of one.
"""

import functools
from typing import Any

import numba
import numpy as np
from numba import njit

from hw.isa import TABLE_ENTRIES, FunctionKind

__all__ = [
    "CANONICAL_NAN", "FRACTION", "KV_RANGE", "OPERAND_RANGE", "add", "block_exponent", "canonical",
    "dot_term", "elementwise", "evaluate", "evaluate_all", "float_bits", "float_of_bits",
    "float_to_half_pow2", "half_to_float", "interpolate", "multiply", "order_key", "pow2_to_half",
    "power_exponent", "quantize_block", "quantize_given", "quantize_into", "quantize_kv",
    "quantize_operand", "reduce_argmax", "reduce_max", "reduce_sum", "round_scaled", "scale_term",
    "tree_sum",
]

CANONICAL_NAN = 0x7FC0_0000
"""Bits of the only NaN the machine makes."""

FRACTION = 27
"""Fraction bits of table coefficients and of what is interpolated from them."""

OPERAND_RANGE = (-102, 90)
"""Exponents of an operand block: S*d*2^e and X*m*2^e are normal numbers for every fp16 d and m, or zero."""

KV_RANGE = (-24, 15)
"""Exponents of an 8-bit block for the KV cache: those for which 2^e is an fp16 number."""

_NAN = np.uint32(CANONICAL_NAN).view(np.float32)
_INFINITY = np.float32(np.inf)

# Numba takes enum members for integers only in part, so the kinds are plain numbers here.
_EXP2, _RECIP, _RSQRT = int(FunctionKind.EXP2), int(FunctionKind.RECIP), int(FunctionKind.RSQRT)
_TABLE, _SCALE = int(FunctionKind.TABLE), int(FunctionKind.SCALE)


@functools.cache
def elementwise(function: Any) -> Any:
    """A NumPy ufunc of one of the scalar functions here; it broadcasts and compiles for what it meets."""
    return numba.vectorize(function.py_func)


# Bits and rounding


@njit(cache=True)
def float_bits(x):
    """int64 with the 32 bits of a float32."""
    return np.int64(np.float32(x).view(np.uint32))


@njit(cache=True)
def float_of_bits(bits):
    """float32 of an integer's low 32 bits."""
    return np.uint32(bits).view(np.float32)


@njit(cache=True)
def canonical(x):
    """x, or the canonical NaN."""
    return _NAN if x != x else np.float32(x)


@njit(cache=True)
def _power(e):
    """float64 2^e, -1022 <= e <= 1023."""
    return np.int64((e + 1023) << 52).view(np.float64)


@njit(cache=True)
def round_scaled(y, k):
    """rne32(y * 2^k) for an integer of at most 53 bits: one rounding, also to subnormal and infinity."""
    return np.float32(np.float64(y) * _power(k))


# Addition and multiplication


@njit(cache=True)
def add(a, b):
    """rne32(a + b)."""
    return canonical(np.float32(a) + np.float32(b))


@njit(cache=True)
def multiply(a, b):
    """rne32(a * b)."""
    return canonical(np.float32(a) * np.float32(b))


# fp16


@njit(cache=True)
def half_to_float(bits):
    """float32 of fp16 bits, exactly; any NaN becomes the canonical one."""
    bits = np.int64(bits)
    sign = (bits >> 15) & 1
    exponent = (bits >> 10) & 31
    fraction = bits & 1023
    if exponent == 31:
        magnitude = _NAN if fraction else _INFINITY
    elif exponent == 0:
        magnitude = round_scaled(fraction, -24)
    else:
        magnitude = round_scaled(fraction + 1024, exponent - 25)
    return -magnitude if sign and magnitude == magnitude else magnitude


@njit(cache=True)
def pow2_to_half(e):
    """fp16 bits of 2^e, -24 <= e <= 15."""
    return np.int64((e + 15) << 10 if e >= -14 else 1 << (e + 24))


@njit(cache=True)
def float_to_half_pow2(x):
    """fp16 bits of a float32 that is a power of two from 2^-24 to 2^15."""
    return pow2_to_half(power_exponent(x))


@njit(cache=True)
def power_exponent(x):
    """e of a normal float32 that is 2^e; of any other, its exponent field less 127."""
    return ((float_bits(x) >> 23) & 255) - 127


# Dot product


@njit(cache=True)
def scale_term(s, d, e):
    """rne32(S * d) * 2^e of an integer of at most 21 bits, fp16 bits and a block exponent; exact but for the
    one rounding.

    An integer zero is +0, so that 0 * -d is -0. Infinite and NaN d follow IEEE 754: 0 * inf is NaN.
    """
    return multiply(np.float32(np.float64(s) * np.float64(half_to_float(d))), np.float32(_power(e)))


@njit(cache=True)
def dot_term(s, x, d, m, e):
    """rne32(rne32(S*d) * 2^e + rne32(X*m) * 2^e): what one array row adds to an accumulator."""
    return add(scale_term(s, d, e), scale_term(x, m, e))


# Block quantisation


@njit(cache=True)
def block_exponent(x, bits, lowest, highest):
    """Exponent e of a block: floor(log2 amax) - (bits - 2), clamped; 0 if all elements are zero.

    amax is found by exponent field: a subnormal amax gives `lowest`, a NaN or infinity `highest`.
    """
    field = np.int64(0)
    zero = True
    for i in range(x.size):
        b = float_bits(x[i]) & 0x7FFF_FFFF
        field = max(field, b >> 23)
        zero = zero and b == 0
    if zero:
        return np.int64(0)
    if field == 0:
        return np.int64(lowest)
    return np.int64(min(max(field - 127 - (bits - 2), lowest), highest))


@njit(cache=True)
def quantize_into(x, e, bits, q):
    """q[i] = clamp(rne(x[i] * 2^-e)) for float32 x and a given e; returns (sum of q, whether an x is not
    finite).

    The clamp is symmetric, to 2^(bits-1) - 1. An infinity becomes the clamp of its sign, a NaN 0.
    """
    limit = np.int64((1 << (bits - 1)) - 1)
    scale = _power(-e)
    total = np.int64(0)
    nonfinite = False
    for i in range(x.size):
        b = float_bits(x[i]) & 0x7FFF_FFFF
        value = np.int64(0)
        if b >= 0x7F80_0000:
            nonfinite = True
        if b <= 0x7F80_0000:
            # Compared as floats, for the scaled value may be infinite or beyond any integer.
            scaled = np.float64(x[i]) * scale
            value = limit if scaled > limit else -limit if scaled < -limit else np.int64(np.rint(scaled))
        q[i] = value
        total += value
    return total, nonfinite


@njit(cache=True)
def quantize_given(x, e, bits):
    """Block of float32 x at a given exponent: (q int64, e, sum of q, whether an x is not finite)."""
    q = np.empty(x.size, np.int64)
    total, nonfinite = quantize_into(x, e, bits, q)
    return q, np.int64(e), total, nonfinite


@njit(cache=True)
def quantize_block(x, bits, lowest, highest):
    """Block of float32 x at its own exponent, within bounds: as `quantize_given`."""
    return quantize_given(x, block_exponent(x, bits, lowest, highest), bits)


@njit(cache=True)
def quantize_operand(x, bits):
    """Operand block of `activation_bits` bits."""
    return quantize_block(x, bits, OPERAND_RANGE[0], OPERAND_RANGE[1])


@njit(cache=True)
def quantize_kv(x):
    """8-bit block for the KV cache."""
    return quantize_block(x, 8, KV_RANGE[0], KV_RANGE[1])


# Special functions


@njit(cache=True)
def interpolate(u, segments, base, c0, c1, c2):
    """Piecewise quadratic at u, a fraction of 27 bits; int64 with 27 fraction bits.

    `segments` is the log2 of their number, 6 to 10. The coefficients are int64 arrays of `TABLE_ENTRIES`
    entries with 27 fraction bits each (c0 of 32 bits, c1 of 28, c2 of 20, signed), in powers of the position
    t inside the segment, 0 <= t < 1 in 21 bits. Horner, round half up after each product. Addresses wrap at
    the end of the table.
    """
    entry = (base + (u >> (FRACTION - segments))) & (TABLE_ENTRIES - 1)
    t = (u & ((1 << (FRACTION - segments)) - 1)) << (segments - 6)
    h = c1[entry] + ((c2[entry] * t + (1 << 20)) >> 21)
    return c0[entry] + ((h * t + (1 << 20)) >> 21)


@njit(cache=True)
def _normalized(bits):
    """(k, f) of a finite float32 magnitude that is not zero, (1 + f * 2^-23) * 2^k."""
    field, fraction = (bits >> 23) & 255, bits & 0x7F_FFFF
    if field:
        return field - 127, fraction
    k = np.int64(-126)
    while fraction < (1 << 23):
        fraction <<= 1
        k -= 1
    return k, fraction & 0x7F_FFFF


@njit(cache=True)
def _exp2(x, base, c0, c1, c2):
    """2^x: the integer part of x becomes the exponent, the table holds 2^u on [0, 1)."""
    if x >= np.float32(128):
        return _INFINITY
    if x < np.float32(-150):
        return np.float32(0)
    v = np.int64(np.floor(np.float64(x) * _power(FRACTION)))
    i, u = v >> FRACTION, v & ((1 << FRACTION) - 1)
    return round_scaled(interpolate(u, 6, base, c0, c1, c2), i - FRACTION)


@njit(cache=True)
def _reciprocal(x, base, c0, c1, c2):
    """1/x: the table holds 1/(1 + u) on [0, 1), 128 segments."""
    bits = float_bits(x)
    magnitude = bits & 0x7FFF_FFFF
    if magnitude == 0:
        result = _INFINITY
    elif magnitude == 0x7F80_0000:
        result = np.float32(0)
    else:
        k, f = _normalized(magnitude)
        result = round_scaled(interpolate(f << 4, 7, base, c0, c1, c2), -k - FRACTION)
    return -result if bits >> 31 else result


@njit(cache=True)
def _root(x, base, c0, c1, c2):
    """1/sqrt(x): x is (1 + u) * 2^(2j + p); the table holds 1/sqrt((1 + u) * 2^p), 64 segments for each p."""
    if x == 0:
        return -_INFINITY if float_bits(x) >> 31 else _INFINITY
    if x < 0:
        return _NAN
    if x == _INFINITY:
        return np.float32(0)
    k, f = _normalized(float_bits(x))
    return round_scaled(interpolate(f << 4, 6, base + (k & 1) * 64, c0, c1, c2), -(k >> 1) - FRACTION)


@njit(cache=True)
def _table(x, base, segments, domain, lo, hi, c0, c1, c2):
    """A fitted function on [-2^domain, 2^domain), with one constant below and one above."""
    end = np.float32(_power(domain))
    if x < -end:
        return lo
    if x >= end:
        return hi
    v = np.int64(np.floor(np.float64(x) * _power(26 - domain)))
    return round_scaled(interpolate(v + (1 << 26), segments, base, c0, c1, c2), -FRACTION)


@njit(cache=True)
def _scale(x):
    """2^clamp(floor(log2 |x|) - 6, -24, 15), the scale of an 8-bit value next to x; 1 for zero."""
    magnitude = float_bits(x) & 0x7FFF_FFFF
    if magnitude == 0:
        return np.float32(1)
    return np.float32(_power(min(max((magnitude >> 23) - 127 - 6, KV_RANGE[0]), KV_RANGE[1])))


@njit(cache=True)
def evaluate(x, kind, base, segments, domain, lo, hi, c0, c1, c2):
    """Special function of a float32, as its descriptor says (`hw.isa.FUNCTION_FIELDS`).

    `kind` is a `FunctionKind` as an integer, `lo` and `hi` are float32, c0 to c2 the coefficient memory (see
    `interpolate`). `segments`, `domain`, `lo` and `hi` matter to TABLE only. An unknown kind is the identity.
    """
    x = np.float32(x)
    if kind == _SCALE:
        return _scale(x)
    if x != x:
        return _NAN
    if kind == _EXP2:
        return _exp2(x, base, c0, c1, c2)
    if kind == _RECIP:
        return _reciprocal(x, base, c0, c1, c2)
    if kind == _RSQRT:
        return _root(x, base, c0, c1, c2)
    if kind == _TABLE:
        return _table(x, base, segments, domain, np.float32(lo), np.float32(hi), c0, c1, c2)
    return x


@njit(cache=True)
def evaluate_all(x, kind, base, segments, domain, lo, hi, c0, c1, c2):
    """`evaluate` of every element of a one-dimensional float32 array."""
    out = np.empty(x.size, np.float32)
    for i in range(x.size):
        out[i] = evaluate(x[i], kind, base, segments, domain, lo, hi, c0, c1, c2)
    return out


# Reductions. An element that takes no part is given as -0.0 to a sum and as a NaN to a maximum.


@njit(cache=True)
def tree_sum(lanes):
    """Sum of one word, (T,) float32 lanes, T a power of two: neighbours first, then neighbouring pairs."""
    part = lanes.copy()
    count = part.size
    while count > 1:
        count >>= 1
        for i in range(count):
            part[i] = add(part[2 * i], part[2 * i + 1])
    return canonical(part[0])


@njit(cache=True)
def reduce_sum(words):
    """Sum of (words, T) float32: each word over its lanes, words by index mod 4, then the four partials."""
    partial = np.full(4, np.float32(-0.0), np.float32)
    for w in range(words.shape[0]):
        partial[w & 3] = add(partial[w & 3], tree_sum(words[w]))
    return add(add(partial[0], partial[1]), add(partial[2], partial[3]))


@njit(cache=True)
def order_key(x):
    """Integer that grows with a float32 and orders -0 below +0; NaNs lie outside the infinities."""
    bits = float_bits(x)
    return (bits ^ 0x7FFF_FFFF) - (1 << 32) if bits >> 31 else bits


@njit(cache=True)
def reduce_argmax(words):
    """(maximum, element index) of (words, T) float32; element w*T + t is lane t of word w.

    NaN never wins, the lower index wins a tie, +0 is above -0. The maximum begins as -inf at index 0.
    """
    best, where = -_INFINITY, np.int64(0)
    key = order_key(best)
    for w in range(words.shape[0]):
        for t in range(words.shape[1]):
            x = words[w, t]
            if x == x and order_key(x) > key:
                best, key, where = x, order_key(x), np.int64(w * words.shape[1] + t)
    return best, where


@njit(cache=True)
def reduce_max(words):
    """Maximum of (words, T) float32, as in `reduce_argmax`."""
    return reduce_argmax(words)[0]
