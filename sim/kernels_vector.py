"""The vector instruction of the functional model: the lanes, their function unit, quantizer and reductions.

The words of many outer iterations are taken together, and every stage of the lane is one simple loop over them. A
legal program cannot tell, for no instruction reads what it writes at an earlier element. Buffers hold lane t of word n
at ``n*T + t``, which is also the order of elements in operand blocks.

Addresses are in range (`sim.kernels_check`).
"""

from typing import NamedTuple

import numpy as np
from numba import int32, int64, uint32

from hw import columns as col
from hw.config import BLOCK
from hw.isa import A, B, C, D, Reduce, RowFormat
from hw.jit import njit
from sim.kernels_check import PASS_WORDS
from sim.numerics import (
    KV_RANGE,
    OPERAND_RANGE,
    add,
    block_exponent,
    canonical,
    evaluate,
    half_to_float,
    order_key,
    power_exponent,
    quantize_into,
    tree_sum,
)

__all__ = ["Buffers", "Lanes", "buffers", "run_vector"]

_A_ACC, _A_X, _A_Y, _A_S, _A_ELEMENT, _A_WORD = (int(v) for v in A)
_B_ONE, _B_X, _B_Y, _B_S, _B_A, _B_SCALE = (int(v) for v in B)
_C_ZERO, _C_X, _C_Y, _C_S, _C_MINIMUM = (int(v) for v in C)
_D_ONE, _D_X, _D_Y, _D_S, _D_A, _D_E = (int(v) for v in D)
_NO_REDUCE, _SUM, _MAX, _ARGMAX, _TAKE = (int(v) for v in Reduce)
_Q8, _Q4 = int(RowFormat.Q8), int(RowFormat.Q4)

_NAN = np.float32(np.nan)
_DOUBLED_E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)


class Lanes(NamedTuple):
    """The memories that the lanes use; fp32 spaces as float32, tables as int64 (see `sim.state.State`)."""

    scratch: np.ndarray
    accumulators: np.ndarray
    row_buffer: np.ndarray
    scalars: np.ndarray
    operand_q: np.ndarray
    operand_e: np.ndarray
    operand_sum: np.ndarray
    coefficients: np.ndarray
    descriptors: np.ndarray
    activation_bits: int


class Buffers(NamedTuple):
    """Working space: the lane's stages, float32 (words * T,), and the reduction between instructions.

    `partial` float32 (4,) are the running sums and `best` float32 (1,) the running maximum; `place` int64 (2,) holds the
    words summed so far and the index of the maximum. `flags` int64 (1,) counts blocks with a non-finite word.
    """

    a: np.ndarray
    e: np.ndarray
    r: np.ndarray
    other: np.ndarray
    partial: np.ndarray
    best: np.ndarray
    place: np.ndarray
    flags: np.ndarray


def buffers(tiles: int) -> Buffers:
    """Fresh working space for a device of so many tiles."""
    stage = [np.zeros(PASS_WORDS * tiles, np.float32) for _ in range(4)]
    return Buffers(*stage, np.full(4, -0.0, np.float32), np.full(1, -np.inf, np.float32), np.zeros(2, np.int64),
                   np.zeros(1, np.int64))


@njit
def _load(memory, base, step_o, step_i, o0, outer, inner, out):
    """Words ``base + o*step_o + i*step_i`` of float32 (words, T) for o from o0."""
    tiles = memory.shape[1]
    n = 0
    for o in range(o0, o0 + outer):
        at = base + o * step_o
        for _ in range(inner):
            for t in range(tiles):
                out[n + t] = memory[at, t]
            at += step_i
            n += tiles


@njit
def _load_scalar(scalars, base, step_o, o0, outer, length, out):
    """Scalar ``base + o*step_o`` for all `length` elements of o."""
    n = 0
    for o in range(o0, o0 + outer):
        value = scalars[base + o * step_o]
        for k in range(n, n + length):
            out[k] = value
        n += length


