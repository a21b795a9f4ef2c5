"""The front of an engine: its queue, its tokens, and the conditions under which an instruction may start."""

from amaranth import C, Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

__all__ = ["Front", "TOKEN_BITS"]

TOKEN_BITS = 8
"""Width of a token counter."""


class Front(wiring.Component):
    """In-order queue of resolved instructions.

    `start` is high in the cycle before an instruction's first step, while the engine is idle or at its last step, if

    * enough tokens are there, which are then taken;
    * with `fence`: the engine is idle and `fence_gap` cycles have passed since its last step;
    * with `chain`: `chain_gap` cycles have passed since the first step of the previous instruction;
    * with `reduce_fence`: `scalar_gap` cycles have passed since the last step of the latest instruction that emitted.

    Timing: an instruction pushed in one cycle is at `head` in the next.

    Parameters
    ----------
    layout : StructLayout
        Instructions; members wait, signal, fence, and for the vector engine chain and reduce_fence.
    depth : int
        Entries of the queue.
    fence_gap : int
        Distance from a last step to a first step behind a fence.
    done_gap : int
        Distance from a last step to the first step of the other engine that its token allows.
    chain_gap, scalar_gap : int
        For `chain` and `reduce_fence`; 0 leaves them out.

    Members
    -------
    push, payload : In
        An instruction; only while `room`.
    room : Out(1)
        The queue has a free entry.
    head, start : Out
        Oldest instruction; it leaves the queue now.
    active, last, emits, signals : In
        The engine is at a step; at the last of an instruction; that instruction emits scalars; it signals.
    token_i, token_o : In(1), Out(1)
        A token from and for the other engine.
    clear : In(1)
        Forget everything.
    quiet : Out(1)
        Nothing waits, nothing runs, and all results are written.
    state : Out(16)
        What the host sees of it: `ENGINE_FIELDS` of `hw.memorymap`.
    """

    def __init__(self, layout: data.StructLayout, *, depth: int, fence_gap: int, done_gap: int, chain_gap: int = 0,
                 scalar_gap: int = 0) -> None:
        self.layout, self.depth = layout, depth
        self.fence_gap, self.done_gap = fence_gap, done_gap
        self.chain_gap, self.scalar_gap = chain_gap, scalar_gap
        super().__init__({
            "push": In(1), "payload": In(layout), "room": Out(1),
            "head": Out(layout), "start": Out(1),
            "active": In(1), "last": In(1), "emits": In(1), "signals": In(1),
            "token_i": In(1), "token_o": Out(1),
            "clear": In(1), "quiet": Out(1), "state": Out(16),
        })

    def elaborate(self, platform):
        m = Module()

        # Queue.
        m.submodules.queue = queue = Memory(shape=self.layout, depth=self.depth, init=[])
        write, read = queue.write_port(), queue.read_port(domain="comb")
        count = Signal(range(self.depth + 1))
        m.d.comb += [
            write.en.eq(self.push),
            write.data.eq(self.payload),
            self.head.eq(read.data),
            self.room.eq(count != self.depth),
        ]

        def advance(pointer, by):
            with m.If(by):
                m.d.sync += pointer.eq(Mux(pointer == self.depth - 1, 0, pointer + 1))

        advance(write.addr, self.push)
        advance(read.addr, self.start)
        m.d.sync += count.eq(count + self.push - self.start)

        # Distances, as counters that have run down to zero when they are kept.
        def distance(name, gap, again):
            left = Signal(range(max(2, gap + 1)), name=name)
            with m.If(again):
                m.d.sync += left.eq(gap)
            with m.Elif(left != 0):
                m.d.sync += left.eq(left - 1)
            return left == 0

        # Counted from a step in cycle c and seen from c + 1 on; a start in cycle c is a first step in c + 1.
        fenced = distance("fence_left", self.fence_gap - 2, self.active)
        written = distance("done_left", self.done_gap - 2, self.active)
        tokens = Signal(TOKEN_BITS)
        allowed = (tokens >= self.head.wait) & (~self.head.fence | (fenced & ~self.active))
        settled = written
        if self.chain_gap:
            chained = distance("chain_left", self.chain_gap - 1, self.start)
            allowed &= ~self.head.chain | chained
        if self.scalar_gap:
            emitting = self.active & self.emits
            scalars = distance("scalar_left", self.scalar_gap - 2, emitting)
            allowed &= ~self.head.reduce_fence | (scalars & ~emitting)
            settled &= scalars
        m.d.comb += self.start.eq((count != 0) & (~self.active | self.last) & allowed)

        # Tokens.
        m.d.sync += tokens.eq(tokens + self.token_i - Mux(self.start, self.head.wait, 0))
        line = Signal(self.done_gap - 2)
        m.d.sync += line.eq(Cat(self.last & self.signals, line)[:len(line)])
        m.d.comb += self.token_o.eq(line[-1])

        # Registered, so that looking is no part of any path of the engine.
        m.d.sync += self.state.eq(Cat(count, C(0, 7 - len(count)), self.active, tokens))

        m.d.sync += self.quiet.eq((count == 0) & ~self.push & ~self.active & settled)
        with m.If(self.clear):
            m.d.sync += [count.eq(0), write.addr.eq(0), read.addr.eq(0), tokens.eq(0), line.eq(0)]
        return m
