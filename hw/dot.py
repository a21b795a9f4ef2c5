"""The dot unit: one array row times one operand block, exact integers, scaled to one or two fp32 terms."""

from amaranth import C, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw import latency
from hw.config import BLOCK
from hw.fp32 import CANONICAL_NAN, leading_zeros
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

    def __init__(self) -> None:
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

        # Cycle 0: 64 products of a nibble and an operand, in four sums. Multiplier n has nibble n of the row.
        # In a two-row format that is element n mod 32; in a q8 row it is the low or (n odd, signed) the high
        # half of element n div 2. So it is the operand that is chosen, not the row.
        is_q8 = Signal()
        m.d.comb += is_q8.eq(self.format == RowFormat.Q8)
        nibbles, negative = self._nibbles(m)
        sums = {}
        for half in (0, 1):
            for odd in (0, 1):
                products = []
                for n in range(32 * half + odd, 32 * (half + 1), 2):
                    weight = Signal(signed(5), name=f"w_{n}")
                    operand = Signal(signed(9), name=f"q_{n}")
                    m.d.comb += [
                        weight.eq(Cat(nibbles[4 * n:4 * n + 4], negative[4 * n])),
                        operand.eq(Mux(is_q8, self.q[n // 2], self.q[n % 32])),
                    ]
                    products.append(weight * operand)
                sums[half, odd] = Signal(signed(18), name=f"sum_{half}_{odd}")
                m.d.sync += sums[half, odd].eq(_tree(products))
        is_q8_1, e_1, sum_1 = Signal(), Signal(signed(8)), Signal(signed(14))
        side = Signal(SideBits)
        m.d.sync += [is_q8_1.eq(is_q8), e_1.eq(self.e), sum_1.eq(self.sum), side.eq(self.side)]

        # Cycle 1 to 3: scale and round, for both output rows alike.
        whole = Signal(signed(22))
        second = Signal(signed(19))
        m.d.comb += [
            whole.eq(sums[0, 0] + Mux(is_q8_1, sums[1, 0] + ((sums[0, 1] + sums[1, 1]) << 4), sums[0, 1])),
            second.eq(sums[1, 0] + sums[1, 1]),
        ]
        e_2, e_3 = Signal(signed(8)), Signal(signed(8))
        m.d.sync += [e_2.eq(e_1), e_3.eq(e_2)]
        m.d.sync += [
            self.term0.eq(_term(m, "0", whole, sum_1, side.d0, side.m0, e_3)),
            self.term1.eq(_term(m, "1", second, sum_1, side.d1, side.m1, e_3)),
        ]
        return m

    def _nibbles(self, m: Module):
        """The row as 64 five-bit integers: their low four bits, and their sign in bit 0 of each nibble.

        Works on all nibbles at once, which costs the simulator eight words an operation instead of 64
        nibbles.
        """
        ones = C(int("1" * 64, 16), 256)
        odd = C(int("10" * 32, 16), 256)
        b0, b1, b2, b3 = (Signal(256, name=f"bit_{k}") for k in range(4))
        low, negative = Signal(256, name="nibbles"), Signal(256, name="negative")
        m.d.comb += [b.eq((self.row >> k) & ones) for k, b in enumerate((b0, b1, b2, b3))]
        # E2M1: magnitudes 0, 1, 2, 3, 4, 6, 8, 12 of the bits b2 b1 b0, sign b3; as two's complement.
        size0 = ~b2 & b0
        size1 = (~b2 & b1) | (b2 & ~b1 & b0)
        size2 = b2 & (~b1 | b0)
        size3 = b2 & b1
        with m.Switch(self.format):
            with m.Case(RowFormat.Q8):
                m.d.comb += [low.eq(self.row), negative.eq(b3 & odd)]
            with m.Case(RowFormat.F4):
                m.d.comb += [
                    # -v = ~v + 1: bit k is inverted where a lower bit is set.
                    low.eq(size0
                           | ((size1 ^ (b3 & size0)) << 1)
                           | ((size2 ^ (b3 & (size0 | size1))) << 2)
                           | ((size3 ^ (b3 & (size0 | size1 | size2))) << 3)),
                    negative.eq(b3 & (b0 | b1 | b2)),
                ]
            with m.Default():
                m.d.comb += low.eq(self.row)
        return low, negative


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
        moved.eq(absolute << zeros),
        rounded.eq((moved + C((1 << 36) - 1) + moved[37]) >> 37),
        # The top bit, bit 60 - zeros, weighs 2^(60 - zeros + e - 24).
        field.eq(60 - 24 + 127 - 1 + e - zeros),
        word.eq(Cat(((field << 23) + rounded)[:31], exact < 0)),
    ]
    return Mux(special, special_word, Mux(empty, zero_sign_r << 31, word))


def _significand(half):
    return Cat(half.fraction, half.exponent != 0)


def _tree(values: list):
    """The exact sum of some values, as a balanced tree."""
    while len(values) > 1:
        values = [a + b for a, b in zip(values[::2], values[1::2], strict=True)]
    return values[0]
