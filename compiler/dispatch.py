"""Dispatch by price: alternatives are compiled, the timing model prices them, the cheapest is taken.

Choices are decided one after the other (coordinate descent), each against the best so far, on a model of a few
layers of the real shape; the report keeps what every alternative would have cost.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from compiler.choices import Choices
from compiler.errors import PlacementError
from compiler.ir import Graph, Op
from compiler.kernels.registry import kernels_of
from compiler.lower import KERNEL_MODULES, lower
from compiler.place import Placement
from compiler.program import entry_point, price
from hw.roofline import cache_rows

__all__ = ["LAYERS", "Alternative", "Decision", "Found", "choose", "search"]

assert KERNEL_MODULES   # the registry is full once they are imported

LAYERS = 3
"""Layers that are priced: enough for what happens between two of them."""

SPLITS = ((), (1,), (1, 3), (1, 3, 7), (1, 2, 4, 8))
CHUNKS = (8, 16, 32)
HEADS = (0, 1, 2, 4)
ORDERS = ("program", "urgent")


@dataclass(frozen=True)
class Alternative:
    """One way, and the cycles it costs; None when it does not fit the device."""

    name: str
    cycles: int | None


@dataclass(frozen=True)
class Decision:
    """What was decided, between which alternatives."""

    what: str
    taken: str
    alternatives: tuple[Alternative, ...]

    def __str__(self) -> str:
        best = min(a.cycles for a in self.alternatives if a.cycles is not None)
        shown = ", ".join(f"{a.name}: " + ("does not fit" if a.cycles is None else f"{a.cycles:,}"
                                           + (f" (+{a.cycles / best - 1:.2%})" if a.cycles > best else ""))
                          for a in self.alternatives)
        return f"{self.what:14} -> {self.taken:24} {shown}"


Way = tuple[str, Choices]
"""An alternative's name, and the choices with it."""


def _kernel_points(graph: Graph) -> Iterator[tuple[str, Callable[[Choices], list[Way]]]]:
    for op in dict.fromkeys(node.op for node in graph):
        kernels = kernels_of(op)
        if len(kernels) > 1:
            names = {k.name: k.name if k.name == k.origin else f"{k.name} ({k.origin})" for k in kernels}
            yield op.value, partial(_kernel_ways, op, names)


def _kernel_ways(op: Op, names: dict[str, str], c: Choices) -> list[Way]:
    return [(shown, c.with_kernel(op, name)) for name, shown in names.items()]


_POINTS: tuple[tuple[str, Callable[[Choices], list[Way]]], ...] = (
    ("cuts", lambda c: [(str(list(s)), replace(c, split=s)) for s in SPLITS]),
    ("chunk", lambda c: [(f"1/{n}", replace(c, chunk=n)) for n in CHUNKS]),
    ("heads", lambda c: [(str(n or "all"), replace(c, heads=n)) for n in HEADS]),
    ("order", lambda c: [(order, replace(c, order=order)) for order in ORDERS]),
)
"""Every choice that changes no bit: its name, and its alternatives given the other choices."""


class _Pricer:
    """Prices choices for one entry point, each combination once."""

    def __init__(self, graph: Graph, placement: Placement, functions: dict[str, int], bucket: int,
                 positions: Sequence[int], sequences: int) -> None:
        self.arguments = (graph, placement, functions, bucket, True)
        self.placement, self.positions, self.sequences = placement, positions, sequences
        self.known: dict[str, int | None] = {}

    def __call__(self, choices: Choices) -> int | None:
        key = str(choices)
        if key not in self.known:
            try:
                self.known[key] = self.with_ranks(choices, None)
            except PlacementError:
                self.known[key] = None
        return self.known[key]

    def with_ranks(self, choices: Choices, ranks: dict[str, Sequence[int]] | None) -> int:
        entry = entry_point(*self.arguments, choices, 1 << 16, ranks, self.sequences)
        return price(entry, self.placement, self.positions)