@njit
def _load_side(row_buffer, f, shift, o0, outer, inner, out):
    """Half `shift` (0 or 16) of the side word of entry ``z + o*z_o``, as fp32: scale or minimum."""
    tiles = row_buffer.shape[2]
    side = 8 if f[col.V_ROW_FORMAT] == _Q8 else 8 + (f[col.V_HALF_REG] & 1)
    n = 0
    for o in range(o0, o0 + outer):
        entry = f[col.V_Z] + o * f[col.V_Z_O]
        for t in range(tiles):
            out[n + t] = half_to_float((row_buffer[entry, side, t] >> uint32(shift)) & uint32(0xFFFF))
        for k in range(n + tiles, n + inner * tiles):
            out[k] = out[k - tiles]
        n += inner * tiles


@njit
def _load_element(row_buffer, f, o0, outer, inner, out):
    """Integer elements ``i*T + t`` of entry ``z + o*z_o``, as fp32."""
    tiles = row_buffer.shape[2]
    form = f[col.V_ROW_FORMAT]
    half = f[col.V_HALF_REG] & 1
    n = 0
    for o in range(o0, o0 + outer):
        entry = f[col.V_Z] + o * f[col.V_Z_O]
        for i in range(inner):
            for t in range(tiles):
                element = (i * tiles + t) & (BLOCK - 1)
                if form == _Q8:
                    word = row_buffer[entry, element >> 2, t]
                    out[n] = np.float32(int32(uint32(word << uint32(24 - 8 * (element & 3)))) >> int32(24))
                else:
                    word = row_buffer[entry, 4 * half + (element >> 3), t]
                    nibble = int64(word >> uint32(4 * (element & 7))) & 15
                    out[n] = np.float32(nibble) if form == _Q4 else _DOUBLED_E2M1[nibble]
                n += 1


@njit
def _load_word(row_buffer, f, o0, outer, inner, out):
    """Word ``i mod 8`` of entry ``z + o*z_o``."""
    tiles = row_buffer.shape[2]
    n = 0
    for o in range(o0, o0 + outer):
        entry = f[col.V_Z] + o * f[col.V_Z_O]
        for i in range(inner):
            for t in range(tiles):
                out[n] = np.uint32(row_buffer[entry, i & 7, t]).view(np.float32)
                n += 1


@njit
def _load_first(lanes, f, o0, outer, inner, out):
    select = f[col.V_A]
    if select == _A_ACC:
        _load(lanes.accumulators, f[col.V_Z], f[col.V_Z_O], f[col.V_Z_I], o0, outer, inner, out)
    elif select == _A_X:
        _load(lanes.scratch, f[col.V_X], f[col.V_X_O], f[col.V_X_I], o0, outer, inner, out)
    elif select == _A_Y:
        _load(lanes.scratch, f[col.V_Y], f[col.V_Y_O], f[col.V_Y_I], o0, outer, inner, out)
    elif select == _A_S:
        length = inner * lanes.scratch.shape[1]
        _load_scalar(lanes.scalars, f[col.V_P], f[col.V_P_O], o0, outer, length, out)
    elif select == _A_ELEMENT:
        _load_element(lanes.row_buffer, f, o0, outer, inner, out)
    else:
        _load_word(lanes.row_buffer, f, o0, outer, inner, out)


@njit
def _load_other(lanes, f, is_x, is_y, scalar, scalar_o, shift, o0, outer, inner, out):
    """Operand X, operand Y, a scalar (register >= 0), or half `shift` of a row's side word."""
    if is_x:
        _load(lanes.scratch, f[col.V_X], f[col.V_X_O], f[col.V_X_I], o0, outer, inner, out)
    elif is_y:
        _load(lanes.scratch, f[col.V_Y], f[col.V_Y_O], f[col.V_Y_I], o0, outer, inner, out)
    elif scalar >= 0:
        _load_scalar(lanes.scalars, scalar, scalar_o, o0, outer, inner * lanes.scratch.shape[1], out)
    else:
        _load_side(lanes.row_buffer, f, shift, o0, outer, inner, out)


@njit
def _product(a, b, out):
    for n in range(len(out)):
        value = np.float32(a[n] * b[n])
        out[n] = _NAN if value != value else value


