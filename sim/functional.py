"""The functional model: the definition of what a command does to a device's state, and fast enough to run models.

A command runs inside one compiled interpreter: sequencer, matrix and vector instructions one after the other in
program order, with the timing recurrence of `hw.timemodel` beside them. An instruction whose addresses leave a memory
stops the command before it touches anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import int64

from hw.config import HardwareConfig
from hw.isa import Opcode, RowFormat, decode_table
from hw.jit import njit
from hw.memorymap import Space
from hw.sequence import (
    HALT,
    MATRIX_FIRST,
    OFF_THE_END,
    OK,
    RUNAWAY,
    UNKNOWN_OPCODE,
    VECTOR,
    MachineError,
    control,
    resolve_matrix,
    resolve_vector,
    sequence,
)
from hw.timemodel import (
    WORD_LIMIT,
    Prediction,
    control_word,
    finish,
    first_registers,
    issue_matrix,
    issue_vector,
    prediction,
    problem,
    timeline,
)
from sim.kernels_check import ADDRESS_PROBLEMS, check_matrix, check_vector
from sim.kernels_matrix import fetch, multiply_rows, store_column, store_row
from sim.kernels_move import LANES
from sim.kernels_vector import Lanes, buffers, run_vector
from sim.kernels_words import AVAILABLE, multiply_words
from sim.state import State

__all__ = ["Completion", "FunctionalDevice"]

# Chosen here, so that it is not even compiled where the processor has no such instructions.
_multiply_words = multiply_words if AVAILABLE else multiply_rows

_MULTIPLY, _FETCH, _STORE_ROW = int(Opcode.MULTIPLY), int(Opcode.FETCH), int(Opcode.STORE_ROW)


class _Facts(NamedTuple):
    """Sizes that range checks need, and whether to use `sim.kernels_words`."""

    rows: int
    accumulators: int
    scratch: int
    operands: int
    row_buffer: int
    tiles: int
    formats: int
    words: bool


@dataclass(frozen=True)
class Completion:
    """What a command reports.

    Parameters
    ----------
    cycles : int
        From acceptance to completion, exactly as in hardware.
    nonfinite : bool
        Whether an infinite or NaN word reached the quantizer.
    timing : Prediction
        The engines' share of these cycles.
    """

    cycles: int
    nonfinite: bool
    timing: Prediction


@njit
def _interpret(table, pc, registers, time, limit, steps, facts, array, lanes, work, reach):
    """Run a command; (result, address, executed words, cycles)."""
    f = steps.fields
    executed = 0
    while True:
        if pc < 0 or pc >= len(table):
            return OFF_THE_END, pc, executed, int64(0)
        if executed == limit:
            return RUNAWAY, pc, executed, int64(0)
        executed += 1
        opcode = table[pc, 0]
        if opcode == HALT:
            return OK, pc, executed, finish(time)
        if opcode < MATRIX_FIRST:
            following = control(table, pc, registers, steps.stack, steps.depth)
            if following < 0:
                return following, pc, executed, int64(0)
            control_word(time)
            pc = following
            continue
        if opcode < VECTOR:
            resolve_matrix(table, pc, registers, f)
            result = check_matrix(f, facts.rows, facts.accumulators, facts.operands, facts.row_buffer,
                                  facts.tiles, facts.formats, reach)
            if result == OK:
                result = issue_matrix(time, f)
            if result < 0:
                return result, pc, executed, int64(0)
            if opcode == _MULTIPLY:
                if facts.words:
                    _multiply_words(f, array, lanes.accumulators, lanes.operand_q, lanes.operand_e,
                                    lanes.operand_sum, work.sums)
                else:
                    multiply_rows(f, array, lanes.accumulators, lanes.operand_q, lanes.operand_e,
                                  lanes.operand_sum, work.sums)
            elif opcode == _FETCH:
                fetch(f, array, lanes.row_buffer)
            elif opcode == _STORE_ROW:
                store_row(f, array, lanes.operand_q, lanes.operand_e)
            else:
                store_column(f, array, lanes.operand_q)
        elif opcode == VECTOR:
            resolve_vector(table, pc, registers, f)
            result = check_vector(f, facts.scratch, facts.accumulators, facts.operands, facts.row_buffer,
                                  facts.tiles, reach)
            if result == OK:
                result = issue_vector(time, f)
            if result < 0:
                return result, pc, executed, int64(0)
            run_vector(lanes, f, work)
        else:
            return UNKNOWN_OPCODE, pc, executed, int64(0)
        pc += 1


class FunctionalDevice:
    """A device in software, bit for bit the machine of docs/machine.md.

    Parameters
    ----------
    config : HardwareConfig
        At most 32 tiles.
    portable : bool
        Do without code made for this processor; it gives the same bits faster.

    Attributes
    ----------
    stopped : int or None
        Microcode address of the instruction that the latest command could not run.
    """

    def __init__(self, config: HardwareConfig, *, portable: bool = False) -> None:
        self.config = config
        self._words = AVAILABLE and config.tiles == LANES and not portable
        self.state = State(config)
        self._work = buffers(config.tiles)
        self._table = decode_table(self.state.microcode)
        self._decoded = self.state.version[Space.MICROCODE]
        self.stopped: int | None = None

    def __repr__(self) -> str:
        return f"FunctionalDevice({self.config!r})"

    def read(self, space: Space, address: int = 0, count: int | None = None,
             tile: int | None = None) -> np.ndarray:
        """A copy of entries in host form, see `State.read`."""
        return self.state.read(space, address, count, tile)

    def view(self, space: Space) -> np.ndarray:
        """A whole space in host form, read-only, mostly without a copy."""
        return self.state.view(space)

    def write(self, space: Space, data: np.ndarray, address: int = 0, tile: int | None = None) -> None:
        """Write entries in host form, see `State.write`."""
        self.state.write(space, data, address, tile)

    def reset(self) -> None:
        """The state after power-up."""
        self.state.reset()
        self._work = buffers(self.config.tiles)

    def run(self, entry: int, arguments: Sequence[int] = (), *, limit: int = WORD_LIMIT) -> Completion:
        """Run the command at microcode address `entry` to its HALT.

        Raises `MachineError` with the microcode address for an instruction that the machine cannot run; what ran
        before it stays done.
        """
        state = self.state
        if self._decoded != state.version[Space.MICROCODE]:
            self._table = decode_table(state.microcode)
            self._decoded = state.version[Space.MICROCODE]
        state.registers[:] = first_registers(arguments)
        time = timeline(self.config)
        reach = np.zeros(3, np.int64)
        self._work.flags[0] = 0
        result, address, words, cycles = _interpret(
            self._table, int(entry), state.registers, time, limit, sequence(), self._facts(), state.array,
            self._lanes(), self._work, reach)
        self.stopped = int(address) if result < 0 else None
        if result in ADDRESS_PROBLEMS:
            raise MachineError(f"microcode address {address}: {ADDRESS_PROBLEMS[result]} are 0 to {reach[2] - 1}; "
                               f"this instruction reaches {reach[0]} to {reach[1]}")
        if result < 0:
            raise problem(result, address)
        return Completion(int(cycles), bool(self._work.flags[0]), prediction(time, cycles, words))

    def _facts(self) -> _Facts:
        c = self.config
        formats = sum(1 << RowFormat[name.upper()] for name in c.formats)
        return _Facts(c.rows, c.accumulators, c.scratch, c.operands, c.row_buffer, c.tiles, formats,
                      self._words)

    def _lanes(self) -> Lanes:
        s = self.state
        return Lanes(s.scratch.view(np.float32), s.accumulators.view(np.float32), s.row_buffer,
                     s.scalars.view(np.float32), s.operand_q, s.operand_e, s.operand_sum, s.coefficients,
                     s.descriptors, self.config.activation_bits)
