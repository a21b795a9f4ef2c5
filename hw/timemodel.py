"""The timing model: the exact number of cycles of a command, from its instructions and arguments alone.

The model is one recurrence over the executed words in program order. ``D`` are the distances of `hw.timing`, Q is
`config.queue`, all times are cycles since the command was accepted, maxima of nothing are minus infinity.

* Sequencer. The first word begins at ``D.start``. A control word that begins at s ends its turn after ``D.sequencer``
  cycles: the next word begins at ``s + D.sequencer``. An instruction, the n-th of its engine, is pushed at ::

      push[n] = max(s + D.sequencer - 1, first[n - Q] + D.pop)

  and the next word begins at ``push[n] + 1``.

* Engine. An instruction of k steps occupies its engine from ``first[n]`` to ``last[n] = first[n] + k - 1`` ::

      first[n] = max(push[n] + D.push,                      the sequencer was late
                     last[n-1] + 1,                         the engine was busy
                     added[taken + wait - 1] + 1,           `wait` > 0: arrival of the last token it takes
                     last[n-1] + D.matrix_done,             `fence` of a matrix instruction
                     last[n-1] + D.vector_write,            `fence` of a vector instruction
                     first[n-1] + D.vector_write,           `chain`
                     last[e] + D.scalar_write)              `reduce_fence`; e: latest that emitted a scalar

  `taken` counts the tokens taken by earlier instructions of the engine. An instruction with `signal` gives the other
  engine a token in cycle ``last[n] + D.matrix_done - 1`` or ``last[n] + D.vector_done - 1``, so that the earliest start
  on it is ``D.matrix_done`` or ``D.vector_done`` after the last step.

* Steps. MULTIPLY ``nj * max(nh*nr, D.accumulate)``, FETCH and STORE_ROW ``nj``, STORE_COLUMN ``nj * 32/T``, VECTOR
  ``outer * inner``.

* End. HALT that begins at s completes the command in cycle ::

      D.halt + max(s + D.sequencer - 1, last matrix + D.matrix_done, last vector + D.vector_done,
                   last[e] + D.scalar_write)

`predict` walks a program; the functional model calls `issue` beside the execution of each instruction.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from hw import columns as col
from hw.config import REGISTERS, HardwareConfig
from hw.isa import Opcode, Reduce, decode_table
from hw.jit import njit
from hw.sequence import (
    HALT,
    MATRIX_FIRST,
    OFF_THE_END,
    OK,
    PROBLEMS,
    RUNAWAY,
    UNKNOWN_OPCODE,
    VECTOR,
    MachineError,
    control,
    resolve_matrix,
    resolve_vector,
    sequence,
)
from hw.timing import Latencies, latencies

__all__ = [
    "DEADLOCK", "RECORD", "TOKENS", "WORD_LIMIT", "Prediction", "Stall", "Timeline", "control_word", "finish",
    "first_registers", "issue_matrix", "issue_vector", "predict", "prediction", "problem", "timeline",
]

TOKENS = 255
"""Most tokens that one engine may have given and the other not yet taken."""

WORD_LIMIT = 1 << 26
"""Executed words after which a command is taken for endless."""

DEADLOCK, TOO_MANY_TOKENS = -8, -9
PROBLEMS |= {
    DEADLOCK: "an instruction may wait only for tokens that earlier instructions give; this one would wait for ever",
    TOO_MANY_TOKENS: f"at most {TOKENS} tokens may be given and not yet taken; this instruction gives one more",
}


class Stall(IntEnum):
    """What held an instruction's start beyond the end of its predecessor."""

    NONE = 0
    SEQUENCER = 1
    TOKEN = 2
    FENCE = 3
    CHAIN = 4
    REDUCE_FENCE = 5


RECORD = np.dtype([("address", "i8"), ("engine", "i8"), ("push", "i8"), ("first", "i8"), ("last", "i8"),
                   ("stall", "i8"), ("stalled", "i8"), ("useful", "i8")])
