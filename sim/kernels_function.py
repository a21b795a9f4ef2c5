"""Special functions over whole buffers: `sim.numerics.evaluate` in loops that become vector code.

Each function here gives the bits of its namesake in `sim.numerics` (a test holds them so). It has three parts: range
reduction of all arguments, the table with its quadratic for all of them, and the results. Arguments that a formula
does not cover are replaced by harmless ones first and answered by selection at the end. A binary64 number has room for
every binary32 one in normalized form, which replaces the search for the leading bit of a subnormal.
"""

import numpy as np

from hw.isa import TABLE_ENTRIES, FunctionKind
from hw.jit import njit
from sim.numerics import FRACTION, KV_RANGE

__all__ = ["CHUNK", "evaluate_buffer"]

_EXP2, _RECIP, _RSQRT = int(FunctionKind.EXP2), int(FunctionKind.RECIP), int(FunctionKind.RSQRT)
_TABLE, _SCALE = int(FunctionKind.TABLE), int(FunctionKind.SCALE)
_NAN, _INFINITY, _ZERO = np.float32(np.nan), np.float32(np.inf), np.float32(0)
_UNIT = float(1 << FRACTION)
_PART = np.int64((1 << FRACTION) - 1)
_EXP2_SEGMENTS, _RECIP_SEGMENTS, _RSQRT_SEGMENTS = 6, 7, 6  # logarithms

CHUNK = 256
"""Elements taken through all three parts together, so that their working space stays in the first-level cache."""


@njit(inline="always")
def _power(e):
    return np.int64(np.int64(e + np.int64(1023)) << np.int64(52)).view(np.float64)


@njit
def _polynomial(u, t, g0, g1, g2, segments, base, c0, c1, c2):
    """`interpolate` of all u, in place; t and g are working space. Bits of u above the fraction count as segments."""
    place = np.int64(FRACTION - segments)
    below, widen = (np.int64(1) << place) - np.int64(1), np.int64(segments - 6)
    for n in range(len(u)):
        t[n] = (u[n] & below) << widen
        u[n] = (base + (u[n] >> place)) & np.int64(TABLE_ENTRIES - 1)
    for n in range(len(u)):
        entry = u[n]
        g0[n], g1[n], g2[n] = c0[entry], c1[entry], c2[entry]
    for n in range(len(u)):
        h = g1[n] + ((g2[n] * t[n] + np.int64(1 << 20)) >> np.int64(21))
        u[n] = g0[n] + ((h * t[n] + np.int64(1 << 20)) >> np.int64(21))


@njit
def _exp2_before(x, u, k):
    for n in range(len(x)):
        a = x[n]
        inside = a if (a >= np.float32(-150)) & (a < np.float32(128)) else _ZERO
        v = np.int64(np.floor(np.float64(inside) * _UNIT))
        u[n] = v & _PART
        k[n] = v >> np.int64(FRACTION)


@njit
def _exp2_after(x, y, k):
    for n in range(len(x)):
        a = x[n]
        result = np.float32(np.float64(y[n]) * _power(k[n] - np.int64(FRACTION)))
        result = _INFINITY if a >= np.float32(128) else result
        result = _ZERO if a < np.float32(-150) else result
        x[n] = _NAN if a != a else result


@njit
def _reciprocal_before(x, u, k):
    for n in range(len(x)):
        a = abs(x[n])
        usual = a if (a > _ZERO) & (a < _INFINITY) else np.float32(1)
        bits = np.float64(usual).view(np.int64)
        u[n] = ((bits >> np.int64(29)) & np.int64(0x7F_FFFF)) << np.int64(4)
        k[n] = (bits >> np.int64(52)) - np.int64(1023)


@njit
def _reciprocal_after(x, y, k):
    for n in range(len(x)):
        a = np.float32(x[n])
        result = np.float32(np.float64(y[n]) * _power(-k[n] - np.int64(FRACTION)))
        result = _INFINITY if a == _ZERO else result
        result = _ZERO if abs(a) == _INFINITY else result
        # The sign is that of the argument, as a bit: minus zero has one, too.
        result = -result if a.view(np.int32) < 0 else result
        x[n] = _NAN if a != a else result


