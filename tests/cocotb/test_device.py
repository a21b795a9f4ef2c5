"""Runs the cocotb tests of the whole device: a small board, and other numbers of tiles, formats and queues."""

import json

import pytest

from hw.config import HardwareConfig, preset
from hw.emit import SETTINGS, tile_sources
from hw.top import Top
from tests.cocotb.runner import run
from tests.cocotb.simulators import SIMULATORS

FOUR = HardwareConfig("four", tiles=4, rows=200, scratch=256, operands=16, microcode=64, formats=("q8",), queue=3,
                      commands=2)
DEVICES = [preset("ecp5"), *(pytest.param(config, marks=pytest.mark.long) for config in (
    FOUR, FOUR.replace(name="sixteen", tiles=16, formats=("q8", "q4", "f4"), queue=5, commands=8)))]


@pytest.mark.rtl
@pytest.mark.parametrize("simulator", SIMULATORS)
@pytest.mark.parametrize("config", DEVICES, ids=lambda config: config.name)
def test_device(config: HardwareConfig, simulator: str) -> None:
    assert run(Top(config), "tests.cocotb.device", seed=1, verilog=tile_sources(config), settings=SETTINGS,
               simulator=simulator, CONFIG=json.dumps(config.to_json())) == 2