"""One executed instruction: microcode address, engine (0 matrix, 1 vector), cycles of its push, first and last step,
`Stall`, cycles lost to it since the engine's previous last step, and array rows that it reads for the model."""


class Timeline(NamedTuple):
    """The recurrence's state.

    `distances` int64 holds the fields of `Latencies`; `clock` int64 the scalars below; `firsts` int64 (2, Q) the starts
    of the latest instructions of each engine; `tokens` int64 (2, TOKENS + 1) the arrivals of tokens for each engine.
    """

    distances: np.ndarray
    clock: np.ndarray
    firsts: np.ndarray
    tokens: np.ndarray
    lanes_per_block: int


_D = {f.name: i for i, f in enumerate(fields(Latencies))}
_START, _SEQUENCER, _PUSH, _POP, _ACCUMULATE = (_D[n] for n in ("start", "sequencer", "push", "pop", "accumulate"))
_MATRIX_DONE, _VECTOR_WRITE, _VECTOR_DONE, _SCALAR_WRITE, _HALT = (
    _D[n] for n in ("matrix_done", "vector_write", "vector_done", "scalar_write", "halt"))

# Entries of `clock`. Those of the vector engine follow the matrix engine's at a distance of one.
_SEQUENCE, _EMITTED, _LATE, _STALL = range(4)
_FIRST, _LAST, _COUNT, _TAKEN, _GIVEN, _BUSY, _USEFUL = range(4, 18, 2)
_ENTRIES = 18
_NEVER = -(1 << 40)

_MULTIPLY, _STORE_COLUMN = int(Opcode.MULTIPLY), int(Opcode.STORE_COLUMN)
_FETCH = int(Opcode.FETCH)
_NO_REDUCE = int(Reduce.NONE)
_BY_SEQUENCER, _BY_TOKEN, _BY_FENCE, _BY_CHAIN, _BY_REDUCE_FENCE = (int(s) for s in Stall if s)


def timeline(config: HardwareConfig) -> Timeline:
    """The recurrence at the acceptance of a command."""
    distances = np.array(astuple(latencies(config)), np.int64)
    clock = np.zeros(_ENTRIES, np.int64)
    clock[[_EMITTED, _FIRST, _FIRST + 1, _LAST, _LAST + 1]] = _NEVER
    clock[_SEQUENCE] = distances[_START]
    return Timeline(distances, clock, np.full((2, config.queue), _NEVER, np.int64),
                    np.zeros((2, TOKENS + 1), np.int64), config.lanes_per_block)


@njit
def control_word(time):
    """The sequencer's time for a control word."""
    time.clock[_SEQUENCE] += time.distances[_SEQUENCER]


@njit
def _issue(time, engine, steps, useful, wait, signal, earliest, reason):
    """Place one instruction that may not start before `earliest` for `reason`; a result of `hw.sequence`."""
    clock, distances = time.clock, time.distances
    slots = time.firsts.shape[1]
    n = clock[_COUNT + engine]
    push = max(clock[_SEQUENCE] + distances[_SEQUENCER] - 1, time.firsts[engine, n % slots] + distances[_POP])
    clock[_SEQUENCE] = push + 1
    free = max(clock[_LAST + engine] + 1, np.int64(0))
    first = free
    stall = 0
    if push + distances[_PUSH] > first:
        first, stall = push + distances[_PUSH], _BY_SEQUENCER
    if earliest > first:
        first, stall = earliest, reason
    if wait > 0:
        taken = clock[_TAKEN + engine] + wait
        if taken > clock[_GIVEN + engine]:
            return DEADLOCK
        arrival = time.tokens[engine, (taken - 1) % (TOKENS + 1)]
        if arrival + 1 > first:
            first, stall = arrival + 1, _BY_TOKEN
        clock[_TAKEN + engine] = taken
    last = first + steps - 1
    if signal != 0:
        other = 1 - engine
        if clock[_GIVEN + other] - clock[_TAKEN + other] >= TOKENS:
            return TOO_MANY_TOKENS
        done = distances[_MATRIX_DONE] if engine == 0 else distances[_VECTOR_DONE]
        time.tokens[other, clock[_GIVEN + other] % (TOKENS + 1)] = last + done - 1
        clock[_GIVEN + other] += 1
    time.firsts[engine, n % slots] = first
    clock[_COUNT + engine] = n + 1
    clock[_FIRST + engine] = first
    clock[_LAST + engine] = last
    clock[_BUSY + engine] += steps
    clock[_USEFUL + engine] += useful
    clock[_STALL] = stall
    clock[_LATE] = first - free
    return OK


