"""Properties of queues, tokens and AXI channels: nothing lost, nothing twice, nothing out of order."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Assert, Assume
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.axi import Slice
from hw.config import preset
from hw.engine import Front
from hw.hostport import CONTROL_PORT, WINDOW_PORT, HostPort, Queue
from hw.hostwindow import Answers
from hw.timing import latencies
from tests.formal.inside import opened
from tests.formal.prove import Proof

__all__ = ["PROOFS"]

COUNT = 4  # bits of the numbers that entries carry; more than any of these queues holds


def _past(m: Module, value, name: str):
    """The value a cycle ago, and whether there was one."""
    before, started = Signal.like(value, name=f"{name}_before"), Signal(name=f"{name}_started")
    m.d.sync += [before.eq(value), started.eq(1)]
    return before, started


class SliceKeeps(wiring.Component):
    """A register slice whose payload counts."""

    valid: In(1)
    ready: In(1)

    def elaborate(self, platform):
        m = Module()
        component = Slice(COUNT)
        m.submodules.slice, inside = opened(component)
        came, went = Signal(COUNT), Signal(COUNT)
        into, out = component.i.valid & component.i.ready, component.o.valid & component.o.ready
        m.d.comb += [
            component.i.valid.eq(self.valid), component.o.ready.eq(self.ready), component.i.payload.eq(came),
            Assert((came - went)[:COUNT] == component.o.valid + inside["spared"]),
            Assert(~component.o.valid | (component.o.payload == went)),
            Assert(~inside["spared"] | (component.o.valid & (inside["spare"] == (went + 1)[:COUNT]))),
        ]
        m.d.sync += [came.eq(came + into), went.eq(went + out)]
        _held(m, component.o.valid, component.o.ready, component.o.payload, "o")
        return m


def _held(m: Module, valid, ready, payload, name: str) -> None:
    """Once valid, a channel stays so with the same payload until it is taken."""
    facts, started = _past(m, Cat(valid & ~ready, payload), name)
    with m.If(started & facts[0]):
        m.d.comb += [Assert(valid), Assert(payload == facts[1:])]


class QueueKeeps(wiring.Component):
    """The host port's queue, whose payload counts."""

    valid: In(1)
    ready: In(1)

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = Queue(data.StructLayout({"n": COUNT}), depth=4)
        came, went = Signal(COUNT), Signal(COUNT)
        m.d.comb += [
            queue.i.valid.eq(self.valid), queue.o.ready.eq(self.ready), queue.i.payload.n.eq(came),
            Assert((came - went)[:COUNT] == queue.count),
            Assert(queue.count <= queue.depth),
            Assert(~queue.o.valid | ((queue.o.payload.n == went) & (queue.count != 0))),
            Assert((queue.count == queue.depth) | queue.i.ready),
        ]
        m.d.sync += [came.eq(came + (queue.i.valid & queue.i.ready)), went.eq(went + (queue.o.valid & queue.o.ready))]
        _held(m, queue.o.valid, queue.o.ready, queue.o.payload.as_value(), "o")
        return m


class AnswersKeep(wiring.Component):
    """The window's beats on their way from the core, whose words count."""

    ask: In(1)
    ready: In(1)

    def elaborate(self, platform):
        m = Module()
        answers = Answers(latencies(preset("tiny")).host_read)
        m.submodules.answers, inside = opened(answers)
        held, count, owed, came = (inside[name] for name in ("held", "count", "owed", "came"))
        arrived, went = Signal(COUNT), Signal(COUNT)
        on_their_way = sum(inside["way"])
        m.d.comb += [
            Assume(~self.ask | answers.room), answers.ask.eq(self.ask), answers.ready.eq(self.ready),
            answers.line.eq(arrived), Assume(~came | ((inside["beat"].word == 0) & ~inside["beat"].zero)),
            Assert(owed <= answers.depth), Assert(owed == count + on_their_way),
            Assert((arrived - went)[:COUNT] == count),
            *(Assert((count <= n) | (entry.data == (went + n)[:COUNT])) for n, entry in enumerate(held)),
            Assert(~answers.valid | (answers.data == went)),
        ]
        m.d.sync += [arrived.eq(arrived + came), went.eq(went + (answers.valid & self.ready))]
        _held(m, answers.valid, answers.ready, Cat(answers.data, answers.response, answers.last), "o")
        return m


class _FrontBench(wiring.Component):
    """An engine's front with an engine behind it that takes any time, and a sequencer that pushes if there is room."""

    depth = 4

    def __init__(self, *, fence_gap: int = 6, done_gap: int = 7) -> None:
        self.fence_gap, self.done_gap = fence_gap, done_gap
        super().__init__({"push": In(1), "wait": In(4), "signal": In(1), "fence": In(1), "last": In(1),
                          "token": In(1), "start": Out(1)})

    def bench(self, m: Module):
        layout = data.StructLayout({"wait": 4, "signal": 1, "fence": 1, "n": COUNT})
        front = Front(layout, depth=self.depth, fence_gap=self.fence_gap, done_gap=self.done_gap)
        m.submodules.front, inside = opened(front)
        active, came, went = Signal(), Signal(COUNT), Signal(COUNT)
        m.d.comb += [
            front.push.eq(self.push), Assume(~self.push | front.room),
            front.payload.wait.eq(self.wait), front.payload.signal.eq(self.signal), front.payload.fence.eq(self.fence),
            front.payload.n.eq(came), front.active.eq(active), front.last.eq(active & self.last),
            front.signals.eq(self.signal), front.token_i.eq(self.token), self.start.eq(front.start),
        ]
        with m.If(front.start):
            m.d.sync += active.eq(1)
        with m.Elif(front.last):
            m.d.sync += active.eq(0)
        m.d.sync += [came.eq(came + self.push), went.eq(went + front.start)]
        return front, inside, active, came, went


