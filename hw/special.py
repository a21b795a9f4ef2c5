"""The special-function unit: exp2, reciprocal, reciprocal root and fitted functions, by quadratics."""

from amaranth import C, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw import latency
from hw.delay import delay
from hw.fp32 import CANONICAL_NAN, leading_zeros
from hw.isa import FUNCTION_FIELDS, TABLE_ENTRIES, FunctionKind

__all__ = ["Coefficients", "SpecialUnit"]

INFINITY = 0x7F80_0000

Coefficients = data.StructLayout({
    "c0": signed(32),
    "c1": signed(28),
    "c2": signed(20),
})
"""One entry of the coefficient memory, 80 bits: value, slope and curvature of a segment."""

_WIDTHS = {name: signed(width) if is_signed else width for name, width, is_signed in FUNCTION_FIELDS}


class SpecialUnit(wiring.Component):
    """One function of one fp32 word a cycle, free-running.

    A function is the range reduction of its `kind`, then ``y = c0 + t*(c1 + t*c2)`` in integers with the
    coefficients of the argument's segment, then one rounding to fp32 (definition: `sim.numerics`). The
    descriptor travels with the word: it may change every cycle.

    Timing: the result leaves `latency.SPECIAL` cycles after its argument. A table entry written in one cycle
    is seen by arguments from the next cycle on. While `table_re` is high the memory is read for the host: the
    entry stands at `table_q` in the next cycle, and arguments of this cycle come out wrong.

    Members
    -------
    x : In(32)
        Argument.
    kind, base, segments, domain, lo, hi : In
        Descriptor of the function (`hw.isa.FUNCTION_FIELDS`).
    y : Out(32)
        Result.
    table_we, table_re, table_addr, table_data, table_q
        The host's access to the coefficient memory, in the layout `Coefficients`.
    """

    latency = latency.SPECIAL

    def __init__(self) -> None:
        super().__init__({
            "x": In(32),
            **{name: In(shape) for name, shape in _WIDTHS.items()},
            "y": Out(32),
            "table_we":   In(1),
            "table_re":   In(1),
            "table_addr": In(range(TABLE_ENTRIES)),
            "table_data": In(80),
            "table_q":    Out(80),
        })

    def elaborate(self, platform):
        m = Module()

        # Cycle 0: range reduction, and the results that need no polynomial.
        sign, field, fraction, magnitude = self.x[31], self.x[23:31], self.x[:23], self.x[:31]
        is_nan = Signal()
        is_zero = Signal()
        is_inf = Signal()
        m.d.comb += [
            is_nan.eq(magnitude > INFINITY),
            is_zero.eq(magnitude == 0),
            is_inf.eq(magnitude == INFINITY),
        ]

        # x = ±significand * 2**power with the significand in [1, 2), for the reciprocals.
        zeros = leading_zeros(m, fraction)
        subnormal = Signal()
        significand = Signal(23)
        power = Signal(signed(9))
        m.d.comb += [
            subnormal.eq(field == 0),
            significand.eq(Mux(subnormal, (fraction << zeros) << 1, fraction)),
            power.eq(Mux(subnormal, -127 - zeros, field - 127)),
        ]

        # x in fixed point, rounded down: 27 fraction bits for exp2, 26 - domain for a fitted function. The
        # integer significand moved up by 11 covers both; what is still larger is out of range and answered
        # below.
        whole = Signal(24)
        aligned = Signal(signed(36))
        distance = Signal(signed(10))
        right = Signal(6)
        fixed = Signal(signed(36))
        m.d.comb += [
            whole.eq(Cat(fraction, ~subnormal)),
            aligned.eq(Mux(sign, -whole, whole) << 11),
            distance.eq(Mux(self.kind == FunctionKind.EXP2, 134, 135 + self.domain) - field),
            right.eq(Mux(distance < 63, distance[:6], 63)),
            fixed.eq(aligned >> right),
        ]

        argument = Signal(27)            # position inside the function's domain, a fraction
        widen = Signal(3)                # log2 of the number of segments, less 6
        root_half = Signal()
        exponent = Signal(signed(9))
        negative = Signal()
        special = Signal()
        answer = Signal(32)
        bound = Signal(31)
        with m.Switch(self.kind):
            with m.Case(FunctionKind.EXP2):
                m.d.comb += [
                    argument.eq(fixed[:27]),
                    exponent.eq(fixed[27:].as_signed() - 27),
                    # 128.0 and 150.0 as words: from there up infinity, beyond there down zero.
                    special.eq(is_nan | Mux(sign, magnitude > 0x4316_0000, magnitude >= 0x4300_0000)),
                    answer.eq(Mux(is_nan, CANONICAL_NAN, Mux(sign, 0, INFINITY))),
                ]
            with m.Case(FunctionKind.RECIP):
                m.d.comb += [
                    argument.eq(significand << 4),
                    widen.eq(1),
                    exponent.eq(-27 - power),
                    negative.eq(sign),
                    special.eq(is_nan | is_zero | is_inf),
                    answer.eq(Mux(is_nan, CANONICAL_NAN, Cat(Mux(is_zero, C(INFINITY, 31), 0), sign))),
                ]
            with m.Case(FunctionKind.RSQRT):
                m.d.comb += [
                    argument.eq(significand << 4),
                    root_half.eq(power[0]),
                    exponent.eq(-27 - power[1:].as_signed()),
                    special.eq(is_nan | is_zero | is_inf | sign),
                    answer.eq(Mux(is_zero, Cat(C(INFINITY, 31), sign), Mux(is_nan | sign, CANONICAL_NAN, 0))),
                ]
            with m.Case(FunctionKind.TABLE):
                m.d.comb += [
                    argument.eq(fixed[:27] ^ (1 << 26)),
                    widen.eq(self.segments - 6),
                    exponent.eq(-27),
                    bound.eq((127 + self.domain)[:8] << 23),
                    special.eq(is_nan | Mux(sign, magnitude > bound, magnitude >= bound)),
                    answer.eq(Mux(is_nan, CANONICAL_NAN, Mux(sign, self.lo, self.hi))),
                ]
            with m.Case(FunctionKind.SCALE):
                # 2^(floor(log2 |x|) - 6) within [2^-24, 2^15], as exponent fields; 1.0 for zero.
                bounded = Mux(field < 103 + 6, 103, Mux(field > 142 + 6, 142, field - 6))
                m.d.comb += [
                    special.eq(1),
                    answer.eq(Mux(is_zero, 127, bounded) << 23),
                ]
            with m.Default():
                m.d.comb += [special.eq(1), answer.eq(Mux(is_nan, CANONICAL_NAN, self.x))]

        # The top bits of the argument choose the segment, the other 21 are the place in it.
        place = Signal(31)
        address = Signal(range(TABLE_ENTRIES))
        m.d.comb += [
            place.eq(argument << widen),
            address.eq(self.base + place[21:] + Cat(C(0, 6), root_half)),
        ]
        m.submodules.table = table = Memory(shape=80, depth=TABLE_ENTRIES, init=[])
        write, read = table.write_port(), table.read_port()
        m.d.comb += [
            write.en.eq(self.table_we),
            write.addr.eq(self.table_addr),
            write.data.eq(self.table_data),
            read.addr.eq(Mux(self.table_re, self.table_addr, address)),
            self.table_q.eq(read.data),
        ]

        # Cycle 1: slope at the place in the segment.
        entry = data.View(Coefficients, read.data)
        t, t_r = Signal(21), Signal(21)
        half = 1 << 20
        slope = Signal(signed(29))
        c0 = Signal(signed(32))
        m.d.sync += [
            t.eq(place[:21]),
            t_r.eq(t),
            slope.eq(entry.c1 + ((entry.c2 * t + half) >> 21)),
            c0.eq(entry.c0),
        ]

        # Cycle 2: value.
        value = Signal(signed(33))
        m.d.sync += value.eq(c0 + ((slope * t_r + half) >> 21))

        # Cycle 3: move the value so that 24 bits of the significand stand above bit 28. Below the smallest
        # normal the distance is limited by the exponent; down to -20 - 1 places of it leave a round bit
        # (2^-150 from exp2).
        exponent_r = delay(m, exponent, 3, "exponent")
        negative_r = delay(m, negative, 3, "negative")
        size = Signal(32)
        m.d.comb += size.eq(Mux(value < 0, -value, value))
        size_zeros = leading_zeros(m, size)
        limit = Signal(signed(10))
        room = Signal(signed(11))
        shift = Signal(6)
        m.d.comb += [
            limit.eq(exponent_r + 157),
            room.eq(limit - size_zeros),
            shift.eq(Mux(room < 0, limit, size_zeros) + 20),
        ]
        moved = Signal(52)
        result_field = Signal(8)
        result_sign = Signal()
        m.d.sync += [
            moved.eq(size << shift),
            result_field.eq(Mux((room < 0) | (size == 0), 0, Mux(room > 254, 254, room))),
            result_sign.eq(negative_r ^ (value < 0)),
        ]

        # Cycle 4: round once. The hidden bit, and a carry out of the significand, count into the exponent.
        # --------
        rounded = Signal(25)
        word = Signal(33)
        m.d.comb += [
            rounded.eq((moved + C((1 << 27) - 1) + moved[28]) >> 28),
            word.eq((result_field << 23) + rounded),
        ]
        special_r = delay(m, special, 4, "special")
        answer_r = delay(m, answer, 4, "answer")
        m.d.sync += self.y.eq(Mux(special_r, answer_r,
                                  Cat(Mux(result_field == 254, C(INFINITY, 31), word[:31]), result_sign)))
        return m