def _positions(bucket: int, below: int) -> list[int]:
    """Where an entry point for contexts in (below, bucket] is priced: at a quarter and three quarters."""
    return [below + (bucket - below) * k // 4 for k in (1, 3)]


def choose(graph: Graph, placement: Placement, functions: dict[str, int], bucket: int, below: int,
           sequences: int = 1, kernels: Choices | None = None) -> tuple[Choices, list[Decision]]:
    """The cheapest choices for contexts from `below` to `bucket`, and how they were found.

    With `kernels`, those are kept and only cuts and orders are decided: kernels of one operation may round differently,
    and a sequence shall get the same bits in every entry point.

    `graph` is the fused graph of `LAYERS` layers. Raises `PlacementError` when nothing fits.
    """
    pricer = _Pricer(graph, placement, functions, bucket, _positions(bucket, below), sequences)
    best = Choices() if kernels is None else Choices(kernels=kernels.kernels)
    cost = pricer(best)
    decisions = []
    for what, ways in (*(_kernel_points(graph) if kernels is None else ()), *_POINTS):
        priced = ways(best)
        alternatives = tuple(Alternative(name, pricer(choices)) for name, choices in priced)
        fitting = [(a.cycles, n) for n, a in enumerate(alternatives) if a.cycles is not None]
        if not fitting:
            continue
        cycles, n = min(fitting)
        if cost is None or cycles < cost:
            cost, best = cycles, priced[n][1]
        taken = next((name for name, choices in priced if str(choices) == str(best)), alternatives[n].name)
        decisions.append(Decision(what, taken, alternatives))
    if cost is None:    # let the default say what is missing
        entry_point(graph, placement, functions, bucket, True, best, 1 << 16, None, sequences)
    return best, decisions


@dataclass(frozen=True)
class Found:
    """What the local search gained: cycles before and after, the row-read bound, and the attempts it took."""

    before: int
    after: int
    bound: float
    attempts: int

    def __str__(self) -> str:
        return (f"{'search':14} -> {self.before - self.after} of {self.before:,} cycles gained in {self.attempts} "
                f"attempts; {self.bound:,.0f} rows must be read, so that no order can save more than "
                f"{self.after - self.bound:,.0f} ({1 - self.bound / self.after:.2%})")


def search(graph: Graph, placement: Placement, functions: dict[str, int], bucket: int, below: int, choices: Choices,
           attempts: int, seed: int = 0) -> tuple[dict[str, Sequence[int]], Found]:
    """Local search over the scheduler's preferences in a layer: move one instruction, keep it if the step is faster."""
    pricer = _Pricer(graph, placement, functions, bucket, _positions(bucket, below), 1)
    draw = random.Random(seed)
    size = _layer_size(graph, placement, functions, bucket, choices)
    rank = list(range(size))
    before = best = pricer.with_ranks(choices, {"layer": rank})
    for _ in range(attempts):
        order = sorted(range(size), key=rank.__getitem__)
        n = order.pop(draw.randrange(size))
        order.insert(max(0, min(size - 1, rank[n] + draw.choice((-8, -4, -2, -1, 1, 2, 4, 8)))), n)
        trial = [0] * size
        for place, m in enumerate(order):
            trial[m] = place
        cycles = pricer.with_ranks(choices, {"layer": trial})
        if cycles <= best:
            best, rank = cycles, trial
    return {"layer": rank}, Found(before, best, _row_bound(graph, placement, pricer.positions), attempts)


def _row_bound(graph: Graph, placement: Placement, positions: Sequence[int]) -> float:
    """Rows that every tile must read for a decode step of `graph` at each of the positions."""
    shape = placement.geometry.shape
    layers = 1 + max(node.layer for node in graph)
    weights = sum(w.lines * w.blocks for name, w in placement.weights.items()
                  if name.startswith("layers.") and int(name.split(".")[1]) < layers)
    one = weights + placement.needed_rows()["output"]
    return sum(one + cache_rows(placement.geometry.config, layers, shape.heads, shape.head_dim, position + 1)
               for position in positions)


def _layer_size(graph: Graph, placement: Placement, functions: dict[str, int], bucket: int, choices: Choices) -> int:
    context = lower(graph, placement, functions, bucket, True, choices)[0]
    return max(len(window.ops) for window in context.e.windows if window.name.startswith("layer"))