@njit
def _root_before(x, u, k):
    for n in range(len(x)):
        a = x[n]
        usual = a if (a > _ZERO) & (a < _INFINITY) else np.float32(1)
        bits = np.float64(usual).view(np.int64)
        power = (bits >> np.int64(52)) - np.int64(1023)
        # An odd power has the second 64 segments.
        u[n] = (((bits >> np.int64(29)) & np.int64(0x7F_FFFF)) << np.int64(4)) | ((power & np.int64(1)) << FRACTION)
        k[n] = power >> np.int64(1)


@njit
def _root_after(x, y, k):
    for n in range(len(x)):
        a = np.float32(x[n])
        result = np.float32(np.float64(y[n]) * _power(-k[n] - np.int64(FRACTION)))
        of_zero = -_INFINITY if a.view(np.int32) < 0 else _INFINITY
        result = of_zero if a == _ZERO else result
        result = _ZERO if a == _INFINITY else result
        x[n] = _NAN if (a != a) | (a < _ZERO) else result


@njit
def _table_before(x, u, domain):
    end = np.float32(_power(domain))
    scale = _power(np.int64(26) - domain)
    for n in range(len(x)):
        a = x[n]
        inside = a if (a >= -end) & (a < end) else _ZERO
        u[n] = np.int64(np.floor(np.float64(inside) * scale)) + np.int64(1 << 26)


@njit
def _table_after(x, y, domain, lo, hi):
    end = np.float32(_power(domain))
    for n in range(len(x)):
        a = x[n]
        result = np.float32(np.float64(y[n]) * (1 / _UNIT))
        result = lo if a < -end else result
        result = hi if a >= end else result
        x[n] = _NAN if a != a else result


@njit
def _scale(values):
    lowest, highest = np.int64(KV_RANGE[0]), np.int64(KV_RANGE[1])
    for n in range(len(values)):
        magnitude = np.int64(np.float32(values[n]).view(np.int32)) & np.int64(0x7FFF_FFFF)
        e = (magnitude >> np.int64(23)) - np.int64(127 + 6)
        e = lowest if e < lowest else e
        e = highest if e > highest else e
        values[n] = np.float32(1) if magnitude == 0 else np.float32(_power(e))


@njit
def evaluate_buffer(values, kind, base, segments, domain, lo, hi, coefficients, work):
    """Replace float32 `values` by their special function; arguments as in `sim.numerics.evaluate`, with the
    coefficient memory int64 (3, 1024) and working space int64 (6, CHUNK)."""
    if kind == _SCALE:
        _scale(values)
        return
    if kind != _EXP2 and kind != _RECIP and kind != _RSQRT and kind != _TABLE:
        for n in range(len(values)):
            value = values[n]
            values[n] = _NAN if value != value else value
        return
    c0, c1, c2 = coefficients[0], coefficients[1], coefficients[2]
    for start in range(0, len(values), CHUNK):
        x = values[start:min(start + CHUNK, len(values))]
        u, k, t, g0, g1, g2 = (work[0, :len(x)], work[1, :len(x)], work[2, :len(x)], work[3, :len(x)],
                               work[4, :len(x)], work[5, :len(x)])
        if kind == _EXP2:
            _exp2_before(x, u, k)
            _polynomial(u, t, g0, g1, g2, np.int64(_EXP2_SEGMENTS), base, c0, c1, c2)
            _exp2_after(x, u, k)
        elif kind == _RECIP:
            _reciprocal_before(x, u, k)
            _polynomial(u, t, g0, g1, g2, np.int64(_RECIP_SEGMENTS), base, c0, c1, c2)
            _reciprocal_after(x, u, k)
        elif kind == _RSQRT:
            _root_before(x, u, k)
            _polynomial(u, t, g0, g1, g2, np.int64(_RSQRT_SEGMENTS), base, c0, c1, c2)
            _root_after(x, u, k)
        else:
            _table_before(x, u, domain)
            _polynomial(u, t, g0, g1, g2, segments, base, c0, c1, c2)
            _table_after(x, u, domain, lo, hi)
