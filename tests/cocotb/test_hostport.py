"""Runs the cocotb tests of the host port on devices of several sizes, with and without stalls on every channel."""

import pytest

from hw.config import preset
from hw.ram import VERILOG
from hw.top import Top
from tests.cocotb.runner import run
from tests.cocotb.simulators import SIMULATORS
from tests.coredouble import CoreDouble

DEVICES = ["tiny", *(pytest.param(name, marks=pytest.mark.long) for name in ("ecp5", "w16"))]


@pytest.mark.rtl
@pytest.mark.parametrize("simulator", SIMULATORS)
@pytest.mark.parametrize("stalls", ["0", "0.4"])
@pytest.mark.parametrize("name", DEVICES)
def test_hostport(name: str, stalls: str, simulator: str) -> None:
    config = preset(name)
    double = Top(config, CoreDouble(config))
    assert run(double, "tests.cocotb.hostport,tests.cocotb.hostrules", seed=1, verilog={"ram.v": VERILOG},
               simulator=simulator, STALLS=stalls, PRESET=name) > 20
