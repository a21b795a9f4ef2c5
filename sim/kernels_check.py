"""Range checks of resolved instructions: done once before an instruction runs, so that the kernels need none.

Every address is linear in the loop counters, so that its least and greatest value decide.
"""

from numba import int64

from hw import columns as col
from hw.config import BLOCK, SCALARS
from hw.isa import A, B, C, D, Opcode, Reduce, RowFormat
from hw.jit import njit
from hw.sequence import OK, PROBLEMS

__all__ = ["ADDRESS_PROBLEMS", "PASS_WORDS", "check_matrix", "check_vector"]

PASS_WORDS = (1 << 16) - 1
"""Most iterations of one inner loop, and most blocks or rows of one matrix instruction."""

_ROWS, _BLOCKS, _ACCUMULATORS, _ENTRIES, _SCRATCH, _SCALARS = -20, -21, -22, -23, -24, -25
_FORMAT, _BLOCK_SHAPE, _LONG, _FIELD = -30, -31, -32, -33

ADDRESS_PROBLEMS: dict[int, str] = {
    _ROWS: "array rows", _BLOCKS: "operand blocks", _ACCUMULATORS: "accumulators", _ENTRIES: "row buffer entries",
    _SCRATCH: "scratch words", _SCALARS: "scalars",
}
"""What an address out of range is called; `reach` then holds (first, last, size)."""

PROBLEMS |= {
    _FORMAT: "this device does not decode the row format of this instruction",
    _BLOCK_SHAPE: "an inner loop that quantizes has a multiple of 32/T iterations; this one has not",
    _LONG: f"a loop inside an instruction has at most {PASS_WORDS} iterations; this one has more",
    _FIELD: "a selector has one of its listed values; this word has another",
}

_MULTIPLY, _FETCH = int(Opcode.MULTIPLY), int(Opcode.FETCH)
_STORE_ROW, _STORE_COLUMN = int(Opcode.STORE_ROW), int(Opcode.STORE_COLUMN)
_Q8 = int(RowFormat.Q8)
_A_ACC, _A_X, _A_Y, _A_S, _A_ELEMENT, _A_WORD = (int(v) for v in A)
_B_X, _B_Y, _B_S, _B_SCALE = int(B.X), int(B.Y), int(B.S), int(B.ROW_SCALE)
_C_X, _C_Y, _C_S, _C_MINIMUM = int(C.X), int(C.Y), int(C.S), int(C.ROW_MINIMUM)
_D_X, _D_Y, _D_S = int(D.X), int(D.Y), int(D.S)
_LAST_A, _LAST_B, _LAST_C, _LAST_D = max(A), max(B), max(C), max(D)
_LAST_REDUCE, _NO_REDUCE, _ARGMAX = max(Reduce), int(Reduce.NONE), int(Reduce.ARGMAX)
_LAST_FORMAT = max(RowFormat)


@njit
def _outside(reach, size, base, n0, s0, n1, s1):
    """Whether ``base + a*s0 + b*s1`` leaves 0 to size - 1 for some a < n0, b < n1; notes the ends if it does."""
    first = base + min(int64(0), (n0 - 1) * s0) + min(int64(0), (n1 - 1) * s1)
    last = base + max(int64(0), (n0 - 1) * s0) + max(int64(0), (n1 - 1) * s1)
    if first >= 0 and last < size:
        return False
    reach[0], reach[1], reach[2] = first, last, size
    return True


