"""The matrix instructions of the functional model, portable form: any number of tiles, any processor.

Each function takes the resolved fields `f` (see `hw.sequence`) and the memories it touches, whose addresses
`sim.kernels_check` has found in range. Loops over tiles are innermost, where the compiler makes vectors of them.
"""

import numpy as np
from numba import int32, int64, uint32

from hw import columns as col
from hw.config import BLOCK
from hw.isa import RowFormat
from hw.jit import njit
from sim.numerics import KV_RANGE, OPERAND_RANGE, half_to_float, pow2_to_half

__all__ = ["POWERS", "canonical_accumulators", "fetch", "multiply_rows", "store_column", "store_row"]

POWERS = np.ldexp(1.0, np.arange(-128, 128)).astype(np.float32)
"""2^e at index e + 128."""

_LOWEST, _HIGHEST = KV_RANGE
assert OPERAND_RANGE[0] >= -128 and OPERAND_RANGE[1] < 128  # POWERS covers every operand's exponent

_Q8, _Q4 = int(RowFormat.Q8), int(RowFormat.Q4)
_NAN = np.float32(np.nan)
_HALVES = 0x3C00  # fp16 1.0

_DOUBLED_E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int32)


@njit
def _dot_q8(row, q, sums):
    """Integer dot products of one q8 row, uint32 (10, T), into int32 (T,)."""
    sums[:] = 0
    for k in range(8):
        for n in range(4):
            factor = int32(q[4 * k + n])
            shift = uint32(24 - 8 * n)
            for t in range(len(sums)):
                w = int32(uint32(row[k, t] << shift)) >> int32(24)
                sums[t] = int32(sums[t] + int32(w * factor))


@njit
def _dot_nibbles(row, half, values, q, sums):
    """Integer dot products of one half of a two-row format; `values` int32 (16,) are those of the nibbles."""
    sums[:] = 0
    for k in range(4):
        for n in range(8):
            factor = int32(q[8 * k + n])
            shift = uint32(4 * n)
            for t in range(len(sums)):
                w = values[int32(row[4 * half + k, t] >> shift) & int32(15)]
                sums[t] = int32(sums[t] + int32(w * factor))


@njit
def _dot_q4(row, half, q, sums):
    """The same for unsigned nibbles, without the table."""
    sums[:] = 0
    for k in range(4):
        for n in range(8):
            factor = int32(q[8 * k + n])
            shift = uint32(4 * n)
            for t in range(len(sums)):
                w = int32(row[4 * half + k, t] >> shift) & int32(15)
                sums[t] = int32(sums[t] + int32(w * factor))


@njit
def _accumulate(sides, sums, total, power, init, accumulators):
    """One term per tile: `dot_term` of `sim.numerics` without its canonical NaNs, which come at the end."""
    total = np.float32(total)
    for t in range(len(sums)):
        d = half_to_float(sides[t] & uint32(0xFFFF))
        m = half_to_float(sides[t] >> uint32(16))
        first = np.float32(np.float32(sums[t]) * d) * power
        second = np.float32(total * m) * power
        term = np.float32(first + second)
        accumulators[t] = term if init else np.float32(accumulators[t] + term)


@njit
def multiply_rows(f, array, accumulators, operand_q, operand_e, operand_sum, sums):
    """MULTIPLY; `sums` int32 (T,) is working space.

    A NaN stays NaN in a sum, so canonical NaNs are made once, at the end.
    """
    form = f[col.M_FORMAT]
    for j in range(f[col.M_NJ]):
        init = j == 0 and f[col.M_INIT] != 0
        for h in range(f[col.M_NH]):
            block = f[col.M_BLOCK] + j * f[col.M_BLOCK_J] + h * f[col.M_BLOCK_H]
            q = operand_q[block]
            power = POWERS[operand_e[block] + 128]
            total = operand_sum[block]
            row = f[col.M_ROW] + j * f[col.M_ROW_J] + h * f[col.M_ROW_H]
            acc = f[col.M_ACC] + h * f[col.M_ACC_H]
            for _ in range(f[col.M_NR]):
                if form == _Q8:
                    _dot_q8(array[row], q, sums)
                    _accumulate(array[row, 8], sums, total, power, init, accumulators[acc])
                    acc += 1
                else:
                    for half in range(2):
                        if form == _Q4:
                            _dot_q4(array[row], half, q, sums)
                        else:
                            _dot_nibbles(array[row], half, _DOUBLED_E2M1, q, sums)
                        _accumulate(array[row, 8 + half], sums, total, power, init, accumulators[acc])
                        acc += 1
                row += f[col.M_ROW_R]
    canonical_accumulators(f, accumulators)


@njit
def canonical_accumulators(f, accumulators):
    """Make the NaNs among the accumulators of a MULTIPLY canonical."""
    count = f[col.M_NR] * (1 if f[col.M_FORMAT] == _Q8 else 2)
    for h in range(f[col.M_NH]):
        acc = f[col.M_ACC] + h * f[col.M_ACC_H]
        for r in range(count):
            for t in range(accumulators.shape[1]):
                value = accumulators[acc + r, t]
                accumulators[acc + r, t] = _NAN if value != value else value


@njit
def fetch(f, array, row_buffer):
    """FETCH."""
    tiles = array.shape[2]
    tile = f[col.M_TILE_REG] & (tiles - 1)
    for j in range(f[col.M_NJ]):
        row = f[col.M_ROW] + j * f[col.M_ROW_J]
        entry = f[col.M_ACC] + j
        for k in range(array.shape[1]):
            for t in range(tiles):
                row_buffer[entry, k, t] = array[row, k, tile if f[col.M_ALL] != 0 else t]


@njit
def store_row(f, array, operand_q, operand_e):
    """STORE_ROW. A block for the KV cache has an exponent that fp16 holds; any other is clamped to those."""
    tile = f[col.M_TILE_REG] & (array.shape[2] - 1)
    for j in range(f[col.M_NJ]):
        block = f[col.M_BLOCK] + j * f[col.M_BLOCK_J]
        row = f[col.M_ROW] + j * f[col.M_ROW_J]
        for k in range(8):
            word = uint32(0)
            for n in range(4):
                word |= uint32((operand_q[block, 4 * k + n] & 0xFF) << (8 * n))
            array[row, k, tile] = word
        e = min(max(int64(operand_e[block]), _LOWEST), _HIGHEST)
        array[row, 8, tile] = uint32(pow2_to_half(e))
        array[row, 9, tile] = uint32(0)


@njit
def store_column(f, array, operand_q):
    """STORE_COLUMN."""
    tiles = array.shape[2]
    column = f[col.M_COLUMN_REG] & 31
    word, shift = column >> 2, uint32((column & 3) * 8)
    keep = ~uint32(uint32(0xFF) << shift)
    for j in range(f[col.M_NJ]):
        block = f[col.M_BLOCK] + j * f[col.M_BLOCK_J]
        for k in range(BLOCK // tiles):
            row = f[col.M_ROW] + j * f[col.M_ROW_J] + k * f[col.M_ROW_R]
            for t in range(tiles):
                byte = uint32(operand_q[block, k * tiles + t] & 0xFF)
                array[row, word, t] = uint32(array[row, word, t] & keep) | uint32(byte << shift)
                array[row, 8, t] = uint32(_HALVES)
                array[row, 9, t] = uint32(0)
