"""The dot unit: one array row times one operand block, exact integers, scaled to one or two fp32 terms."""

from amaranth import C, Cat, Module, Mux, Signal, Value, signed
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
        Whether products of 28 by 9 bits make both sums at once, which simulates fastest, or products of 18 by
        9 bits, which are smallest. The function is the same.

    Members
    -------
    row, side : In
        256 data bits and 64 side bits (`SideBits`) of the array row.
    format : In
        `hw.isa.RowFormat`.
    q, e, sum : In
        Operand block: 32 integers, exponent, and sum of the integers.
    term0, term1 : Out(32)
        fp32 terms of the first and the second output row. In a q8 row the second has no meaning.
    """

    latency = latency.DOT

    def __init__(self, *, packed: bool = True) -> None:
        self.packed = packed
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
        # each row, a q8 row the halves of one byte: the operand is the same in all.
        low, high = self._weights(m)
        whole, second = self._sums_packed(m, low, high) if self.packed else self._sums_split(m, low, high)

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

    def _weights(self, m: Module):
        """Two signed integers a pair: of the two rows; or low (unsigned) and high half of a byte."""
        low = [Signal(signed(5), name=f"low_{n}") for n in range(BLOCK)]
        high = [Signal(signed(5), name=f"high_{n}") for n in range(BLOCK)]
        nibble = [self.row[4 * n:4 * n + 4] for n in range(2 * BLOCK)]
        with m.Switch(self.format):
            with m.Case(RowFormat.Q8):
                for n in range(BLOCK):
                    m.d.comb += [low[n].eq(nibble[2 * n]), high[n].eq(nibble[2 * n + 1].as_signed())]
            with m.Case(RowFormat.F4):
                for n in range(BLOCK):
                    m.d.comb += [low[n].eq(_doubled_e2m1(nibble[n])),
                                 high[n].eq(_doubled_e2m1(nibble[BLOCK + n]))]
            with m.Default():
                for n in range(BLOCK):
                    m.d.comb += [low[n].eq(nibble[n]), high[n].eq(nibble[BLOCK + n])]
        return low, high

    def _sums_packed(self, m: Module, low, high):
        """Sums of the first and the second row, from one product for both weights of an operand.

        The high weight stands so far above the low one that even the sums do not meet. In a q8 row the byte
        is the low weight. All arithmetic is modulo the width, which the simulator likes.
        """
        pitch, width = 22, 42
        products = []
        for n in range(BLOCK):
            pair = Signal(signed(28), name=f"pair_{n}")
            with m.If(self.format == RowFormat.Q8):
                m.d.comb += pair.eq(self.row[8 * n:8 * n + 8].as_signed())
            with m.Else():
                m.d.comb += pair.eq(low[n] + (high[n] << pitch))
            product = Signal(signed(width), name=f"product_{n}")
            m.d.comb += product.eq(pair * self.q[n])
            products.append(product)
        total = Signal(signed(width))
        m.d.sync += total.eq(_tree(products, width))
        whole, second = Signal(signed(pitch)), Signal(signed(19))
        m.d.comb += [
            whole.eq(total[:pitch]),
            second.eq(total[pitch:].as_signed() + total[pitch - 1]),
        ]
        return whole, second

    def _sums_split(self, m: Module, low, high):
        """The same, with products of at most 18 by 9 bits, taken apart before they are added."""
        pitch = 13
        lows, highs = [], []
        for n in range(BLOCK):
            product = Signal(signed(27), name=f"product_{n}")
            m.d.comb += product.eq((low[n] + (high[n] << pitch)) * self.q[n])
            lows.append(product[:pitch].as_signed())
            highs.append(product[pitch:].as_signed() + product[pitch - 1])
        first, second = Signal(signed(18)), Signal(signed(19))
        is_q8 = Signal()
        m.d.sync += [first.eq(_tree(lows)), second.eq(_tree(highs)), is_q8.eq(self.format == RowFormat.Q8)]
        whole = Signal(signed(22))
        m.d.comb += whole.eq(first + Mux(is_q8, second << 4, 0))
        return whole, second


def _doubled_e2m1(nibble: Value):
    """E2M1, doubled to an integer: magnitudes 0, 1, 2, 3, 4, 6, 8, 12."""
    size = Mux(nibble[1:3] == 0, nibble[0], Cat(nibble[0], C(1, 1)) << (nibble[1:3] - 1)[:2])
    return Mux(nibble[3], -size, size)


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
        exact.eq((Mux(sign, -kept, kept) << d_up) + (Mux(minimum_sign, -offset, offset) << m_up)),
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
        field.eq(60 - 24 + 127 - 1 + e - zeros),
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
