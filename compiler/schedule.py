"""Schedules a window: orders the instructions of both engines so that each finds work while the other computes.

List scheduling over the dependence graph of the window (networkx), judged by the machine's distances: whenever an
engine is free it takes, of the instructions whose inputs are ready, the first by rank.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx

from compiler.emitter import MachineOp, Window
from compiler.footprint import Bounds, Span, steps
from hw.config import HardwareConfig
from hw.timing import Latencies

__all__ = ["Schedule", "conflicts", "dependences", "schedule_window"]


def _overlap(a: list[Span], b: list[Span]) -> str | None:
    """The memory in which two lists of spans meet, if any."""
    for memory, low, high in a:
        for other, first, end in b:
            if low < end and first < high and memory == other:
                return memory
    return None


def conflicts(earlier: MachineOp, later: MachineOp) -> str | None:
    """Why `later` must come after `earlier`: the memory it reads a result from, "order" for other hazards, or None."""
    memory = _overlap(earlier.touches.writes, later.touches.reads)
    if memory is not None:
        return memory
    if (_overlap(earlier.touches.reads, later.touches.writes) is not None
            or _overlap(earlier.touches.writes, later.touches.writes) is not None):
        return "order"
    return None


@dataclass(frozen=True)
class Schedule:
    """The policy's view of the machine: distances, and typical lengths of loops that depend on registers."""

    config: HardwareConfig
    latencies: Latencies
    bounds: Bounds
    order: str = "program"

    def length(self, op: MachineOp) -> int:
        """Steps that the instruction typically takes."""
        low, high = steps(op.instruction, self.bounds, self.config, self.latencies.accumulate)
        return min(high, (low + high) // 2 + 1) if low != high else low

    def distance(self, earlier: MachineOp, later: MachineOp, why: str) -> int:
        """Cycles from the last step of one instruction to the first of another that depends on it."""
        t = self.latencies
        if earlier.matrix != later.matrix:
            return t.matrix_done if earlier.matrix else t.vector_done
        if earlier.matrix or why in ("order", "partials"):
            return 1
        return t.scalar_write if why == "scalars" else t.vector_write


def dependences(ops: list[MachineOp]) -> nx.DiGraph:
    """The graph of hazards between the instructions of a window; edges carry the reason."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(ops)))
    for later, op in enumerate(ops):
        for earlier in range(later):
            why = conflicts(ops[earlier], op)
            if why is not None:
                graph.add_edge(earlier, later, why=why)
    return graph


def schedule_window(window: Window, policy: Schedule, rank: Sequence[int] | None = None) -> list[int]:
    """The order of the window's instructions, as indices, by the time at which they would start.

    Among the ready the one that can start first is taken; of those the one with the lowest `rank`, which is the program
    order if not given, or with the longest way to the end where the policy is "urgent".
    """
    ops = window.ops
    graph = dependences(ops)
    length = [policy.length(op) for op in ops]
    if rank is None:
        rank = _urgency(ops, graph, length, policy) if policy.order == "urgent" else range(len(ops))
    missing = {n: graph.in_degree(n) for n in graph}
    ready = [n for n in graph if not missing[n]]
    earliest = [0] * len(ops)
    free = {True: 0, False: 0}          # by engine: matrix, vector
    emits = [any(s[0] == "scalars" for s in op.touches.writes) for op in ops]
    emitted = -policy.latencies.scalar_write
    order: list[tuple[int, int]] = []

    def start_of(n: int) -> int:
        start = max(earliest[n], free[ops[n].matrix])
        if scalars[n] > free[False]:    # a scalar fence waits for the latest scalar, not only for the one that is read
            start = max(start, emitted + policy.latencies.scalar_write)
        return start

    scalars = [0] * len(ops)
    while ready:
        start, _, n = min((start_of(n), rank[n], n) for n in ready)
        ready.remove(n)
        last = start + length[n] - 1
        free[ops[n].matrix] = last + 1
        if emits[n]:
            emitted = last
        order.append((start, n))
        for m in graph.successors(n):
            why = graph.edges[n, m]["why"]
            at = last + policy.distance(ops[n], ops[m], why)
            earliest[m] = max(earliest[m], at)
            if why == "scalars":
                scalars[m] = max(scalars[m], at)
            missing[m] -= 1
            if not missing[m]:
                ready.append(m)
    order.sort()
    return [n for _, n in order]


def _urgency(ops: list[MachineOp], graph: nx.DiGraph, length: list[int], policy: Schedule) -> list[int]:
    """Minus the longest way from each instruction to the end of the window, in cycles."""
    way = [0] * len(ops)
    for n in reversed(list(nx.topological_sort(graph))):
        way[n] = length[n] + max((way[m] + policy.distance(ops[n], ops[m], graph.edges[n, m]["why"])
                                  for m in graph.successors(n)), default=0)
    return [-w for w in way]
