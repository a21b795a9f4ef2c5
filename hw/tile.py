"""A tile: array, dot unit, accumulators, row buffer, scratch and lane. All tiles do the same in the same cycle."""

from amaranth import Cat, ClockDomain, DomainRenamer, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw import stages
from hw.config import BLOCK, LINE_WORDS, HardwareConfig
from hw.control import Controls
from hw.dot import DotUnit
from hw.fp32 import NEGATIVE_ZERO, Adder
from hw.lane import Lane
from hw.ram import Array, Ram

__all__ = ["LANE_CONTROLS", "MATRIX_CONTROLS", "Tile", "tile_ports"]

LINE_BITS = 32 * LINE_WORDS

MATRIX_CONTROLS = ("array", "row", "buffer", "acc_read", "acc_add", "acc_write")
LANE_CONTROLS = ("read", "select", "factor", "apply", "last", "result", "tables")
"""Control words of a tile, each an input in its own stage."""


def tile_ports(config: HardwareConfig) -> dict:
    """Members of a tile."""
    controls = Controls(config)
    return {
        "clk": In(1), "lane_clk": In(1),
        "lane": In(5),
        **{name: In(getattr(controls, name)) for name in MATRIX_CONTROLS + LANE_CONTROLS},
        "line": In(LINE_BITS),
        **{f"integer_{n}": In(signed(config.activation_bits)) for n in range(BLOCK)},
        "sum": In(signed(14)),
        "exponent": In(signed(8)),
        "shared": In(LINE_BITS),
        **{name: In(32) for name in ("p", "q", "r", "word")},
        "row_out": Out(LINE_BITS),
        **{name: Out(32) for name in ("a", "quantize", "reduce")},
        "table_q": Out(80),
    }


