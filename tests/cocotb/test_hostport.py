"""Runs the cocotb tests of the host port, with and without stalls on every channel."""

import pytest

from hw.config import preset
from hw.ram import VERILOG
from hw.top import Top
from tests.cocotb.runner import run
from tests.coredouble import CoreDouble


@pytest.mark.rtl
@pytest.mark.parametrize("stalls", ["0", "0.4"])
def test_hostport(stalls):
    config = preset("tiny")
    double = Top(config, CoreDouble(config))
    assert run(double, "tests.cocotb.hostport,tests.cocotb.hostrules", seed=1, verilog={"ram.v": VERILOG},
               STALLS=stalls) > 20
