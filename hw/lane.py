"""The lane of a tile: multiply, add, special function, multiply, on one fp32 word a cycle."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw import latency, stages
from hw.config import HardwareConfig
from hw.control import Controls
from hw.delay import delay
from hw.fp32 import NEGATIVE_ZERO, Adder, Multiplier
from hw.isa import FUNCTION_FIELDS, A, B, C, D
from hw.rowformat import ElementSelect
from hw.special import SpecialUnit

__all__ = ["Lane"]

ONE = 0x3F80_0000


class Lane(wiring.Component):
    """``E = function(a * b + c)`` and ``R = E * d``.

    Timing: free running, one word a cycle. Operands come in stage `stages.SELECT`, results stand in stage
    `stages.RESULT`; every control word is given in its own stage.

    Parameters
    ----------
    config : HardwareConfig
        The device.

    Members
    -------
    lane : In(5)
        Number of the tile.
    x, y, even, odd, row, p, q, r : In
        Scratch words, accumulator pair, row buffer entry and scalars.
    select, factor, apply, last, result : In
        Control words (`hw.stages.Controls`).
    a : Out(32)
        First factor, in stage FACTOR, unless it is a row element: the way of the host to scratch and accumulators.
    write, quantize, reduce : Out(32)
        What goes to scratch, quantizer and reducer; a masked element is +0, and in `reduce` what is neutral there.
    tables, table_q
        Host access to the special-function table.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        controls = Controls(config)
        super().__init__({
            "lane": In(5),
            **{name: In(32) for name in ("x", "y", "even", "odd", "p", "q", "r")},
            "row": In(320),
            **{name: In(getattr(controls, name))
               for name in ("select", "factor", "apply", "last", "result", "tables")},
            "a": Out(32),
            **{name: Out(32) for name in ("write", "quantize", "reduce")},
            "table_q": Out(80),
        })

    def elaborate(self, platform):
        m = Module()

        # SELECT -------------------------------------------------------------------------------------------------
        m.submodules.element = element = ElementSelect()
        m.d.comb += [
            element.row.eq(self.row[:256]),
            element.side.eq(self.row[256:]),
            element.format.eq(self.select.format),
            element.half.eq(self.select.half),
            element.index.eq(self.select.element + self.lane),
        ]
        a, b, c, d = (Signal(32, name=name) for name in "abcd")
        c_negative = Signal(32)
        words = self.row[:256]
        with m.Switch(self.select.a):
            with m.Case(A.ACC):
                m.d.sync += a.eq(Mux(self.select.odd, self.odd, self.even))
            with m.Case(A.X):
                m.d.sync += a.eq(self.x)
            with m.Case(A.Y):
                m.d.sync += a.eq(self.y)
            with m.Case(A.S):
                m.d.sync += a.eq(self.p)
            with m.Default():
                m.d.sync += a.eq(words.word_select(self.select.word, 32))
        with m.Switch(self.select.b):
            with m.Case(B.X):
                m.d.sync += b.eq(self.x)
            with m.Case(B.Y):
                m.d.sync += b.eq(self.y)
            with m.Case(B.S):
                m.d.sync += b.eq(self.p)
            with m.Default():
                m.d.sync += b.eq(ONE)
        with m.Switch(self.select.c):
            with m.Case(C.X):
                m.d.comb += c.eq(self.x)
            with m.Case(C.Y):
                m.d.comb += c.eq(self.y)
            with m.Case(C.S):
                m.d.comb += c.eq(self.q)
            with m.Default():
                m.d.comb += c.eq(NEGATIVE_ZERO)
        with m.Switch(self.select.d):
            with m.Case(D.X):
                m.d.sync += d.eq(self.x)
            with m.Case(D.Y):
                m.d.sync += d.eq(self.y)
            with m.Case(D.S):
                m.d.sync += d.eq(self.r)
            with m.Default():
                m.d.sync += d.eq(ONE)
        b_scale, c_minimum, c_negate = Signal(), Signal(), Signal()
        m.d.sync += [
            c_negative.eq(c),
            b_scale.eq(self.select.b == B.ROW_SCALE),
            c_minimum.eq(self.select.c == C.ROW_MINIMUM),
            c_negate.eq(self.select.c_negate),
        ]
        m.d.comb += self.a.eq(a)

        # FACTOR: first multiplication ---------------------------------------------------------------------------
        m.submodules.scale = multiplier = Multiplier()
        first, addend = Signal(32), Signal(32)
        second_factor = Signal(32)
        m.d.comb += [
            first.eq(Mux(self.factor.a_element, element.element, a)),
            multiplier.a.eq(first),
            multiplier.b.eq(Mux(self.factor.b_a, first, Mux(b_scale, element.scale, b))),
            addend.eq(Mux(c_minimum, element.minimum, c_negative) ^ (c_negate << 31)),
            second_factor.eq(Mux(self.factor.d_a, first, d)),
        ]

        # LANE_ADD -----------------------------------------------------------------------------------------------
        m.submodules.add = adder = Adder()
        m.d.comb += [
            adder.a.eq(multiplier.o),
            adder.b.eq(delay(m, addend, latency.MULTIPLY, "addend")),
        ]

        # FUNCTION -----------------------------------------------------------------------------------------------
        m.submodules.special_unit = special = SpecialUnit()
        m.d.comb += [
            special.x.eq(adder.o),
            *(getattr(special, name).eq(self.apply[name]) for name, _, _ in FUNCTION_FIELDS),
            special.table_we.eq(self.tables.write),
            special.table_re.eq(self.tables.read),
            special.table_addr.eq(self.tables.entry),
            special.table_data.eq(self.tables.data),
            self.table_q.eq(special.table_q),
        ]

        # LAST: second multiplication -----------------------------------------------------------------------------
        m.submodules.finish = multiplier = Multiplier()
        kept = delay(m, second_factor, stages.LAST - stages.FACTOR, "second_factor")
        early = delay(m, special.y, latency.MULTIPLY, "early")
        m.d.comb += [
            multiplier.a.eq(special.y),
            multiplier.b.eq(Mux(self.last.d_e, special.y, kept)),
        ]

        # RESULT -------------------------------------------------------------------------------------------------
        late, masked = multiplier.o, Signal()
        m.d.comb += [
            masked.eq(self.lane >= self.result.live),
            self.write.eq(Mux(masked, 0, Mux(self.result.w_early, early, late))),
            self.quantize.eq(Mux(masked, 0, Mux(self.result.q_early, early, late))),
            self.reduce.eq(Mux(masked, self.result.neutral << 21,
                               Mux(self.result.r_early, early, late) & ~(self.result.absolute << 31))),
        ]
        return m


