"""One entry point from graph to microcode: lower, schedule, synchronize, roll; and its price in cycles."""

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.choices import Choices
from compiler.context import FREE_REGISTERS
from compiler.emitter import MachineOp
from compiler.ir import Graph
from compiler.lower import lower
from compiler.place import Placement
from compiler.roll import Code, Listing, roll
from compiler.schedule import Schedule, schedule_window
from compiler.synchronize import synchronize
from hw.isa import encode
from hw.timemodel import predict
from hw.timing import latencies

__all__ = ["EntryPoint", "Pools", "entry_point", "price"]


@dataclass(frozen=True)
class Pools:
    """Most entries alive at once, of the entries there are, by memory."""

    used: dict[str, tuple[int, int]]


@dataclass(frozen=True)
class EntryPoint:
    """The words of one entry point, where it leaves the best token of each sequence, and what it needed."""

    listing: Listing
    argmax: tuple[int, ...]
    pools: Pools


def entry_point(graph: Graph, placement: Placement, functions: dict[str, int], bucket: int, logits: bool,
                choices: Choices, capacity: int, ranks: dict[str, Sequence[int]] | None = None,
                sequences: int = 1) -> EntryPoint:
    """Compile one entry point.

    `ranks` gives the scheduler's preferences in the windows "prologue", "layer" (all of them) and "epilogue".
    Raises `PlacementError` when a buffer or the microcode memory (`capacity` words) is too small.
    """
    config = placement.geometry.config
    times = latencies(config)
    contexts = lower(graph, placement, functions, bucket, logits, choices, sequences)
    c = contexts[0]
    policy = Schedule(config, times, c.e.bounds, choices.order)
    ops: list[MachineOp] = []
    ends = [0]
    for window in c.e.windows:
        rank = (ranks or {}).get(window.name.split()[0])
        if rank is not None and len(rank) != len(window.ops):
            rank = None
        ops += [window.ops[n] for n in schedule_window(window, policy, rank)]
        ends.append(len(ops))
    final = synchronize(ops, c.e.bounds, config, times)
    codes = [Code(window.control, final[a:b], [op.label for op in ops[a:b]])
             for window, a, b in zip(c.e.windows, ends, ends[1:], strict=False)]
    pools = Pools({pool.name: (pool.first + pool.most, pool.capacity)
                   for pool in (c.blocks, c.accumulators, c.scalars)})
    return EntryPoint(roll(codes, FREE_REGISTERS, capacity), tuple(c.best + 1 for c in contexts), pools)


def price(entry: EntryPoint, placement: Placement, positions: Sequence[int]) -> int:
    """Predicted cycles of the entry point, summed over some positions, which all its sequences share."""
    words = encode(entry.listing.words)
    return sum(predict(placement.geometry.config, words, 0,
                       [value for slot in range(len(entry.argmax)) for value in (0, position, slot)]).cycles
               for position in positions)
