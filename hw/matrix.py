"""The matrix engine: steps of MULTIPLY, FETCH and the stores, one a cycle."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.config import BLOCK, HardwareConfig
from hw.engine import Front
from hw.isa import Opcode, RowFormat
from hw.payload import Payloads
from hw.timing import latencies

__all__ = ["Matrix"]


class Matrix(wiring.Component):
    """Queue and address generator of the matrix engine.

    Timing: `step` holds one step a cycle (matrix stage 0) with `valid`; a pass of MULTIPLY over its accumulators
    that is shorter than the adder's loop is filled up with invalid steps.

    Parameters
    ----------
    config : HardwareConfig
        The device.

    Members
    -------
    push, payload, room, token_i, token_o, clear, quiet, state
        See `hw.engine.Front`.
    step : Out
        Opcode as `multiply`, `fetch`, `store_row`, `store_column`; addresses `row`, `block`, `acc`; `format`, `init`
        (write the term), `all` and `tile`, `column`, and first `element` of a column step.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        self.layout = layout = Payloads(config).matrix
        shape = {name: field.shape for name, field in layout}
        super().__init__({
            "push": In(1), "payload": In(layout), "room": Out(1),
            "token_i": In(1), "token_o": Out(1), "clear": In(1), "quiet": Out(1), "state": Out(16),
            "step": Out(data.StructLayout({
                "valid": 1, "multiply": 1, "fetch": 1, "store_row": 1, "store_column": 1,
                **{name: shape[name] for name in ("row", "block", "acc", "format", "init", "all", "tile", "column")},
                "element": 5,
            })),
        })

    def elaborate(self, platform):
        m = Module()
        distances = latencies(self.config)
        m.submodules.front = front = Front(self.layout, depth=self.config.queue, fence_gap=distances.matrix_done,
                                           done_gap=distances.matrix_done)
        head = front.head
        now = Signal(self.layout)     # the instruction at work; row, block and acc hold its first addresses
        step = self.step

        # Counters hold what is left; the pass counts its steps up to the shortest length.
        shortest = distances.accumulate - 1
        active, padding = Signal(), Signal()
        j, h, r = Signal.like(now.nj, name="j"), Signal.like(now.nh, name="h"), Signal.like(now.nr, name="r")
        first_j = Signal()
        length = Signal(range(shortest + 1))
        long, end_r, end_h, end_pass, last = Signal(), Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            long.eq((length == shortest) | ~step.multiply),
            end_r.eq(r == 0),
            end_h.eq(end_r & (h == 0)),
            end_pass.eq((end_h | padding) & long),
            last.eq(active & end_pass & (j == 0)),
            step.valid.eq(active & ~padding),
            step.format.eq(now.format),
            step.init.eq(now.init & first_j),
            step.all.eq(now.all),
            step.tile.eq(now.tile),
            step.column.eq(now.column),
        ]

        # Addresses at r = 0 and at h = r = 0.
        row_h, row_j = Signal.like(step.row, name="row_h"), Signal.like(step.row, name="row_j")
        block_j = Signal.like(step.block, name="block_j")
        acc_h = Signal.like(step.acc, name="acc_h")
        next_row_h, next_row_j = Signal.like(row_h, name="next_row_h"), Signal.like(row_j, name="next_row_j")
        next_block_h = Signal.like(block_j, name="next_block_h")
        next_block_j = Signal.like(block_j, name="next_block_j")
        next_acc_h, next_acc_j = Signal.like(acc_h, name="next_acc_h"), Signal.like(acc_h, name="next_acc_j")
        two = now.format != RowFormat.Q8
        m.d.comb += [
            next_row_h.eq(row_h + now.row_h),
            next_row_j.eq(row_j + now.row_j),
            next_block_h.eq(step.block + now.block_h),
            next_block_j.eq(block_j + now.block_j),
            next_acc_h.eq(acc_h + now.acc_h),
            next_acc_j.eq(Mux(step.multiply, now.acc, step.acc + 1)),
        ]
        with m.If(active):
            m.d.sync += [
                length.eq(Mux(end_pass, 0, length + (length != shortest))),
                padding.eq((end_h | padding) & ~long),
                step.element.eq(step.element + self.config.tiles),
            ]
            with m.If(end_pass):
                m.d.sync += [
                    j.eq(j - 1), h.eq(now.nh), r.eq(now.nr), first_j.eq(0),
                    step.row.eq(next_row_j), row_h.eq(next_row_j), row_j.eq(next_row_j),
                    step.block.eq(next_block_j), block_j.eq(next_block_j),
                    step.acc.eq(next_acc_j), acc_h.eq(next_acc_j),
                    active.eq(~last),
                ]
            with m.Elif(~end_r):
                m.d.sync += [
                    r.eq(r - 1),
                    step.row.eq(step.row + now.row_r),
                    step.acc.eq(step.acc + Mux(two, 2, 1)),
                ]
            with m.Elif(~end_h):
                m.d.sync += [
                    h.eq(h - 1), r.eq(now.nr),
                    step.row.eq(next_row_h), row_h.eq(next_row_h),
                    step.block.eq(next_block_h),
                    step.acc.eq(next_acc_h), acc_h.eq(next_acc_h),
                ]

        multiply, column = head.opcode == Opcode.MULTIPLY, head.opcode == Opcode.STORE_COLUMN
        nh = Mux(multiply, head.nh, 0)
        nr = Mux(multiply, head.nr, Mux(column, BLOCK // self.config.tiles - 1, 0))
        with m.If(front.start):
            m.d.sync += [
                active.eq(1), padding.eq(0), length.eq(0), first_j.eq(1),
                now.eq(head), now.nh.eq(nh), now.nr.eq(nr),
                j.eq(head.nj), h.eq(nh), r.eq(nr),
                step.multiply.eq(multiply),
                step.fetch.eq(head.opcode == Opcode.FETCH),
                step.store_row.eq(head.opcode == Opcode.STORE_ROW),
                step.store_column.eq(column),
                step.row.eq(head.row), row_h.eq(head.row), row_j.eq(head.row),
                step.block.eq(head.block), block_j.eq(head.block),
                step.acc.eq(head.acc), acc_h.eq(head.acc),
                step.element.eq(0),
            ]
        with m.If(self.clear):
            m.d.sync += active.eq(0)

        m.d.comb += [
            front.push.eq(self.push), front.payload.eq(self.payload), self.room.eq(front.room),
            front.token_i.eq(self.token_i), self.token_o.eq(front.token_o),
            front.clear.eq(self.clear), self.quiet.eq(front.quiet), self.state.eq(front.state),
            front.active.eq(active), front.last.eq(last), front.signals.eq(now.signal),
        ]
        return m
