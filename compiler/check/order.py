"""Order that no argument changes: tokens between the engines, and reductions carried from instruction to
instruction.

Tokens. The instructions of one engine start and end in program order, and a token is given when the results
of its instruction, and so of all earlier ones of that engine, are in their memories. The n-th token taken is
the n-th given. So an engine's instruction that has taken w tokens, its predecessors' included, runs after the
instruction of the other engine that gave the w-th, and after all before that one; nothing else orders the
engines.

No deadlock. If every token that an instruction takes is given by an instruction before it in program order,
then, by induction over that order, every instruction starts: all before it have been pushed before it and
end, whatever the depth of the queues, for an instruction held in a full queue holds up only later ones.

Counters. When the sequencer pushes an instruction, at most `queue` instructions of the other engine that
precede it have not started. So the tokens given by it and before it, less those taken by the preceding
instructions of the other engine but the last `queue`, bound the counter.
"""

import numpy as np

from compiler.check import kernel
from compiler.check.control import Complaint, Trace
from compiler.check.fields import Template
from compiler.check.report import Listing
from hw.config import HardwareConfig
from hw.isa import Reduce
from hw.timemodel import TOKENS

__all__ = ["Order", "order", "reductions"]


class Order:
    """For each executed instruction: its engine, its place in that engine's order, and the place in the other
    engine's order of the last instruction that has ended before it starts, -1 for none. int64 (n,)."""

    def __init__(self, n: int) -> None:
        self.engine, self.place, self.covers = (np.zeros(n, np.int64) for _ in range(3))


def order(trace: Trace, templates: dict[int, Template], config: HardwareConfig, listing: Listing,
          complain: Complaint) -> Order:
    """Follow the tokens of a command; reports deadlocks, tokens left over and counters that overflow."""
    out = Order(len(trace.address))
    given: tuple[list[int], list[int]] = ([], [])       # for each engine, places of the givers, in order
    taken = [0, 0]
    takes: tuple[list[int], list[int]] = ([], [])       # tokens taken up to and with each instruction
    for k, address in enumerate(trace.address.tolist()):
        t = templates[address]
        engine = kernel.VECTOR if t.vector else kernel.MATRIX
        other = 1 - engine
        taken[engine] += t.fields["wait"]
        if taken[engine] > len(given[engine]):
            complain(address, "deadlock", "tokens must come from earlier instructions of the other engine; "
                                          "this one waits for "
                     f"token {taken[engine]} and only {len(given[engine])} are given before it, so it waits "
                     "for ever")
            taken[engine] = len(given[engine])
        out.engine[k], out.place[k] = engine, len(takes[engine])
        out.covers[k] = given[engine][taken[engine] - 1] if taken[engine] else -1
        takes[engine].append(taken[engine])
        if t.fields["signal"]:
            given[other].append(int(out.place[k]))
            certain = len(takes[other]) - config.queue
            waiting = len(given[other]) - (takes[other][certain - 1] if certain > 0 else 0)
            if waiting > TOKENS:
                complain(address, "tokens", f"a token counter holds {TOKENS}; here it may have to hold "
                                            f"{waiting}")
    for engine, name in ((kernel.MATRIX, "matrix"), (kernel.VECTOR, "vector")):
        left = len(given[engine]) - taken[engine]
        if left:
            # The first token that is not taken: its giver, by place in the other engine's order.
            place = given[engine][taken[engine]]
            giver = int(np.flatnonzero((out.engine == 1 - engine) & (out.place == place))[0])
            complain(int(trace.address[giver]), "balance", f"all tokens must be taken at HALT; the {name} "
                                                           f"engine leaves {left}, "
                     f"and this instruction gives one of them")
    return out


def reductions(trace: Trace, templates: dict[int, Template], listing: Listing, complain: Complaint) -> None:
    """A reduction that does not begin afresh continues one of its own kind, begun in this command."""
    kind, since, last = Reduce.NONE, -1, int(max(Reduce))
    for address in trace.address.tolist():
        t = templates[address]
        if not t.vector or not t.fields["reduce"] or t.fields["reduce"] > last:
            continue
        mine = Reduce(t.fields["reduce"])
        if not t.fields["reduce_init"] and mine != kind:
            before = "nothing" if since < 0 else f"{listing.name(since)} began {kind.name}"
            complain(address, "reduction", "a reduction without reduce_init continues one of its kind; "
                                           f"this {mine.name} follows "
                     f"{before}")
        kind, since = mine, address