class Tile(wiring.Component):
    """One tile.

    Timing: free running; every input is taken in the stage that `hw.stages` gives it. What belongs to the vector engine
    has the clock domain ``lane``, which may stop while nothing of that engine is under way.

    Parameters
    ----------
    config : HardwareConfig
        The device.
    packed : bool
        Which products the dot unit is made of (`hw.dot.DotUnit`).

    Members
    -------
    clk, lane_clk : In(1)
        Clocks; `lane_clk` is `clk` with edges left out.
    lane : In(5)
        Number of this tile; the only input that differs between tiles.
    array, row, buffer, acc_read, acc_add, acc_write, read, select, factor, apply, last, result, tables : In
        Control words (`hw.stages.Controls`).
    line : In(320)
        Row to store, in stage ARRAY.
    integer_0 to integer_31, sum, exponent : In
        Operand block, in stage ROW.
    shared : In(320)
        Row that every tile gets, in stage BUFFER.
    p, q, r : In(32)
        Scalars, in stage SELECT.
    word : In(32)
        What the host writes to scratch or accumulators.
    row_out : Out(320)
        Row register, loaded in stage ROW; zero where another tile is meant.
    a : Out(32)
        First factor of the lane, in stage FACTOR.
    quantize, reduce : Out(32)
        Results, in stage RESULT.
    table_q : Out(80)
        Entry of the function table.
    """

    def __init__(self, config: HardwareConfig, *, packed: bool = True) -> None:
        config.require_hardware()
        self.config = config
        self.packed = packed
        super().__init__(tile_ports(config))

    def elaborate(self, platform):
        m = Module()
        config = self.config
        # No register needs a reset: what is under way means nothing unless a control word says so.
        for name, clock in (("sync", self.clk), ("lane", self.lane_clk)):
            m.domains += (domain := ClockDomain(name, local=True, reset_less=True))
            m.d.comb += domain.clk.eq(clock)

        array = Array(width=LINE_BITS, depth=config.rows)
        m.submodules.array = array.instance
        buffer = Ram(width=LINE_BITS, depth=config.row_buffer, strobes=LINE_WORDS, name="row_buffer",
                     reads=("lane",))
        m.submodules.row_buffer = buffer.instance
        scratch = Ram(width=32, depth=config.scratch, name="scratch", domain="lane", reads=("lane", "lane"))
        m.submodules.scratch = scratch.instance
        banks = []
        for name in ("even", "odd"):
            bank = Ram(width=32, depth=config.accumulators // 2, through=True, name=name,
                       reads=("sync", "lane"))
            m.submodules[f"accumulators_{name}"] = bank.instance
            banks.append(bank)

        # Registers, so that a simulator sees no logic behind an input that could change at any time.
        number, lane_number = Signal(5), Signal(5)
        m.d.sync += number.eq(self.lane)
        m.d.lane += lane_number.eq(self.lane)

        # ARRAY: a read, or a write of the line or of one byte of it. -----------------------------------------------
        def chosen(word, number=number):
            return ~word.one | (word.tile == number)

        byte = Signal(8)
        m.d.comb += [
            byte.eq(self.line[:8 * BLOCK].word_select((self.array.element + number)[:5], 8)),
            array.address.eq(self.array.address),
            array.read.eq(self.array.read),
            array.write.eq(self.array.write & chosen(self.array)),
            array.strobe.eq(self.array.strobe),
            array.data.eq(Cat(Mux(self.array.column, byte.replicate(BLOCK), self.line[:8 * BLOCK]),
                              self.line[8 * BLOCK:])),
        ]

        # ROW: to the dot unit, or towards the row buffer. -----------------------------------------------------------
        m.submodules.dot = dot = DotUnit(packed=self.packed, formats=config.formats)
        m.d.comb += [
            dot.row.eq(array.q[:256]),
            dot.side.eq(array.q[256:]),
            dot.format.eq(self.row.format),
            *(dot.q[n].eq(getattr(self, f"integer_{n}")) for n in range(BLOCK)),
            dot.sum.eq(self.sum),
            dot.e.eq(self.exponent),
        ]
        with m.If(self.row.take):
            m.d.sync += self.row_out.eq(Mux(chosen(self.row), Mux(self.row.buffer, buffer.q[0], array.q), 0))

        # BUFFER --------------------------------------------------------------------------------------------------
        m.d.comb += [
            buffer.write.eq(self.buffer.write & chosen(self.buffer)),
            buffer.strobe.eq(self.buffer.strobe),
            buffer.write_address.eq(self.buffer.entry),
            buffer.data.eq(Mux(self.buffer.shared, self.shared, self.row_out)),
        ]

        # ACC_READ, ACC_ADD, ACC_WRITE: an accumulator of each bank. ---------------------------------------------------
        host = self.acc_write.host & (self.acc_write.tile == number)
        for name, bank, write in (("even", banks[0], self.acc_write.even), ("odd", banks[1], self.acc_write.odd)):
            m.submodules[f"accumulate_{name}"] = adder = Adder()
            term = dot.term0 if name == "even" else Mux(self.acc_add.two, dot.term1, dot.term0)
            m.d.comb += [
                bank.read[0].eq(self.acc_read.read),
                bank.read_address[0].eq(self.acc_read.pair),
                # Adding the neutral element makes a NaN canonical and nothing else.
                adder.a.eq(Mux(self.acc_add.init, NEGATIVE_ZERO, bank.q[0])),
                adder.b.eq(term),
                bank.write.eq(write & (host | ~self.acc_write.host)),
                bank.write_address.eq(self.acc_write.pair),
                bank.data.eq(Mux(self.acc_write.host, self.word, adder.o)),
                bank.read[1].eq(self.read.read),
                bank.read_address[1].eq(self.read.pair),
            ]

        # Vector side. --------------------------------------------------------------------------------------------
        lane = Lane(config)
        m.submodules.lane_unit = DomainRenamer("lane")(lane)
        m.d.comb += [
            *(scratch.read[n].eq(self.read.read) for n in (0, 1)),
            scratch.read_address[0].eq(self.read.x),
            scratch.read_address[1].eq(self.read.y),
            buffer.read[0].eq(self.read.read),
            buffer.read_address[0].eq(self.read.entry),
            lane.lane.eq(lane_number),
            lane.x.eq(scratch.q[0]),
            lane.y.eq(scratch.q[1]),
            lane.even.eq(banks[0].q[1]),
            lane.odd.eq(banks[1].q[1]),
            lane.row.eq(buffer.q[0]),
            *(getattr(lane, name).eq(getattr(self, name)) for name in ("p", "q", "r", *LANE_CONTROLS[1:])),
            *(getattr(self, name).eq(getattr(lane, name)) for name in ("a", "quantize", "reduce", "table_q")),
            scratch.write.eq(self.result.write & chosen(self.result, lane_number)),
            scratch.write_address.eq(self.result.word),
            scratch.data.eq(Mux(self.result.host, self.word, lane.write)),
        ]
        return m


assert stages.ACC_WRITE - stages.ACC_READ == 4, "hw.timing.accumulate counts on it"
