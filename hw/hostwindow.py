"""The AXI4 window: bursts of 32-bit words become accesses to lines of the core's memories."""

from amaranth import C, Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw import axi
from hw.config import LINE_WORDS
from hw.memorymap import (
    AXI_BITS,
    FIELDS,
    PAGE_BYTES,
    SPACE_TABLE,
    line_words,
    lines,
    pitch,
)

__all__ = ["Decoder", "Window"]

PAGE_BITS = (PAGE_BYTES - 1).bit_length()
LINE_BITS = 32 * LINE_WORDS


class Decoder(wiring.Component):
    """Splits a window address, all in one cycle.

    Members
    -------
    address : In(AXI_BITS)
    space, tile, line, word : Out
        Its parts; `word` counts inside the line.
    exists : Out(1)
        There is such a word, or it is padding.
    padding : Out(1)
        It lies between two lines.
    bytewise, whole : Out(1)
        Single bytes can be written there; only whole lines can.
    """

    def __init__(self, config):
        self.config = config
        super().__init__({
            "address": In(AXI_BITS), "space": Out(4), "tile": Out(5), "line": Out(24), "word": Out(4),
            "exists": Out(1), "padding": Out(1), "bytewise": Out(1), "whole": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        parts, rest = {}, self.address
        for name, width in FIELDS:
            parts[name], rest = rest[:width], rest[width:]
        offset, beyond = parts["offset"][2:], rest
        m.d.comb += [self.space.eq(parts["space"]), self.tile.eq(parts["tile"])]
        with m.Switch(parts["space"]):
            for space, info in SPACE_TABLE.items():
                with m.Case(space):
                    bits = pitch(space).bit_length() - 1
                    line, word = offset[bits:], offset[:bits]
                    even, odd = line_words(space)
                    tile_exists = parts["tile"] < (self.config.tiles if info.per_tile else 1)
                    m.d.comb += [
                        self.line.eq(line), self.word.eq(word), self.bytewise.eq(info.bytewise),
                        self.whole.eq(info.whole),
                        self.exists.eq((line < lines(space, self.config)) & tile_exists & (beyond == 0)),
                        self.padding.eq(word >= Mux(line[0], odd, even)),
                    ]
        return m


class Answers(wiring.Component):
    """Beats of a read, on their way and waiting for the host to take them.

    Words of the core come without asking whether there is room, so that no more are asked for than there is room for.

    Parameters
    ----------
    latency : int
        Cycles from `ask` to its `word`.

    Members
    -------
    ask, room : In(1), Out(1)
        A beat is asked for; another may be.
    beat : In
        Of the beat that is asked for: `word` of its line, whether it is `zero` instead, `response`, `last`.
    line : In
        The line of the beat asked for `latency` cycles ago.
    valid, data, response, last : Out; ready : In(1)
        The oldest beat, unchanged until taken.
    empty : Out(1)
        None is on its way or waits.
    """

    def __init__(self, latency):
        self.latency = latency
        self.depth = latency + 2
        """Beats on their way and waiting: enough for one a cycle."""
        self.beat_layout = data.StructLayout({"word": 4, "zero": 1, "response": axi.Response, "last": 1})
        super().__init__({
            "ask": In(1), "room": Out(1), "beat": In(self.beat_layout), "line": In(LINE_BITS),
            "valid": Out(1), "ready": In(1), "data": Out(axi.DATA_BITS), "response": Out(axi.Response), "last": Out(1),
            "empty": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        layout = data.StructLayout({"data": axi.DATA_BITS, "response": axi.Response, "last": 1})
        held = [Signal(layout, name=f"held_{n}") for n in range(self.depth)]
        count, owed = Signal(range(self.depth + 1)), Signal(range(self.depth + 1))
        taken = Signal()
        m.d.comb += [
            self.room.eq(owed != self.depth), self.empty.eq(owed == 0), self.valid.eq(count != 0),
            self.data.eq(held[0].data), self.response.eq(held[0].response), self.last.eq(held[0].last),
            taken.eq(self.valid & self.ready),
        ]
        m.d.sync += owed.eq(owed + self.ask - taken)

        came, beat, way = self.ask, self.beat, []
        for n in range(self.latency):
            later, fact = Signal(name=f"asked_{n}"), Signal(self.beat_layout, name=f"beat_{n}")
            m.d.sync += [later.eq(came), fact.eq(beat)]
            came, beat = later, fact
            way.append(later)

        m.d.sync += count.eq(count + came - taken)
        place = Signal.like(count)
        m.d.comb += place.eq(count - taken)
        for n, entry in enumerate(held):
            with m.If(came & (place == n)):
                m.d.sync += [entry.data.eq(Mux(beat.zero, 0, self.line.word_select(beat.word, 32))),
                             entry.response.eq(beat.response), entry.last.eq(beat.last)]
            with m.Elif(taken & (n + 1 < self.depth)):
                m.d.sync += entry.eq(held[(n + 1) % self.depth])
        return m


class Window(wiring.Component):
    """AXI4 subordinate in front of the core's host access.

    One burst at a time, reads and writes in turn when both wait, INCR or FIXED, of whole words or
    narrower. A beat takes a cycle, the first of a read ``read_latency + 1`` more; where only whole lines
    can be written, ``read_latency + 1`` a beat. A beat answers SLVERR, and
    changes nothing, when its address does not exist, when the burst is of another kind, when it writes
    padding, or when it strobes a part of a word where single bytes cannot be written. A write burst
    answers SLVERR if any of its beats does.

    Parameters
    ----------
    config : HardwareConfig
    read_latency : int
        Cycles from `host_read` to a valid `host_q`.

    Members
    -------
    aw, w, b, ar, r : streams of the window port
    page : In
        Added to the page part of every address.
    request : Out(1), grant : In(1)
        A burst waits or is under way; the core is free. Once granted, it must stay free while `request`
        holds.
    host_space, host_tile, host_address, host_read, host_q, host_write, host_data, host_strobe
        docs/machine.md, "Host access". `host_read` and `host_write` are strobes.
    """

    def __init__(self, config, *, read_latency):
        self.config = config
        self.read_latency = read_latency
        super().__init__({
            **axi.streams(axi.full(AXI_BITS)),
            "page": In(AXI_BITS - PAGE_BITS), "request": Out(1), "grant": In(1),
            "host_space": Out(4), "host_tile": Out(5), "host_address": Out(24), "host_read": Out(1),
            "host_q": In(LINE_BITS), "host_write": Out(1), "host_data": Out(LINE_BITS),
            "host_strobe": Out(LINE_BITS // 8),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.decoder = decoder = Decoder(self.config)
        m.submodules.answers = answers = Answers(self.read_latency)
        aw, w, ar = self.aw.payload, self.w.payload, self.ar.payload

        address = Signal(AXI_BITS)
        left = Signal(8)
        step = Signal(3)
        refused = Signal()  # the whole burst: its kind or width
        failed = Signal()  # a beat of this write burst
        wrote = Signal()  # the last burst was a write
        wait = Signal(range(self.read_latency + 1))
        ident = Signal(axi.ID_BITS)

        bad = refused | ~decoder.exists
        partial = ~(w.wstrb.all() | decoder.bytewise)
        m.d.comb += [
            decoder.address.eq(address),
            self.host_space.eq(decoder.space), self.host_tile.eq(decoder.tile),
            self.host_address.eq(decoder.line), self.host_data.eq(w.wdata.replicate(LINE_WORDS)),
            self.host_strobe.eq(w.wstrb << Cat(C(0, 2), decoder.word)),
            self.b.payload.bid.eq(ident), self.b.payload.bresp.eq(Mux(failed, axi.Response.SLVERR,
            axi.Response.OKAY)), self.r.payload.rid.eq(ident), self.r.payload.rdata.eq(answers.data),
            self.r.payload.rresp.eq(answers.response), self.r.payload.rlast.eq(answers.last),
            self.r.valid.eq(answers.valid), answers.ready.eq(self.r.ready), answers.line.eq(self.host_q),
            answers.beat.word.eq(decoder.word), answers.beat.zero.eq(bad | decoder.padding),
            answers.beat.response.eq(Mux(bad, axi.Response.SLVERR, axi.Response.OKAY)),
            answers.beat.last.eq(left == 0),
        ]

        def accept(channel, burst, prefix):
            get = {name: burst[prefix + name] for name in ("id", "addr", "len", "size", "burst")}
            m.d.comb += channel.ready.eq(1)
            m.d.sync += [
                address.eq(Cat(get["addr"][:PAGE_BITS], get["addr"][PAGE_BITS:] + self.page)),
                left.eq(get["len"]),
                step.eq(Mux(get["burst"] == axi.Burst.INCR, 1 << get["size"][:2], 0)),
                refused.eq((get["size"] > 2) | (get["burst"] > axi.Burst.INCR)),
                failed.eq(0),
                ident.eq(get["id"]),
            ]

        def advance():
            # To the next multiple of the step: the first address need not be one. Bursts stay in their page.
            low = address[:PAGE_BITS]
            m.d.sync += [low.eq(Mux(step == 0, low, (low | (step - 1)[:2]) + 1)), left.eq(left - 1)]

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.request.eq(self.aw.valid | self.ar.valid)
                with m.If(self.grant & self.aw.valid & ~(wrote & self.ar.valid)):
                    accept(self.aw, aw, "aw")
                    m.d.sync += wrote.eq(1)
                    m.next = "WRITE"
                with m.Elif(self.grant & self.ar.valid):
                    accept(self.ar, ar, "ar")
                    m.d.sync += wrote.eq(0)
                    m.next = "READ"

            with m.State("WRITE"):
                m.d.comb += [self.request.eq(1), self.w.ready.eq(1)]
                with m.If(self.w.valid & w.wstrb.any() & ~bad & ~decoder.padding & ~partial & decoder.whole):
                    m.d.comb += [self.w.ready.eq(0), self.host_read.eq(1)]
                    m.d.sync += wait.eq(self.read_latency - 1)
                    m.next = "MERGE"
                with m.Elif(self.w.valid):
                    with m.If(refused | (w.wstrb.any() & (bad | decoder.padding | partial))):
                        m.d.sync += failed.eq(1)
                    with m.Else():
                        m.d.comb += self.host_write.eq(w.wstrb.any())
                    advance()
                    with m.If(left == 0):
                        m.next = "ANSWER"

            with m.State("MERGE"):
                m.d.comb += [self.request.eq(1), self.host_strobe.eq(-1)]
                for n in range(LINE_WORDS):
                    with m.If(decoder.word != n):
                        m.d.comb += self.host_data.word_select(n, 32).eq(self.host_q.word_select(n, 32))
                m.d.sync += wait.eq(wait - 1)
                with m.If(wait == 0):
                    m.d.comb += [self.w.ready.eq(1), self.host_write.eq(1)]
                    advance()
                    m.next = "WRITE"
                    with m.If(left == 0):
                        m.next = "ANSWER"

            with m.State("ANSWER"):
                m.d.comb += [self.request.eq(1), self.b.valid.eq(1)]
                with m.If(self.b.ready):
                    m.next = "IDLE"

            with m.State("READ"):
                m.d.comb += [self.request.eq(1), answers.ask.eq(answers.room), self.host_read.eq(answers.room & ~bad)]
                with m.If(answers.room):
                    advance()
                    with m.If(left == 0):
                        m.next = "DRAIN"

            with m.State("DRAIN"):
                m.d.comb += self.request.eq(1)
                with m.If(answers.empty):
                    m.next = "IDLE"
        return m