@njit
def issue_matrix(time, f):
    """Place the resolved matrix instruction `f` (see `hw.sequence.resolve_matrix`)."""
    opcode = f[0]
    nj = f[col.M_NJ]
    steps = nj
    useful = np.int64(0)
    if opcode == _MULTIPLY:
        rows = f[col.M_NH] * f[col.M_NR]
        steps = nj * max(rows, time.distances[_ACCUMULATE])
        useful = nj * rows
    elif opcode == _STORE_COLUMN:
        steps = nj * time.lanes_per_block
    elif opcode == _FETCH:
        useful = nj
    earliest = np.int64(_NEVER)
    if f[col.M_FENCE] != 0:
        earliest = time.clock[_LAST] + time.distances[_MATRIX_DONE]
    return _issue(time, 0, steps, useful, f[col.M_WAIT], f[col.M_SIGNAL], earliest, _BY_FENCE)


@njit
def issue_vector(time, f):
    """Place the resolved vector instruction `f`."""
    clock, distances = time.clock, time.distances
    earliest = np.int64(_NEVER)
    reason = _BY_FENCE
    if f[col.V_FENCE] != 0:
        earliest = clock[_LAST + 1] + distances[_VECTOR_WRITE]
    if f[col.V_CHAIN] != 0 and clock[_FIRST + 1] + distances[_VECTOR_WRITE] > earliest:
        earliest, reason = clock[_FIRST + 1] + distances[_VECTOR_WRITE], _BY_CHAIN
    if f[col.V_REDUCE_FENCE] != 0 and clock[_EMITTED] + distances[_SCALAR_WRITE] > earliest:
        earliest, reason = clock[_EMITTED] + distances[_SCALAR_WRITE], _BY_REDUCE_FENCE
    result = _issue(time, 1, f[col.V_OUTER] * f[col.V_INNER], 0, f[col.V_WAIT], f[col.V_SIGNAL], earliest, reason)
    if f[col.V_REDUCE] != _NO_REDUCE and f[col.V_REDUCE_EMIT] != 0:
        clock[_EMITTED] = clock[_LAST + 1]
    return result


@njit
def finish(time):
    """Cycle in which the command completes; to be called at its HALT."""
    clock, distances = time.clock, time.distances
    end = clock[_SEQUENCE] + distances[_SEQUENCER] - 1
    end = max(end, clock[_LAST] + distances[_MATRIX_DONE])
    end = max(end, clock[_LAST + 1] + distances[_VECTOR_DONE])
    end = max(end, clock[_EMITTED] + distances[_SCALAR_WRITE])
    return end + distances[_HALT]


@njit
def _record(time, records, k, pc, engine, useful_before):
    clock = time.clock
    records[k, 0], records[k, 1], records[k, 2] = pc, engine, clock[_SEQUENCE] - 1
    records[k, 3], records[k, 4] = clock[_FIRST + engine], clock[_LAST + engine]
    records[k, 5], records[k, 6], records[k, 7] = clock[_STALL], clock[_LATE], clock[_USEFUL] - useful_before