class FrontCounts(_FrontBench):
    """The number of entries."""

    def elaborate(self, platform):
        m = Module()
        front, inside, active, came, went = self.bench(m)
        m.d.comb += [
            Assert((came - went)[:COUNT] == inside["count"]),
            Assert(inside["count"] <= self.depth),
            Assert(front.room == (inside["count"] != self.depth)),
            Assert(~front.start | ((inside["count"] != 0) & (~active | front.last))),
        ]
        return m


class FrontOrder(_FrontBench):
    """Instructions leave in the order in which they came, each once."""

    def elaborate(self, platform):
        m = Module()
        front, _inside, _active, _came, went = self.bench(m)
        m.d.comb += Assert(~front.start | (front.head.n == went))
        return m


class FrontTokens(_FrontBench):
    """Tokens: given less taken, never below zero, as long as no more than 255 are on the way."""

    def elaborate(self, platform):
        m = Module()
        front, inside, _active, _came, _went = self.bench(m)
        wide = Signal(16)
        taken = Mux(front.start, front.head.wait, 0)
        m.d.comb += [
            Assume(wide + front.token_i - taken <= 255),
            Assert(inside["tokens"] == wide),
            Assert(wide >= taken),
        ]
        m.d.sync += wide.eq(wide + front.token_i - taken)
        return m


class FrontFences(_FrontBench):
    """An instruction behind a fence starts so late that all results of the previous ones are written.

    Distances around a power of two, where a counter could be a bit too short.
    """

    def __init__(self) -> None:
        super().__init__(fence_gap=10)

    def elaborate(self, platform):
        m = Module()
        front, _inside, active, _came, _went = self.bench(m)
        idle = Signal(range(16), init=15)  # cycles since the last step
        m.d.sync += idle.eq(Mux(active, 1, Mux(idle == 15, 15, idle + 1)))
        m.d.comb += Assert(~(front.start & front.head.fence) | (~active & (idle >= self.fence_gap - 1)))
        return m


class HostChannels(wiring.Component):
    """The host port of `tiny` with any core and any host."""

    def __init__(self) -> None:
        self.port = HostPort(preset("tiny"), read_latency=latencies(preset("tiny")).host_read)
        super().__init__({name: In(member.shape) for name, member in self.port.signature.members.items()
                          if member.flow == In})

    def elaborate(self, platform):
        m = Module()
        m.submodules.port = port = self.port
        for name, member in port.signature.members.items():
            if member.flow == In:
                m.d.comb += getattr(port, name).eq(getattr(self, name))
        for prefix, channels in (("control", CONTROL_PORT), ("window", WINDOW_PORT)):
            for name, (driver, payload) in channels.items():
                if driver == "in":
                    valid, ready = (getattr(port, f"{prefix}_{name}{wire}") for wire in ("valid", "ready"))
                    _held(m, valid, ready, Cat(getattr(port, f"{prefix}_{field}") for field in payload),
                          f"{prefix}_{name}")
        return m


class HostAnswers(HostChannels):
    """Answers are never more than requests, on both ports."""

    def elaborate(self, platform):
        m = super().elaborate(platform)
        port = self.port

        def count(name, happens, by=1):
            total = Signal(16, name=name)
            m.d.sync += total.eq(total + Mux(happens, by, 0))
            return total

        def taken(channel):
            return getattr(port, f"{channel}valid") & getattr(port, f"{channel}ready")

        for prefix in ("control", "window"):
            aw, w, b, ar = (count(f"{prefix}_{c}_count", taken(f"{prefix}_{c}")) for c in ("aw", "w", "b", "ar"))
            m.d.comb += [Assert(b <= aw), Assert(b <= w)]
            if prefix == "control":
                m.d.comb += Assert(count("control_r_count", taken("control_r")) <= ar)
            else:
                ends = count("window_r_count", taken("window_r") & port.window_rlast)
                beats = count("window_beats", taken("window_r"))
                asked = count("window_asked", taken("window_ar"), port.window_arlen + 1)
                m.d.comb += [Assert(ends <= ar), Assert(beats <= asked)]
        return m


PROOFS = (
    Proof("slice", "an AXI register slice loses, doubles and reorders nothing, holds valid and payload until taken",
          SliceKeeps, 3, induction=True, quick=True),
    Proof("queue", "the host port's queues lose, double and reorder nothing, and never overflow", QueueKeeps, 20),
    Proof("window-beats", "the window's beats that the core read are delivered in order, each once, with room for all",
          AnswersKeep, 2, induction=True, quick=True),
    Proof("engine-queue", "an engine's queue never overflows or underflows, and starts only an idle engine",
          FrontCounts, 2, induction=True, quick=True),
    Proof("engine-order", "an engine's queue hands instructions on in order, each once", FrontOrder, 14),
    Proof("tokens", "an engine's tokens are those given less those taken, and never below zero", FrontTokens, 2,
          induction=True, quick=True),
    Proof("fence", "behind a fence no step comes before the results of all earlier steps are written", FrontFences, 24),
    Proof("axi-held", "B and R of both AXI ports hold valid and payload until ready, whatever host and core do",
          HostChannels, 2, induction=True),
    Proof("axi-answers", "both AXI ports never answer more than was asked", HostAnswers, 16),
)
