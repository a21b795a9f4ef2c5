"""Runs the cocotb tests of the whole device, with the configuration of a small board."""

import pytest

from hw.config import preset
from hw.emit import SETTINGS, tile_sources
from hw.top import Top
from tests.cocotb.runner import run


@pytest.mark.rtl
def test_device():
    config = preset("ecp5")
    assert run(Top(config), "tests.cocotb.device", seed=1, verilog=tile_sources(config), settings=SETTINGS,
               PRESET=config.name) == 2
