"""The dot unit: one array row times one operand block, exact integers, scaled to one or two fp32 terms."""

from amaranth import C, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw import latency
from hw.config import BLOCK
from hw.fp32 import CANONICAL_NAN, leading_zeros, shift_left
from hw.isa import RowFormat

__all__ = ["DotUnit", "Half", "SideBits"]

Half = data.StructLayout({
    "fraction": 10,
    "exponent":  5,
    "sign":      1,
})
"""Fields of a binary16 word, lowest first."""

SideBits = data.StructLayout({
    "d0": Half,
    "m0": Half,
    "d1": Half,
    "m1": Half,
})
"""Scale and minimum of an array row's first and second output row."""

E2M1 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""Twice the 4-bit floats of OCP Microscaling Formats 1.0, section 5.3.3."""

E2M1_OFFSET = 12
"""Makes a doubled E2M1 number unsigned."""


class DotUnit(wiring.Component):
    """Terms ``(d * sum(w*q) + m * sum(q)) * 2**e`` of one row read, free-running.

    The integer sums are exact; each product by `d` or `m` is rounded to fp32, and so is their sum. Because
    operand and scale are short, all three roundings can be made on one fixed-point number of 62 bits (the
    lowest bit counts ``2**(e - 24)``), with a single normalization at the end. For `e` from -102 to 90
    nothing is subnormal or overflows.

    Timing: the terms leave `latency.DOT` cycles after row and block.

    Parameters
    ----------
    packed : bool
        Whether products of 22 by 9 bits make both sums at once, which simulates fastest, or products of 18 by
        9 bits, which are smallest. The function is the same.
    formats : tuple of str
        Row formats that occur, as in `HardwareConfig`.

    Members
    -------
    row, side : In
        256 data bits and 64 side bits (`SideBits`) of the array row.
    format : In
        `hw.isa.RowFormat`.
    q, e, sum : In
        Operand block: 32 integers, exponent, and the exact sum of the integers.
    term0, term1 : Out(32)
        fp32 terms of the first and the second output row. In a q8 row the second has no meaning.
    """

    latency = latency.DOT

    def __init__(self, *, packed: bool = True, formats: tuple[str, ...] = ("q8", "q4", "f4")) -> None:
        self.packed = packed
        self.formats = formats
        super().__init__({
            "row":    In(256),
            "side":   In(64),
            "format": In(2),
            "q":      In(signed(9)).array(BLOCK),
            "e":      In(signed(8)),
            "sum":    In(signed(14)),
            "term0":  Out(32),
            "term1":  Out(32),
        })

    def elaborate(self, platform):
        m = Module()

        # Cycle 0: two weights for every operand, and their products' sums. A two-row format has an element of
        # each row; a q8 row has a byte, or its halves.
        whole, second = Signal(signed(22)), Signal(signed(19))
        first_sum, second_sum = self._sums_packed(m) if self.packed else self._sums_split(m)
        m.d.sync += [whole.eq(first_sum), second.eq(second_sum)]

        e_1, sum_1 = Signal(signed(8)), Signal(signed(14))
        side = Signal(SideBits)
        m.d.sync += [e_1.eq(self.e), sum_1.eq(self.sum), side.eq(self.side)]

        # Cycle 1 to 3: scale and round, for both output rows alike.
        e_2, e_3 = Signal(signed(8)), Signal(signed(8))
        m.d.sync += [e_2.eq(e_1), e_3.eq(e_2)]
        m.d.sync += [
            self.term0.eq(_term(m, "0", whole, sum_1, side.d0, side.m0, e_3)),
            self.term1.eq(_term(m, "1", second, sum_1, side.d1, side.m1, e_3)),
        ]
        return m

    def _weights(self, m: Module, low, high, byte, offset):
        """Give `low` and `high` the two weights of every operand, made from bytes or nibbles of the row."""
        nibble = [self.row[4 * n:4 * n + 4] for n in range(2 * BLOCK)]
        with m.Switch(self.format):
            with m.Case(RowFormat.Q8):
                for n in range(BLOCK):
                    m.d.comb += byte(low[n], high[n], self.row[8 * n:8 * n + 8])
            if "f4" in self.formats:
                with m.Case(RowFormat.F4):
                    for n in range(BLOCK):
                        _look_up(m, low[n], nibble[n], offset)
                        _look_up(m, high[n], nibble[BLOCK + n], offset)
            with m.Default():
                for n in range(BLOCK):
                    m.d.comb += [low[n].eq(nibble[n]), high[n].eq(nibble[BLOCK + n])]

    def _sums_packed(self, m: Module):
        """Sums of the first and the second row, from one product for both weights of an operand.

        Weights are made unsigned by an offset, whose product with the operands is an offset times their sum.
        The high weight stands so far above the low one that their sums over four operands do not meet.
        Everything is 32 bits wide, which the simulator likes.
        """
        pitch, width, together = 16, 32, 4
        low = [Signal(8, name=f"low_{n}") for n in range(BLOCK)]
        high = [Signal(5, name=f"high_{n}") for n in range(BLOCK)]
        self._weights(m, low, high, lambda low, high, byte: low.eq(byte ^ 0x80),
                      E2M1_OFFSET)
        offset = Signal(signed(22))
        with m.Switch(self.format):
            with m.Case(RowFormat.Q8):
                m.d.comb += offset.eq(self.sum << 7)
            with m.Case(RowFormat.F4):
                m.d.comb += offset.eq(self.sum * E2M1_OFFSET)

        groups = []
        for n in range(0, BLOCK, together):
            products = []
            for k in range(n, n + together):
                pair, product = Signal(22, name=f"pair_{k}"), Signal(width, name=f"product_{k}")
                m.d.comb += [pair.eq(Cat(low[k], C(0, pitch - 8), high[k])), product.eq(pair * self.q[k])]
                products.append(product)
            group = Signal(signed(width), name=f"group_{n // together}")
            m.d.comb += group.eq(_tree(products, width))
            groups.append(group)
        total, lows, first = Signal(signed(35)), Signal(signed(19)), Signal(signed(22))
        m.d.comb += [
            total.eq(_tree(groups)),
            lows.eq(_tree([group[:pitch].as_signed() for group in groups])),
            first.eq(Mux(self.format == RowFormat.Q8, total[:22].as_signed(), lows)),
        ]
        return first - offset, ((total - lows) >> pitch) - offset

    def _sums_split(self, m: Module):
        """The same, with products of at most 18 by 9 bits, taken apart before they are added."""
        pitch = 13
        low = [Signal(signed(5), name=f"low_{n}") for n in range(BLOCK)]
        high = [Signal(signed(5), name=f"high_{n}") for n in range(BLOCK)]
        self._weights(m, low, high,
                      lambda low, high, byte: [low.eq(byte[:4]), high.eq(byte[4:].as_signed())],
                      0)
        lows, highs = [], []
        for n in range(BLOCK):
            product = Signal(signed(27), name=f"product_{n}")
            m.d.comb += product.eq((low[n] + (high[n] << pitch)) * self.q[n])
            lows.append(product[:pitch].as_signed())
            highs.append(product[pitch:].as_signed() + product[pitch - 1])
        second = _tree(highs)
        return _tree(lows) + Mux(self.format == RowFormat.Q8, second << 4, 0), second


def _look_up(m: Module, weight: Signal, code, offset: int):
    """A doubled E2M1 number, moved up by an offset.

    A table inside the case of its format: written as logic, it would cost the simulator every cycle of the other
    formats too, as much as all the rest of the unit.
    """
    with m.Switch(code):
        for value, doubled in enumerate(E2M1):
            with m.Case(value):
                m.d.comb += weight.eq(doubled + offset)


def _term(m: Module, name: str, total: Signal, operands: Signal, d, minimum, e: Signal):
    """``rne(rne(total * d) + rne(operands * minimum)) * 2**e``, two registers later; `e` comes last.

    A zero product has the sign of its factors (an integer zero is +0), and infinite or NaN scales behave as
    in IEEE arithmetic.
    """
    def local(shape, what):
        return Signal(shape, name=f"{what}_{name}")

    # Integer products; the exponent fields, at least 1, become distances from those of a subnormal.
    product, offset = local(31, "product"), local(signed(25), "offset")
    d_up, m_up = local(5, "d_up"), local(5, "m_up")
    sign_t, sign_o, inf_t, inf_o, nan = (local(1, k) for k in ("sign_t", "sign_o", "inf_t", "inf_o", "nan"))
    size, sign, minimum_sign = local(21, "size"), local(1, "sign"), local(1, "minimum_sign")
    zero_sign, invalid = local(1, "zero_sign"), local(1, "invalid")
    infinite, infinite_sign = local(1, "infinite"), local(1, "infinite_sign")
    m.d.comb += [
        sign_t.eq((total < 0) ^ d.sign),
        sign_o.eq((operands < 0) ^ minimum.sign),
        inf_t.eq(d.exponent == 31),
        inf_o.eq(minimum.exponent == 31),
        nan.eq((inf_t & (d.fraction.any() | (total == 0)))
               | (inf_o & (minimum.fraction.any() | (operands == 0)))
               | (inf_t & inf_o & (sign_t ^ sign_o))),
        size.eq(Mux(total < 0, -total, total)),
    ]
    m.d.sync += [
        product.eq(size * _significand(d)),
        offset.eq(operands * _significand(minimum)),
        d_up.eq(Mux(d.exponent == 0, 0, d.exponent - 1)),
        m_up.eq(Mux(minimum.exponent == 0, 0, minimum.exponent - 1)),
        sign.eq(sign_t),
        minimum_sign.eq(minimum.sign),
        zero_sign.eq(sign_t & sign_o),
        invalid.eq(nan),
        infinite.eq(inf_t | inf_o),
        infinite_sign.eq(Mux(inf_t, sign_t, sign_o)),
    ]

    # Round the product to 24 bits where it stands: `below` has ones in the places that go. The offset has at
    # most 24 bits. Then both are aligned and added, exactly.
    below, kept, exact = local(7, "below"), local(32, "kept"), local(signed(62), "exact")
    smear_1, smear_2 = local(7, "smear_1"), local(7, "smear_2")
    last_place = local(8, "last_place")
    m.d.comb += [
        smear_1.eq(product[24:] | (product[24:] >> 1)),
        smear_2.eq(smear_1 | (smear_1 >> 2)),
        below.eq(smear_2 | (smear_2 >> 4)),
        last_place.eq((below + 1) & 0xFE),
        kept.eq((product + (below >> 1) + (product[:8] & last_place).any()) & Cat(~below, C(-1, 25))),
    ]
    special, special_word = local(1, "special"), local(32, "special_word")
    zero_sign_r = local(1, "zero_sign_r")
    m.d.sync += [
        exact.eq((Mux(sign, -kept, kept) << d_up)[:62].as_signed()
                 + (Mux(minimum_sign, -offset, offset) << m_up)),
        special.eq(invalid | infinite),
        special_word.eq(Mux(invalid, CANONICAL_NAN, Cat(C(0x7F80_0000, 31), infinite_sign))),
        zero_sign_r.eq(zero_sign),
    ]

    # Normalize and round. The hidden bit, and a carry out of the significand, count into the exponent.
    absolute, moved, rounded = local(61, "absolute"), local(61, "moved"), local(25, "rounded")
    empty = local(1, "empty")
    m.d.comb += [
        absolute.eq(Mux(exact < 0, -exact, exact)),
        empty.eq(absolute == 0),
    ]
    zeros = leading_zeros(m, absolute)
    word = local(32, "word")
    field = local(8, "field")
    m.d.comb += [
        moved.eq(shift_left(m, absolute, zeros)),
        rounded.eq((moved + C((1 << 36) - 1) + moved[37]) >> 37),
        # The top bit, bit 60 - zeros, weighs 2^(60 - zeros + e - 24).
        field.eq(C(60 - 24 + 127 - 1, 8) + e.as_unsigned() - zeros),
        word.eq(Cat(((field << 23) + rounded)[:31], exact < 0)),
    ]
    return Mux(special, special_word, Mux(empty, zero_sign_r << 31, word))


def _significand(half):
    return Cat(half.fraction, half.exponent != 0)


def _tree(values: list, width: int | None = None):
    """The sum of some values as a balanced tree: exact, or modulo a width."""
    while len(values) > 1:
        values = [(a + b)[:width] for a, b in zip(values[::2], values[1::2], strict=True)] if width else \
            [a + b for a, b in zip(values[::2], values[1::2], strict=True)]
    return values[0]
