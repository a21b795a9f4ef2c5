"""The emitted Verilog under ``verilator --lint-only -Wall``: nothing but habits of the language it comes from."""

import pytest

from hw.config import HardwareConfig, preset
from sim.rtl import TOP, sources
from sim.verilator import HABITS, lint

WAIVED = {
    **dict.fromkeys(HABITS, "see sim.verilator.HABITS: initial values, unused bits, sizes of numbers"),
    "CASEINCOMPLETE": "a default is assigned before every case, so that none makes a latch",
    "ASCRANGE": "a number with one possible value, such as the word of a block that 32 tiles fill at once, has no bits "
                "and Verilog cannot say so: it is written [-1:0] and read nowhere",
}
"""Kinds of warnings, and why each says nothing about this design. In Amaranth no assignment loses a bit unseen: an
expression is as wide as its result can be, so that WIDTHTRUNC marks cuts that the source asks for."""

CONFIGS = [
    pytest.param(preset("tiny"), id="tiny"),
    *(pytest.param(config, id=config.name, marks=pytest.mark.long) for config in (
        preset("ecp5"), preset("w16"),
        HardwareConfig("one", tiles=1, rows=300, row_buffer=1, operands=1, scratch=1, queue=1, commands=2),
        HardwareConfig("most", tiles=32, rows=300))),
]


@pytest.mark.rtl
@pytest.mark.parametrize("config", CONFIGS)
def test_no_warnings(config: HardwareConfig) -> None:
    assert lint(sources(config), TOP, waive=WAIVED) == []


@pytest.mark.rtl
def test_names_survive() -> None:
    text = "".join(sources(preset("tiny")).values())
    for name in ("module tile", "module wordline", "control_awaddr", "window_rdata", "loop_left_0", "row_buffer",
                 "accumulate_even", "fence_left", "term0"):
        assert name in text, f"{name!r} should be readable in the emitted Verilog"
