"""The dot unit's shared multipliers: one product for two weights of an operand, taken apart again."""

from amaranth import Cat, Module, Mux, Signal, signed
from amaranth.hdl import Assert, Assume
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from hw.config import BLOCK
from hw.dot import DotUnit
from hw.isa import RowFormat
from tests.formal.inside import opened
from tests.formal.prove import Proof

__all__ = ["PROOFS"]

E2M1 = (0, 1, 2, 3, 4, 6, 8, 12)


class Products(wiring.Component):
    """A dot unit with some operands, the others zero: its two integer sums against multiplications of one weight each.

    Parameters
    ----------
    packed : bool
        Which of the unit's two forms.
    places : range
        The elements that have an operand.
    form : RowFormat
    """

    def __init__(self, *, packed: bool, places: range, form: RowFormat) -> None:
        self.packed, self.places, self.form = packed, places, form
        super().__init__({"row": In(256), **{f"q_{n}": In(signed(9)) for n in places}})

    def elaborate(self, platform):
        m = Module()
        dot = DotUnit(packed=self.packed)
        m.submodules.dot, inside = opened(dot)
        operands = {n: getattr(self, f"q_{n}") for n in self.places}
        total = sum(operands.values(), start=0)
        m.d.comb += [dot.row.eq(self.row), dot.format.eq(self.form), dot.sum.eq(total),
                     *(dot.q[n].eq(operands.get(n, 0)) for n in range(BLOCK)),
                     # No quantizer makes the lowest integer.
                     *(Assume(q != -256) for q in operands.values())]
        first, second = Signal(signed(22)), Signal(signed(22))
        m.d.sync += [first.eq(sum((self._weight(n, 0) * q for n, q in operands.items()), start=0)),
                     second.eq(sum((self._weight(n, 1) * q for n, q in operands.items()), start=0))]
        started = Signal()
        m.d.sync += started.eq(1)
        with m.If(started):
            m.d.comb += Assert(inside["whole"] == first)
            if self.form != RowFormat.Q8:
                m.d.comb += Assert(inside["second"] == second)
        return m

    def _weight(self, n: int, half: int):
        if self.form == RowFormat.Q8:
            return self.row[8 * n:8 * n + 8].as_signed()
        nibble = self.row[4 * (BLOCK * half + n):4 * (BLOCK * half + n) + 4]
        if self.form == RowFormat.Q4:
            return nibble
        size = Mux(nibble[2], Mux(nibble[1], Mux(nibble[0], 12, 8), Mux(nibble[0], 6, 4)), nibble[:2])
        return Mux(nibble[3], -size, Cat(size))


def _make(packed: bool, places: range, form: RowFormat):
    return lambda: Products(packed=packed, places=places, form=form)


PROOFS = tuple(
    Proof(f"product-{form.name.lower()}-{'packed' if packed else 'split'}",
          f"{form.name.lower()}: the {'packed' if packed else 'split'} product of both weights of an operand, apart, "
          "is w * q for every w and q", _make(packed, range(1), form), 3,
          complete="the pipeline has no feedback and is shorter", solver="bitwuzla")
    for form in RowFormat
    for packed in (True, False))
