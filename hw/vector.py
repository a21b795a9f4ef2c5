"""The vector engine: steps of the lanes over outer x inner words, one a cycle."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.config import BLOCK, HardwareConfig
from hw.engine import Front
from hw.isa import A, Reduce
from hw.payload import Payloads
from hw.timing import latencies

__all__ = ["Vector"]

# Fields of an instruction that all its steps have in common.
SHARED = ("a", "b", "c", "c_negate", "d", "function", "row_format", "half", "w_early", "w_single", "w_tile",
          "quantize_early", "narrow", "given", "reduce", "reduce_early", "absolute")
# Addresses: where they count, what else moves them.
ADDRESSES = ("x", "y", "z", "w_word", "p", "q", "r", "scale", "block", "r_dest")


class Vector(wiring.Component):
    """Queue and address generator of the vector engine.

    Timing: `step` holds one step a cycle (vector stage 0) with `valid`.

    Parameters
    ----------
    config : HardwareConfig
        The device.

    Members
    -------
    push, payload, room, token_i, token_o, clear, quiet, state
        See `hw.engine.Front`.
    step : Out
        The instruction's fields; addresses of this step; `element` of lane 0 and `word` mod 8; `index` of the word;
        `live` lanes; `write`, `quantize` with `block_first`, `reduces` with `init`, `emit`.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        self.layout = layout = Payloads(config).vector
        shape = {name: field.shape for name, field in layout}
        super().__init__({
            "push": In(1), "payload": In(layout), "room": Out(1),
            "token_i": In(1), "token_o": Out(1), "clear": In(1), "quiet": Out(1), "state": Out(16),
            "step": Out(data.StructLayout({
                "valid": 1, **{name: shape[name] for name in SHARED + ADDRESSES},
                "element": 5, "word": 3, "index": 32, "live": 6, "write": 1, "quantize": 1, "block_first": 1,
                "reduces": 1, "init": 1, "emit": 1,
            })),
        })

    def elaborate(self, platform):
        m = Module()
        distances = latencies(self.config)
        tiles = self.config.tiles
        m.submodules.front = front = Front(
            self.layout, depth=self.config.queue, fence_gap=distances.vector_write, done_gap=distances.vector_done,
            chain_gap=distances.vector_write, scalar_gap=distances.scalar_write)
        head = front.head
        now, step = Signal(self.layout), self.step

        active = Signal()
        o, i = Signal.like(now.outer, name="o"), Signal.like(now.inner, name="i")
        begin, end, last = Signal(), Signal(), Signal()
        reduces = now.reduce != Reduce.NONE
        m.d.comb += [
            end.eq(i == 0),
            last.eq(active & end & (o == 0)),
            step.valid.eq(active),
            *(step[name].eq(now[name]) for name in SHARED),
            step.write.eq(active & now.w),
            step.quantize.eq(active & now.quantize),
            step.block_first.eq(step.element == 0),
            step.reduces.eq(active & reduces),
            step.init.eq(begin & now.reduce_init),
            step.emit.eq(end & now.reduce_emit),
        ]

        # Lanes whose element is below the length. A signal of its own: were only this part of `step` written under
        # conditions, Yosys would write the rest as blocks that nothing starts.
        live = Signal(step.live.shape())
        m.d.comb += step.live.eq(live)
        lane_bits = tiles.bit_length() - 1
        place, bound = step.index[:32 - lane_bits], now.length[lane_bits:]
        with m.If(~now.mask | (place < bound)):
            m.d.comb += live.eq(tiles)
        with m.Elif(place == bound):
            m.d.comb += live.eq(now.length[:lane_bits] if lane_bits else 0)

        # Address at i = 0, its step with o, its step with i.
        block_end = step.element == (BLOCK - tiles) % BLOCK
        is_argmax = now.reduce == Reduce.ARGMAX
        moves = {
            "x": (now.x_o, now.x_i), "y": (now.y_o, now.y_i), "z": (now.z_o, now.z_i & (now.a == A.ACC)),
            "w_word": (now.w_o, now.w_i), "p": (now.p_o, 0), "q": (now.q_o, 0), "r": (now.r_o, 0),
            "scale": (now.scale_o, 0), "block": (now.block_o, block_end),
            "r_dest": (Mux(is_argmax, now.r_dest_o << 1, now.r_dest_o), 0),
        }
        starts = {}
        for name, (outer, inner) in moves.items():
            address = step[name]
            if isinstance(inner, int):
                start, following = address, address
            else:
                start = Signal.like(address, name=f"{name}_start")
                following = address + inner
            starts[name] = start
            with m.If(active):
                with m.If(end):
                    after = Signal.like(address, name=f"{name}_next")
                    m.d.comb += after.eq(start + outer)
                    m.d.sync += [address.eq(after), start.eq(after)]
                with m.Elif(1):
                    if following is not address:
                        m.d.sync += address.eq(following)

        with m.If(active):
            m.d.sync += [
                begin.eq(end),
                i.eq(Mux(end, now.inner, i - 1)),
                o.eq(o - end),
                step.element.eq(Mux(end, 0, step.element + tiles)),
                step.word.eq(Mux(end, 0, step.word + 1)),
                step.index.eq(Mux(end, now.index, step.index + 1)),
                active.eq(~last),
            ]
        with m.If(front.start):
            m.d.sync += [
                active.eq(1), begin.eq(1),
                now.eq(head),
                i.eq(head.inner), o.eq(head.outer),
                step.element.eq(0), step.word.eq(0), step.index.eq(head.index),
                *(step[name].eq(head[name]) for name in ADDRESSES),
                *(start.eq(head[name]) for name, start in starts.items() if start is not step[name]),
            ]
        with m.If(self.clear):
            m.d.sync += active.eq(0)

        m.d.comb += [
            front.push.eq(self.push), front.payload.eq(self.payload), self.room.eq(front.room),
            front.token_i.eq(self.token_i), self.token_o.eq(front.token_o),
            front.clear.eq(self.clear), self.quiet.eq(front.quiet), self.state.eq(front.state),
            front.active.eq(active), front.last.eq(last), front.signals.eq(now.signal),
            front.emits.eq(reduces & now.reduce_emit),
        ]
        return m