@njit
def _walk(table, pc, registers, time, limit, steps, records):
    """Walk a command; (result, address, executed words, cycles). Fills as many `records` as there are rows."""
    f = steps.fields
    executed, issued = 0, 0
    while True:
        if pc < 0 or pc >= len(table):
            return OFF_THE_END, pc, executed, np.int64(0)
        if executed == limit:
            return RUNAWAY, pc, executed, np.int64(0)
        executed += 1
        opcode = table[pc, 0]
        if opcode == HALT:
            return OK, pc, executed, finish(time)
        if opcode < MATRIX_FIRST:
            following = control(table, pc, registers, steps.stack, steps.depth)
            if following < 0:
                return following, pc, executed, np.int64(0)
            control_word(time)
            pc = following
            continue
        useful = time.clock[_USEFUL]
        if opcode < VECTOR:
            resolve_matrix(table, pc, registers, f)
            result = issue_matrix(time, f)
        elif opcode == VECTOR:
            resolve_vector(table, pc, registers, f)
            result = issue_vector(time, f)
        else:
            result = UNKNOWN_OPCODE
        if result < 0:
            return result, pc, executed, np.int64(0)
        if issued < len(records):
            _record(time, records, issued, pc, 1 if opcode == VECTOR else 0, useful)
        issued += 1
        pc += 1


@dataclass(frozen=True)
class Prediction:
    """Time of one command.

    Parameters
    ----------
    cycles : int
        From the acceptance of the command to its completion.
    words : int
        Microcode words executed.
    matrix_busy, vector_busy : int
        Steps of the engines, padding included.
    row_reads : int
        Cycles in which every tile reads an array row that the program needs (MULTIPLY without padding, FETCH).
    matrix_instructions, vector_instructions : int
        Instructions executed.
    records : ndarray of RECORD, or None
        Every instruction in program order, if asked for.
    """

    cycles: int
    words: int
    matrix_busy: int
    vector_busy: int
    row_reads: int
    matrix_instructions: int
    vector_instructions: int
    records: np.ndarray | None = None

    @property
    def utilisation(self) -> float:
        """Share of cycles in which every tile reads a row that the program needs."""
        return self.row_reads / self.cycles


def prediction(time: Timeline, cycles: int, words: int, records: np.ndarray | None = None) -> Prediction:
    """The summary of a recurrence that has reached its HALT."""
    clock = time.clock
    return Prediction(int(cycles), int(words), int(clock[_BUSY]), int(clock[_BUSY + 1]), int(clock[_USEFUL]),
                      int(clock[_COUNT]), int(clock[_COUNT + 1]), records)


def problem(result: int, address: int) -> MachineError:
    """The error for a negative result of a walk that stopped at a microcode address."""
    return MachineError(f"microcode address {int(address)}: {PROBLEMS[int(result)]}")


def first_registers(arguments: Sequence[int]) -> np.ndarray:
    """Registers at the start of a command, uint32 (32,): up to eight arguments in registers 1 to 8, the rest zero."""
    if len(arguments) > 8:
        raise MachineError(f"a command takes up to 8 arguments; got {len(arguments)}")
    registers = np.zeros(REGISTERS, np.uint32)
    registers[1:1 + len(arguments)] = [int(a) & 0xFFFF_FFFF for a in arguments]
    return registers


def predict(config: HardwareConfig, microcode: np.ndarray, entry: int, arguments: Sequence[int] = (), *,
            record: bool = False) -> Prediction:
    """The time of one command.

    `microcode` is uint32 (n, 10), or a table that `hw.isa.decode_table` made of it (int64), which saves the decoding
    when a program is walked many times. With `record` the result also lists every instruction. Raises `MachineError`
    for a program that does not end properly.
    """
    table = microcode if microcode.dtype == np.int64 else decode_table(microcode)
    records = np.zeros((0, len(RECORD.fields or ())), np.int64)
    while True:
        time = timeline(config)
        result, address, words, cycles = _walk(
            table, int(entry), first_registers(arguments), time, WORD_LIMIT, sequence(), records)
        if result < 0:
            raise problem(result, address)
        issued = int(time.clock[_COUNT] + time.clock[_COUNT + 1])
        if not record or len(records) == issued:
            break
        records = np.zeros((issued, len(RECORD.fields or ())), np.int64)
    listed = records.view(RECORD)[:, 0] if record else None
    return prediction(time, cycles, words, listed)