@njit
def _clean(a, out):
    """A product with one."""
    for n in range(len(out)):
        out[n] = _NAN if a[n] != a[n] else a[n]


@njit
def _sum(a, c, negate, out):
    sign = np.float32(-1.0) if negate else np.float32(1.0)
    for n in range(len(out)):
        value = np.float32(a[n] + np.float32(sign * c[n]))
        out[n] = _NAN if value != value else value


@njit
def _function(lanes, index, values):
    kind, base, segments, domain, lo, hi = lanes.descriptors[index]
    low, high = np.uint32(lo).view(np.float32), np.uint32(hi).view(np.float32)
    c0, c1, c2 = lanes.coefficients[0], lanes.coefficients[1], lanes.coefficients[2]
    for n in range(len(values)):
        values[n] = evaluate(values[n], kind, base, segments, domain, low, high, c0, c1, c2)


@njit
def _mask(f, outer, inner, tiles, values, excluded):
    """Replace what is at or beyond the length by `excluded`."""
    live = f[col.V_LENGTH_REG] - f[col.V_INDEX] * tiles  # elements of an inner loop that count
    size = inner * tiles
    for o in range(outer):
        for n in range(o * size + max(live, 0), (o + 1) * size):
            values[n] = excluded


@njit
def _write(scratch, f, o0, outer, inner, values):
    tiles = scratch.shape[1]
    only = f[col.V_W_TILE_REG] & (tiles - 1) if f[col.V_W_SINGLE] != 0 else -1
    n = 0
    for o in range(o0, o0 + outer):
        at = f[col.V_W_WORD] + o * f[col.V_W_O]
        for _ in range(inner):
            if only >= 0:
                scratch[at, only] = values[n + only]
            else:
                for t in range(tiles):
                    scratch[at, t] = values[n + t]
            at += f[col.V_W_I]
            n += tiles


@njit
def _quantize(lanes, f, o0, outer, inner, values, flags):
    blocks = inner * lanes.scratch.shape[1] // BLOCK
    narrow = f[col.V_NARROW] != 0
    bits = int64(8) if narrow else int64(lanes.activation_bits)
    lowest, highest = KV_RANGE if narrow else OPERAND_RANGE
    n = 0
    for o in range(o0, o0 + outer):
        block = f[col.V_BLOCK] + o * f[col.V_BLOCK_O]
        for _ in range(blocks):
            x = values[n:n + BLOCK]
            if f[col.V_GIVEN] != 0:
                e = power_exponent(lanes.scalars[f[col.V_SCALE] + o * f[col.V_SCALE_O]])
            else:
                e = block_exponent(x, bits, lowest, highest)
            total, nonfinite = quantize_into(x, e, bits, lanes.operand_q[block])
            lanes.operand_e[block] = e
            lanes.operand_sum[block] = total
            flags[0] += nonfinite
            block += 1
            n += BLOCK


@njit
def _reduce(lanes, f, work, o0, outer, inner, values):
    """Reductions; `values` has what takes no part replaced as `sim.numerics` says (-0 in a sum, NaN in a maximum)."""
    tiles = lanes.scratch.shape[1]
    kind = f[col.V_REDUCE]
    n = 0
    for o in range(o0, o0 + outer):
        if f[col.V_REDUCE_INIT] != 0:
            work.partial[:] = np.float32(-0.0)
            work.best[0] = -np.inf
            work.place[:] = 0
        for i in range(inner):
            word = values[n:n + tiles]
            if kind == _SUM:
                slot = work.place[0] & 3
                work.partial[slot] = add(work.partial[slot], tree_sum(word))
                work.place[0] += 1
            elif kind != _TAKE:
                key = order_key(work.best[0])
                for t in range(tiles):
                    if word[t] == word[t] and order_key(word[t]) > key:
                        key = order_key(word[t])
                        work.best[0] = word[t]
                        work.place[1] = (f[col.V_INDEX] + i) * tiles + t
            n += tiles
        if f[col.V_REDUCE_EMIT] == 0:
            continue
        if kind == _SUM:
            p = work.partial
            lanes.scalars[f[col.V_R_DEST] + o * f[col.V_R_DEST_O]] = add(add(p[0], p[1]), add(p[2], p[3]))
        elif kind == _MAX:
            lanes.scalars[f[col.V_R_DEST] + o * f[col.V_R_DEST_O]] = work.best[0]
        elif kind == _ARGMAX:
            at = f[col.V_R_DEST] + 2 * o * f[col.V_R_DEST_O]
            lanes.scalars[at] = work.best[0]
            lanes.scalars[at + 1] = np.uint32(work.place[1]).view(np.float32)
        else:
            lanes.scalars[f[col.V_R_DEST] + o * f[col.V_R_DEST_O]] = canonical(values[n - tiles])