@njit
def check_matrix(f, rows, accumulators, operands, row_buffer, tiles, formats, reach):
    """Whether the resolved matrix instruction stays inside the memories; a result of `hw.sequence`.

    `formats` has a bit for each row format. `reach` int64 (3,) gets first and last address and size where not.
    """
    opcode = f[0]
    one = int64(1)  # a plain 1 would make the compiler specialise what it is given to
    nj, nh, nr = f[col.M_NJ], f[col.M_NH], f[col.M_NR]
    if nj > PASS_WORDS or nr > PASS_WORDS:
        return _LONG
    if opcode == _MULTIPLY:
        if f[col.M_FORMAT] > _LAST_FORMAT or not (formats >> f[col.M_FORMAT]) & 1:
            return _FORMAT
        # Of the inner group's rows only the ends matter: the two others' loops begin at each of them.
        end = f[col.M_ROW] + (nr - 1) * f[col.M_ROW_R]
        for row in (f[col.M_ROW], end):
            if _outside(reach, rows, row, nj, f[col.M_ROW_J], nh, f[col.M_ROW_H]):
                return _ROWS
        outputs = nr if f[col.M_FORMAT] == _Q8 else 2 * nr
        if _outside(reach, accumulators, f[col.M_ACC], nh, f[col.M_ACC_H], outputs, one):
            return _ACCUMULATORS
        if _outside(reach, operands, f[col.M_BLOCK], nj, f[col.M_BLOCK_J], nh, f[col.M_BLOCK_H]):
            return _BLOCKS
        return OK
    words = max(BLOCK // tiles, one) if opcode == _STORE_COLUMN else one
    if _outside(reach, rows, f[col.M_ROW], nj, f[col.M_ROW_J], words, f[col.M_ROW_R]):
        return _ROWS
    if opcode == _FETCH:
        return _ENTRIES if _outside(reach, row_buffer, f[col.M_ACC], nj, one, one, one) else OK
    return _BLOCKS if _outside(reach, operands, f[col.M_BLOCK], nj, f[col.M_BLOCK_J], one, one) else OK


@njit
def check_vector(f, scratch, accumulators, operands, row_buffer, tiles, reach):
    """The same for a vector instruction."""
    one, scalars = int64(1), int64(SCALARS)
    o, i = f[col.V_OUTER], f[col.V_INNER]
    a, b, c, d, reduce = f[col.V_A], f[col.V_B], f[col.V_C], f[col.V_D], f[col.V_REDUCE]
    if i > PASS_WORDS:
        return _LONG
    if (a > _LAST_A or b > _LAST_B or c > _LAST_C or d > _LAST_D or reduce > _LAST_REDUCE
            or f[col.V_ROW_FORMAT] > _LAST_FORMAT):
        return _FIELD
    if a == _A_X or b == _B_X or c == _C_X or d == _D_X:
        if _outside(reach, scratch, f[col.V_X], o, f[col.V_X_O], i, f[col.V_X_I]):
            return _SCRATCH
    if a == _A_Y or b == _B_Y or c == _C_Y or d == _D_Y:
        if _outside(reach, scratch, f[col.V_Y], o, f[col.V_Y_O], i, f[col.V_Y_I]):
            return _SCRATCH
    if a == _A_ACC and _outside(reach, accumulators, f[col.V_Z], o, f[col.V_Z_O], i, f[col.V_Z_I]):
        return _ACCUMULATORS
    if a == _A_ELEMENT or a == _A_WORD or b == _B_SCALE or c == _C_MINIMUM:
        if _outside(reach, row_buffer, f[col.V_Z], o, f[col.V_Z_O], one, one):
            return _ENTRIES
    if (a == _A_S or b == _B_S) and _outside(reach, scalars, f[col.V_P], o, f[col.V_P_O], one, one):
        return _SCALARS
    if c == _C_S and _outside(reach, scalars, f[col.V_Q], o, f[col.V_Q_O], one, one):
        return _SCALARS
    if d == _D_S and _outside(reach, scalars, f[col.V_R], o, f[col.V_R_O], one, one):
        return _SCALARS
    if f[col.V_W] != 0 and _outside(reach, scratch, f[col.V_W_WORD], o, f[col.V_W_O], i, f[col.V_W_I]):
        return _SCRATCH
    if f[col.V_QUANTIZE] != 0:
        words = max(BLOCK // tiles, one)
        if i % words:
            return _BLOCK_SHAPE
        if _outside(reach, operands, f[col.V_BLOCK], o, f[col.V_BLOCK_O], i // words, one):
            return _BLOCKS
        if f[col.V_GIVEN] != 0 and _outside(reach, scalars, f[col.V_SCALE], o, f[col.V_SCALE_O], one, one):
            return _SCALARS
    if reduce != _NO_REDUCE and f[col.V_REDUCE_EMIT] != 0:
        width = one + one if reduce == _ARGMAX else one
        if _outside(reach, scalars, f[col.V_R_DEST], o, f[col.V_R_DEST_O] * width, width, one):
            return _SCALARS
    return OK
