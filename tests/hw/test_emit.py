"""Emitted Verilog means the same to a tool that reads it as Verilog and to one that reads it as SystemVerilog."""

import re

import pytest

from hw.config import HardwareConfig, preset
from hw.top import sources

CONFIGS = [preset("tiny"), preset("ecp5"), HardwareConfig("one", tiles=1, rows=300, row_buffer=1, operands=1, queue=1)]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_something_starts_every_combinational_block(config: HardwareConfig) -> None:
    """A block whose inputs never change waits for ever, and its outputs are unknown: a statement at time zero, of its
    own module, has to start it."""
    blocks = 0
    for name, text in sources(config).items():
        for module in re.split(r"^(?=module )", text, flags=re.MULTILINE):
            started = set(re.findall(r"^  initial (\S+)  = 0;$", module, re.MULTILINE))
            for block in re.findall(r"^ *always @\*.*\n.*", module, re.MULTILINE):
                waits = re.search(r"if \((\S+) \) begin end$", block)
                assert waits and waits[1] in started, f"{name}: nothing starts\n{block}"
                blocks += 1
    assert blocks > 300
