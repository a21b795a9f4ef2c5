"""Runs the cocotb tests of the core: small devices of several shapes, two simulators, clocks that stop and that do
not.
"""

import json

import pytest

from hw.config import HardwareConfig
from hw.core import Core
from hw.emit import SETTINGS, tile_sources
from tests.cocotb.runner import run
from tests.cocotb.simulators import ICARUS_MARKS

pytestmark = pytest.mark.rtl

SMALL = HardwareConfig("two", tiles=2, rows=64, scratch=128, operands=16, row_buffer=8, microcode=32,
                       activation_bits=8, formats=("q8",), queue=2)
DEVICES = [SMALL, SMALL.replace(name="four", tiles=4, formats=("q8", "q4"), queue=3),
           SMALL.replace(name="sixteen", tiles=16, rows=48, formats=("q8", "q4", "f4"), activation_bits=9, queue=5)]

GATES = {"gates.v": "`define WORDLINE_GATES\n"}
"""Stands before the memories. Verilator has clock gates always; Icarus Verilog knows unknown values, which a part whose
clock sleeps through a reset would keep."""

WAYS = [pytest.param("verilator", {}, id="verilator"), pytest.param("icarus", {}, id="icarus", marks=ICARUS_MARKS),
        pytest.param("icarus", GATES, id="icarus, gates", marks=ICARUS_MARKS)]


@pytest.mark.long
@pytest.mark.parametrize(("simulator", "more"), WAYS)
@pytest.mark.parametrize("config", DEVICES, ids=lambda config: config.name)
def test_core(config: HardwareConfig, simulator: str, more: dict[str, str]) -> None:
    # Icarus Verilog runs sixteen tiles at fifty cycles a second.
    few = {"COCOTB_TEST_FILTER": "seed=2/gaps=0.2"} if simulator == "icarus" and config.tiles > 4 else {}
    assert run(Core(config), "tests.cocotb.core", verilog={**more, **tile_sources(config)}, settings=SETTINGS,
               simulator=simulator, CONFIG=json.dumps(config.to_json()), **few) == (1 if few else 4)
