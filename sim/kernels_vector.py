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
from sim.kernels_block import find_key, greatest_key, quantize_at, segment_sums, sum_lanes
from sim.kernels_check import PASS_WORDS
from sim.kernels_function import CHUNK, evaluate_buffer
from sim.kernels_move import LANES, move_word
from sim.numerics import KV_RANGE, OPERAND_RANGE, add, canonical, half_to_float, order_key, power_exponent

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

    `partial` float32 (4,) are the running sums and `best` float32 (1,) the running maximum; `place` int64 (2,) holds
    the words summed so far and the index of the maximum. `flags` int64 (1,) counts blocks with a non-finite word.
    `table` int64 (6, CHUNK) and `sums` int32 (T,) are for special functions and for MULTIPLY.
    """

    a: np.ndarray
    e: np.ndarray
    r: np.ndarray
    other: np.ndarray
    partial: np.ndarray
    best: np.ndarray
    place: np.ndarray
    flags: np.ndarray
    table: np.ndarray
    sums: np.ndarray


def buffers(tiles: int) -> Buffers:
    """Fresh working space for a device of so many tiles."""
    a, e, r, other = np.zeros((4, PASS_WORDS * tiles), np.float32)
    return Buffers(a, e, r, other, np.full(4, -0.0, np.float32), np.full(1, -np.inf, np.float32), np.zeros(2, np.int64),
                   np.zeros(1, np.int64), np.zeros((6, CHUNK), np.int64), np.zeros(tiles, np.int32))


@njit
def _load(memory, base, step_o, step_i, o0, outer, inner, out):
    """Words ``base + o*step_o + i*step_i`` of float32 (words, T) for o from o0."""
    tiles = memory.shape[1]
    n = 0
    for o in range(o0, o0 + outer):
        at = base + o * step_o
        if tiles == LANES:
            for _ in range(inner):
                move_word(out, n, memory, at * LANES)
                at += step_i
                n += LANES
        else:
            for _ in range(inner):
                for t in range(tiles):
                    out[n + t] = memory[at, t]
                at += step_i
                n += tiles


@njit
def _fill(out, first, end, value):
    for n in range(first, end):
        out[n] = value


@njit
def _load_scalar(scalars, base, step_o, o0, outer, length, out):
    """Scalar ``base + o*step_o`` for all `length` elements of o."""
    if step_o == 0:
        _fill(out, int64(0), outer * length, scalars[base])
        return
    for o in range(outer):
        _fill(out, o * length, (o + 1) * length, scalars[base + (o0 + o) * step_o])


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


# Each stage that works in place has its own function: where the compiler must fear that two buffers overlap, it makes
# scalar code.


@njit
def _product(a, b, out):
    for n in range(len(out)):
        value = np.float32(a[n] * b[n])
        out[n] = _NAN if value != value else value


@njit
def _square(a, out):
    for n in range(len(out)):
        value = np.float32(a[n] * a[n])
        out[n] = _NAN if value != value else value


@njit
def _clean(a, out):
    """A product with one."""
    for n in range(len(out)):
        value = a[n]
        out[n] = _NAN if value != value else value


@njit
def _add_to(values, c, negate):
    sign = np.float32(-1.0) if negate else np.float32(1.0)
    for n in range(len(values)):
        value = np.float32(values[n] + np.float32(sign * c[n]))
        values[n] = _NAN if value != value else value


@njit
def _absolute(a, out):
    for n in range(len(out)):
        out[n] = abs(a[n])


@njit
def _copy(a, out):
    for n in range(len(out)):
        out[n] = a[n]


@njit
def _function(lanes, index, values, table):
    kind, base, segments, domain, lo, hi = lanes.descriptors[index]
    low, high = np.uint32(lo).view(np.float32), np.uint32(hi).view(np.float32)
    evaluate_buffer(values, kind, base, segments, domain, low, high, lanes.coefficients, table)


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
        step = f[col.V_W_I]
        for _ in range(inner):
            if only >= 0:
                scratch[at, only] = values[n + only]
            elif tiles == LANES:
                move_word(scratch, at * LANES, values, n)
            else:
                for t in range(tiles):
                    scratch[at, t] = values[n + t]
            at += step
            n += tiles


@njit
def _quantize(lanes, f, o0, outer, inner, values, flags):
    blocks = inner * lanes.scratch.shape[1] // BLOCK
    narrow = f[col.V_NARROW] != 0
    bits = int64(8) if narrow else int64(lanes.activation_bits)
    lowest, highest = KV_RANGE if narrow else OPERAND_RANGE
    given = f[col.V_GIVEN] != 0
    n = 0
    for o in range(o0, o0 + outer):
        block = f[col.V_BLOCK] + o * f[col.V_BLOCK_O]
        e = int64(0)
        if given:
            e = power_exponent(lanes.scalars[f[col.V_SCALE] + o * f[col.V_SCALE_O]])
        for _ in range(blocks):
            found, total, nonfinite = quantize_at(values, n, given, e, bits, lowest, highest, lanes.operand_q[block])
            lanes.operand_e[block] = found
            lanes.operand_sum[block] = total
            flags[0] += nonfinite
            block += 1
            n += BLOCK


@njit
def _begin(work):
    work.partial[:] = np.float32(-0.0)
    work.best[0] = -np.inf
    work.place[:] = 0


@njit
def _reduce_sum(lanes, f, work, o0, outer, inner, sums):
    """Sums, from those of the single words."""
    for o in range(outer):
        if f[col.V_REDUCE_INIT] != 0:
            _begin(work)
        work.place[0] = segment_sums(sums, o * inner, inner, work.partial, work.place[0])
        if f[col.V_REDUCE_EMIT] != 0:
            p = work.partial
            lanes.scalars[f[col.V_R_DEST] + (o0 + o) * f[col.V_R_DEST_O]] = add(add(p[0], p[1]), add(p[2], p[3]))


@njit
def _reduce_best(lanes, f, work, o0, outer, inner, values):
    """Maxima and their places; what takes no part is NaN."""
    tiles = lanes.scratch.shape[1]
    length = inner * tiles
    argmax = f[col.V_REDUCE] == _ARGMAX
    for o in range(outer):
        if f[col.V_REDUCE_INIT] != 0:
            _begin(work)
        key = greatest_key(values, o * length, (o + 1) * length)
        if key > order_key(work.best[0]):
            at = find_key(values, o * length, key)
            work.best[0] = values[at]
            work.place[1] = f[col.V_INDEX] * tiles + at - o * length
        if f[col.V_REDUCE_EMIT] != 0:
            at = f[col.V_R_DEST] + (o0 + o) * f[col.V_R_DEST_O] * (2 if argmax else 1)
            lanes.scalars[at] = work.best[0]
            if argmax:
                lanes.scalars[at + 1] = np.uint32(work.place[1]).view(np.float32)


@njit
def _reduce_take(lanes, f, o0, outer, inner, values):
    """Lane 0 of the last words."""
    length = inner * lanes.scratch.shape[1]
    if f[col.V_REDUCE_EMIT] != 0:
        for o in range(outer):
            value = values[(o + 1) * length - lanes.scratch.shape[1]]
            lanes.scalars[f[col.V_R_DEST] + (o0 + o) * f[col.V_R_DEST_O]] = canonical(value)


@njit
def _reduce(lanes, f, work, o0, outer, inner, values, one, two):
    """Reductions of `values`, masked elements already +0; `one` and `two` are free buffers."""
    tiles = lanes.scratch.shape[1]
    kind = f[col.V_REDUCE]
    if f[col.V_ABSOLUTE] != 0:
        _absolute(values, one)
        values, one = one, values
    if f[col.V_MASK] != 0 and kind != _TAKE:
        if f[col.V_ABSOLUTE] == 0:
            _copy(values, one)
            values, one = one, values
        _mask(f, outer, inner, tiles, values, np.float32(-0.0) if kind == _SUM else _NAN)
    if kind == _SUM:
        sum_lanes(values, outer * inner, tiles, one, two)
        # Powers of four have their last level in the second buffer.
        _reduce_sum(lanes, f, work, o0, outer, inner, two if tiles & 0x55 else one)
    elif kind == _TAKE:
        _reduce_take(lanes, f, o0, outer, inner, values)
    else:
        _reduce_best(lanes, f, work, o0, outer, inner, values)


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
        _square(a, e)
    else:
        scalar = f[col.V_P] if b == _B_S else int64(-1)
        _load_other(lanes, f, b == _B_X, b == _B_Y, scalar, f[col.V_P_O], int64(0), o0, outer, inner, other)
        _product(a, other, e)
    if c != _C_ZERO:
        scalar = f[col.V_Q] if c == _C_S else int64(-1)
        _load_other(lanes, f, c == _C_X, c == _C_Y, scalar, f[col.V_Q_O], int64(16), o0, outer, inner, other)
        _add_to(e, other, f[col.V_C_NEGATE] != 0)
    elif f[col.V_C_NEGATE] != 0:
        _fill(other, int64(0), size, np.float32(-0.0))
        _add_to(e, other, True)
    if f[col.V_FUNCTION] != 0:
        _function(lanes, f[col.V_FUNCTION], e, work.table)
    late = e
    if d != _D_ONE:
        late = r
        if d == _D_A:
            _product(e, a, r)
        elif d == _D_E:
            _square(e, r)
        else:
            _load_other(lanes, f, d == _D_X, d == _D_Y, f[col.V_R], f[col.V_R_O], int64(0), o0, outer, inner, other)
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
    if f[col.V_REDUCE] != _NO_REDUCE:
        # Everything is written: all buffers but the chosen one are free.
        chosen = e if f[col.V_REDUCE_EARLY] != 0 else late
        _reduce(lanes, f, work, o0, outer, inner, chosen, a, other)


@njit
def run_vector(lanes, f, work):
    """VECTOR: the resolved fields `f` over the memories `lanes` with the working space `work`."""
    together = max(PASS_WORDS // f[col.V_INNER], 1)
    o0 = int64(0)
    while o0 < f[col.V_OUTER]:
        outer = min(together, f[col.V_OUTER] - o0)
        _pass(lanes, f, work, o0, outer)
        o0 += outer
