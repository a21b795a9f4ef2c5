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
def _span(reach, problem, size, base, n0, s0, n1, s1, n2, s2):
    """OK if ``base + a*s0 + b*s1 + c*s2`` is in 0 to size - 1 for all a < n0, b < n1, c < n2, else `problem`."""
    first = base + min(0, (n0 - 1) * s0) + min(0, (n1 - 1) * s1) + min(0, (n2 - 1) * s2)
    last = base + max(0, (n0 - 1) * s0) + max(0, (n1 - 1) * s1) + max(0, (n2 - 1) * s2)
    if first < 0 or last >= size:
        reach[0], reach[1], reach[2] = first, last, size
        return problem
    return OK


@njit
def check_matrix(f, rows, accumulators, operands, row_buffer, tiles, formats, reach):
    """Whether the resolved matrix instruction stays inside the memories. `formats` has a bit for each row format."""
    opcode = f[0]
    nj, nh, nr = f[col.M_NJ], f[col.M_NH], f[col.M_NR]
    if nj > PASS_WORDS or nr > PASS_WORDS:
        return _LONG
    if opcode == _MULTIPLY:
        if f[col.M_FORMAT] > _LAST_FORMAT or not (formats >> f[col.M_FORMAT]) & 1:
            return _FORMAT
        outputs = 1 if f[col.M_FORMAT] == _Q8 else 2
        result = _span(reach, _ROWS, rows, f[col.M_ROW], nj, f[col.M_ROW_J], nh, f[col.M_ROW_H], nr, f[col.M_ROW_R])
        if result == OK:
            result = _span(reach, _ACCUMULATORS, accumulators, f[col.M_ACC], nh, f[col.M_ACC_H], nr * outputs, 1, 1, 0)
        if result == OK:
            result = _span(reach, _BLOCKS, operands, f[col.M_BLOCK], nj, f[col.M_BLOCK_J], nh, f[col.M_BLOCK_H], 1, 0)
        return result
    inner = max(BLOCK // tiles, 1) if opcode == _STORE_COLUMN else 1
    result = _span(reach, _ROWS, rows, f[col.M_ROW], nj, f[col.M_ROW_J], inner, f[col.M_ROW_R], 1, 0)
    if result != OK:
        return result
    if opcode == _FETCH:
        return _span(reach, _ENTRIES, row_buffer, f[col.M_ACC], nj, 1, 1, 0, 1, 0)
    return _span(reach, _BLOCKS, operands, f[col.M_BLOCK], nj, f[col.M_BLOCK_J], 1, 0, 1, 0)


@njit
def check_vector(f, scratch, accumulators, operands, row_buffer, tiles, reach):
    """Whether the resolved vector instruction stays inside the memories."""
    outer, inner = f[col.V_OUTER], f[col.V_INNER]
    a, b, c, d, reduce = f[col.V_A], f[col.V_B], f[col.V_C], f[col.V_D], f[col.V_REDUCE]
    if inner > PASS_WORDS:
        return _LONG
    if (a > _LAST_A or b > _LAST_B or c > _LAST_C or d > _LAST_D or reduce > _LAST_REDUCE
            or f[col.V_ROW_FORMAT] > _LAST_FORMAT):
        return _FIELD
    result = OK
    if a == _A_X or b == _B_X or c == _C_X or d == _D_X:
        result = _span(reach, _SCRATCH, scratch, f[col.V_X], outer, f[col.V_X_O], inner, f[col.V_X_I], 1, 0)
    if result == OK and (a == _A_Y or b == _B_Y or c == _C_Y or d == _D_Y):
        result = _span(reach, _SCRATCH, scratch, f[col.V_Y], outer, f[col.V_Y_O], inner, f[col.V_Y_I], 1, 0)
    if result == OK and a == _A_ACC:
        result = _span(reach, _ACCUMULATORS, accumulators, f[col.V_Z], outer, f[col.V_Z_O], inner, f[col.V_Z_I], 1, 0)
    if result == OK and (a == _A_ELEMENT or a == _A_WORD or b == _B_SCALE or c == _C_MINIMUM):
        result = _span(reach, _ENTRIES, row_buffer, f[col.V_Z], outer, f[col.V_Z_O], 1, 0, 1, 0)
    if result == OK and (a == _A_S or b == _B_S):
        result = _span(reach, _SCALARS, SCALARS, f[col.V_P], outer, f[col.V_P_O], 1, 0, 1, 0)
    if result == OK and c == _C_S:
        result = _span(reach, _SCALARS, SCALARS, f[col.V_Q], outer, f[col.V_Q_O], 1, 0, 1, 0)
    if result == OK and d == _D_S:
        result = _span(reach, _SCALARS, SCALARS, f[col.V_R], outer, f[col.V_R_O], 1, 0, 1, 0)
    if result == OK and f[col.V_W] != 0:
        result = _span(reach, _SCRATCH, scratch, f[col.V_W_WORD], outer, f[col.V_W_O], inner, f[col.V_W_I], 1, 0)
    if result == OK and f[col.V_QUANTIZE] != 0:
        words = max(BLOCK // tiles, 1)
        if inner % words:
            return int64(_BLOCK_SHAPE)
        result = _span(reach, _BLOCKS, operands, f[col.V_BLOCK], outer, f[col.V_BLOCK_O], inner // words, 1, 1, 0)
        if result == OK and f[col.V_GIVEN] != 0:
            result = _span(reach, _SCALARS, SCALARS, f[col.V_SCALE], outer, f[col.V_SCALE_O], 1, 0, 1, 0)
    if result == OK and reduce != _NO_REDUCE and f[col.V_REDUCE_EMIT] != 0:
        width = 2 if reduce == _ARGMAX else 1
        result = _span(reach, _SCALARS, SCALARS, f[col.V_R_DEST], outer, f[col.V_R_DEST_O] * width, width, 1, 1, 0)
    return result
