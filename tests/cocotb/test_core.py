"""Runs the cocotb tests of the core, on two small devices and two simulators."""

import json

import pytest

from hw.config import HardwareConfig
from hw.core import Core
from hw.emit import SETTINGS, tile_sources
from tests.cocotb.runner import ICARUS, run

pytestmark = pytest.mark.rtl

SMALL = HardwareConfig("small", tiles=2, rows=64, scratch=128, operands=16, row_buffer=8, microcode=32,
                       activation_bits=8, formats=("q8",), queue=2)
DEVICES = [SMALL, SMALL.replace(name="four", tiles=4, formats=("q8", "q4"), queue=3)]

ABSENT = pytest.mark.skipif(not ICARUS, reason="Icarus Verilog is not installed (Debian: apt install iverilog)")


@pytest.mark.long
@pytest.mark.parametrize("simulator", ["verilator", pytest.param("icarus", marks=ABSENT)])
@pytest.mark.parametrize("config", DEVICES, ids=lambda config: config.name)
def test_core(config: HardwareConfig, simulator: str) -> None:
    assert run(Core(config), "tests.cocotb.core", verilog=tile_sources(config), settings=SETTINGS, simulator=simulator,
               CONFIG=json.dumps(config.to_json())) == 4