@njit
def _pass(lanes, f, work, o0, outer):
    """Outer iterations o0 to o0 + outer - 1: all reads, then all writes."""
    tiles = lanes.scratch.shape[1]
    inner = f[col.V_INNER]
    size = outer * inner * tiles
    a, e, r, other = work.a[:size], work.e[:size], work.r[:size], work.other[:size]

    _load_first(lanes, f, o0, outer, inner, a)
    b, c, d = f[col.V_B], f[col.V_C], f[col.V_D]
    if b == _B_ONE:
        _clean(a, e)
    elif b == _B_A:
        _product(a, a, e)
    else:
        _load_other(lanes, f, b == _B_X, b == _B_Y, f[col.V_P] if b == _B_S else -1, f[col.V_P_O], 0, o0, outer,
                    inner, other)
        _product(a, other, e)
    if c != _C_ZERO:
        _load_other(lanes, f, c == _C_X, c == _C_Y, f[col.V_Q] if c == _C_S else -1, f[col.V_Q_O], 16, o0, outer,
                    inner, other)
        _sum(e, other, f[col.V_C_NEGATE] != 0, e)
    elif f[col.V_C_NEGATE] != 0:
        other[:] = np.float32(-0.0)
        _sum(e, other, True, e)
    if f[col.V_FUNCTION] != 0:
        _function(lanes, f[col.V_FUNCTION], e)
    late = e
    if d != _D_ONE:
        late = r
        if d == _D_A:
            _product(e, a, r)
        elif d == _D_E:
            _product(e, e, r)
        else:
            _load_other(lanes, f, d == _D_X, d == _D_Y, f[col.V_R], f[col.V_R_O], 0, o0, outer, inner, other)
            _product(e, other, r)

    masked = f[col.V_MASK] != 0
    if masked:
        _mask(f, outer, inner, tiles, e, np.float32(0.0))
        if d != _D_ONE:
            _mask(f, outer, inner, tiles, r, np.float32(0.0))
    if f[col.V_W] != 0:
        _write(lanes.scratch, f, o0, outer, inner, e if f[col.V_W_EARLY] != 0 else late)
    if f[col.V_QUANTIZE] != 0:
        chosen = e if f[col.V_QUANTIZE_EARLY] != 0 else late
        _quantize(lanes, f, o0, outer, inner, chosen, work.flags)
    kind = f[col.V_REDUCE]
    if kind != _NO_REDUCE:
        chosen = e if f[col.V_REDUCE_EARLY] != 0 else late
        if f[col.V_ABSOLUTE] != 0:
            for n in range(size):
                other[n] = abs(chosen[n])
        else:
            other[:] = chosen
        if masked and kind != _TAKE:
            _mask(f, outer, inner, tiles, other, np.float32(-0.0) if kind == _SUM else _NAN)
        _reduce(lanes, f, work, o0, outer, inner, other)


@njit
def run_vector(lanes, f, work):
    """VECTOR: the resolved fields `f` over the memories `lanes` with the working space `work`."""
    together = max(PASS_WORDS // f[col.V_INNER], 1)
    o0 = 0
    while o0 < f[col.V_OUTER]:
        outer = min(together, f[col.V_OUTER] - o0)
        _pass(lanes, f, work, o0, outer)
        o0 += outer
