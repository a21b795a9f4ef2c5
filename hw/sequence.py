"""What the sequencer does with a microcode word: integer registers, loops, and the resolving of register sums.

Compiled functions over the decoded table (`hw.isa.decode_table`), shared by the functional and the timing model.
Registers are uint32 (32,), register 0 always zero.
"""

from typing import NamedTuple

import numpy as np
from numba import int64, uint32

from hw import columns as col
from hw.errors import WordlineError
from hw.isa import Alu, Opcode
from hw.jit import njit

__all__ = [
    "Sequence", "sequence",
    "END_WITHOUT_LOOP", "HALT", "LOOPS", "LOOP_TOO_DEEP", "MATRIX_FIRST", "MachineError", "OFF_THE_END", "OK",
    "PROBLEMS", "RUNAWAY", "UNKNOWN_OPCODE", "VECTOR", "control", "resolve_matrix", "resolve_vector",
]

LOOPS = 4
"""Depth of the loop stack."""

HALT = int(Opcode.HALT)
MATRIX_FIRST = int(Opcode.MULTIPLY)
VECTOR = int(Opcode.VECTOR)

_ALU, _LOOP, _END = int(Opcode.ALU), int(Opcode.LOOP), int(Opcode.END)
_ADD, _SUB, _MUL, _SHL, _SHR, _AND, _MIN, _MAX = (int(fn) for fn in Alu)

# Results of a step; negative ones stop the command.
OK = 0
LOOP_TOO_DEEP, END_WITHOUT_LOOP, OFF_THE_END, UNKNOWN_OPCODE, RUNAWAY = -1, -2, -3, -4, -5

PROBLEMS: dict[int, str] = {
    LOOP_TOO_DEEP: f"loops nest at most {LOOPS} deep; this LOOP is deeper",
    END_WITHOUT_LOOP: "an END needs an open LOOP; none is open",
    OFF_THE_END: "a command ends with HALT; this one runs past the last word of the microcode memory",
    UNKNOWN_OPCODE: f"opcodes are 0 to {max(Opcode)}; this word has another",
    RUNAWAY: "a command ends with HALT; this one exceeded the limit of executed words",
}
"""Why a command stopped, by result; the models add their own."""


class MachineError(WordlineError):
    """A program that the machine cannot run: what is wrong, and at which microcode address."""


class Sequence(NamedTuple):
    """Working space of a walk through microcode.

    `fields` int64 (COLUMNS,) are those of the current instruction, resolved. The loop stack is `stack` int64
    (LOOPS, 2), the address behind a LOOP and the iterations still to run, with `depth` int64 (1,) open loops.
    """

    fields: np.ndarray
    stack: np.ndarray
    depth: np.ndarray


def sequence() -> Sequence:
    """Working space for one command."""
    return Sequence(np.zeros(col.COLUMNS, np.int64), np.zeros((LOOPS, 2), np.int64), np.zeros(1, np.int64))


@njit
def control(table, pc, registers, stack, depth):
    """Execute the control word at `pc`; the next address, or a negative result."""
    opcode = table[pc, 0]
    if opcode == _ALU:
        rd = table[pc, col.C_RD]
        a = registers[table[pc, col.C_RA]]
        b = uint32(registers[table[pc, col.C_RB]] + uint32(table[pc, col.C_IMM]))
        fn = table[pc, col.C_FN]
        if fn == _ADD:
            value = uint32(a + b)
        elif fn == _SUB:
            value = uint32(a - b)
        elif fn == _MUL:
            value = uint32(a * b)
        elif fn == _SHL:
            value = uint32(a << uint32(b & uint32(31)))
        elif fn == _SHR:
            value = uint32(a >> uint32(b & uint32(31)))
        elif fn == _AND:
            value = uint32(a & b)
        elif fn == _MIN:
            value = min(a, b)
        else:
            value = max(a, b)
        if rd != 0:
            registers[rd] = value
        return pc + 1
    if opcode == _LOOP:
        if depth[0] == LOOPS:
            return LOOP_TOO_DEEP
        count = uint32(uint32(table[pc, col.C_COUNT]) + registers[table[pc, col.C_COUNT_REG]])
        stack[depth[0], 0] = pc + 1
        stack[depth[0], 1] = max(int64(count), 1)
        depth[0] += 1
        return pc + 1
    if opcode == _END:
        if depth[0] == 0:
            return END_WITHOUT_LOOP
        top = depth[0] - 1
        stack[top, 1] -= 1
        if stack[top, 1] > 0:
            return stack[top, 0]
        depth[0] = top
        return pc + 1
    return UNKNOWN_OPCODE


@njit
def _resolve(table, pc, registers, sums, values, f):
    for k in range(len(f)):
        f[k] = table[pc, k]
    for k in range(len(sums)):
        total = uint32(uint32(f[sums[k, 0]]) + registers[f[sums[k, 1]]])
        f[sums[k, 0]] = int64(total)
    for k in range(len(values)):
        f[values[k]] = int64(registers[f[values[k]]])


@njit
def resolve_matrix(table, pc, registers, f):
    """The fields of the matrix word at `pc` into `f`, int64 (COLUMNS,): sums made, lone registers replaced by their
    values, counts at least one."""
    _resolve(table, pc, registers, col.MATRIX_SUMS, col.MATRIX_VALUES, f)
    f[col.M_NJ] = max(f[col.M_NJ], 1)
    f[col.M_NH] = max(f[col.M_NH], 1)
    f[col.M_NR] = max(f[col.M_NR], 1)


@njit
def resolve_vector(table, pc, registers, f):
    """The same for the vector word at `pc`."""
    _resolve(table, pc, registers, col.VECTOR_SUMS, col.VECTOR_VALUES, f)
    f[col.V_OUTER] = max(f[col.V_OUTER], 1)
    f[col.V_INNER] = max(f[col.V_INNER], 1)
