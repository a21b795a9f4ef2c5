"""Gives every instruction its token, fence and chain bits, from what it and its predecessors touch.

Walks the final order once. For every cell of every memory it knows the last instruction of each engine that read and
that wrote it. An instruction waits for one token of the other engine when a hazard with it is not yet covered by an
earlier wait; that instruction then signals. Since both engines keep order, every signal has exactly one wait.
"""

from dataclasses import dataclass, field

import numpy as np

from compiler.emitter import MachineOp
from compiler.footprint import Bounds, Span, steps
from hw.config import SCALARS, HardwareConfig
from hw.isa import Instruction
from hw.timing import Latencies

__all__ = ["synchronize"]

_NEVER = -1


@dataclass
class _Engine:
    """What one engine has done so far, by position in its own order."""

    written: dict[str, np.ndarray]
    read: dict[str, np.ndarray]
    last_end: list[int] = field(default_factory=list)     # least step count up to and with each instruction
    covered: int = _NEVER                                 # the other engine's instruction known to be done
    op: list[int] = field(default_factory=list)           # index in the whole order


def _cells(config: HardwareConfig) -> dict[str, int]:
    return {"accumulators": config.accumulators, "scratch": config.scratch, "operands": config.operands,
            "row_buffer": config.row_buffer, "scalars": SCALARS, "partials": 1}


def _latest(last: dict[str, np.ndarray], spans: list[Span]) -> int:
    return max((int(last[m][a:b].max()) for m, a, b in spans if m in last), default=_NEVER)


def _words(i: Instruction, base: str) -> list[tuple[int, int]]:
    """(scratch word, place in issue order) of one port of an instruction without register-dependent loops."""
    outer, inner = max(1, i["outer"]), max(1, i["inner"])
    prefix = base.removesuffix("_word")
    return [(i[base] + o * i[f"{prefix}_o"] + k * i[f"{prefix}_i"], o * inner + k)
            for o in range(outer) for k in range(inner)]


def _chains(earlier: Instruction, later: Instruction) -> bool:
    """Whether every scratch word that `later` reads is issued no sooner, from its start, than it was written."""
    if earlier["inner_reg"] or later["inner_reg"] or earlier["w_word_reg"]:
        return False
    written = dict(_words(earlier, "w_word"))
    for port, code in (("x", 1), ("y", 2)):
        if code in (later["a"], later["b"], later["c"], later["d"]):
            if later[f"{port}_reg"] or any(written.get(word, 0) > place for word, place in _words(later, port)):
                return False
    return True


def synchronize(ops: list[MachineOp], bounds: Bounds, config: HardwareConfig, times: Latencies) -> list[Instruction]:
    """The instructions of `ops`, in order, with wait, signal, fence, chain and reduce_fence set."""
    engines = {}
    for matrix in (True, False):
        engines[matrix] = _Engine({m: np.full(n, _NEVER) for m, n in _cells(config).items()},
                                  {m: np.full(n, _NEVER) for m, n in _cells(config).items()})
    bits: list[dict[str, int]] = [{} for _ in ops]
    for index, op in enumerate(ops):
        own, other = engines[op.matrix], engines[not op.matrix]
        reads, writes = op.touches.reads, op.touches.writes
        position = len(own.op)
        needed = max(_latest(other.written, reads), _latest(other.read, writes), _latest(other.written, writes))
        if needed > own.covered:
            own.covered = needed
            bits[index]["wait"] = 1
            bits[other.op[needed]]["signal"] = 1
        if not op.matrix:
            scratch = _latest(own.written, [s for s in reads if s[0] == "scratch"])
            if scratch != _NEVER and _between(own.last_end, scratch, position) < times.vector_write:
                chained = scratch < position - 1 or _chains(ops[own.op[scratch]].instruction, op.instruction)
                bits[index]["chain" if chained else "fence"] = 1
            scalar = _latest(own.written, [s for s in reads if s[0] == "scalars"])
            if scalar != _NEVER and _between(own.last_end, scalar, position) < times.scalar_write:
                bits[index]["reduce_fence"] = 1
        for spans, last in ((reads, own.read), (writes, own.written)):
            for memory, first, end in spans:
                if memory in last:
                    last[memory][first:end] = position
        own.op.append(index)
        low, _ = steps(op.instruction, bounds, config, times.accumulate)
        own.last_end.append((own.last_end[-1] if own.last_end else 0) + low)
    return [Instruction(op.instruction.opcode, {**op.instruction.values, **extra})
            for op, extra in zip(ops, bits, strict=True)]


def _between(ends: list[int], earlier: int, position: int) -> int:
    """Least cycles from the last step of `earlier` to the first step of the instruction at `position`."""
    return ends[position - 1] - ends[earlier] + 1
