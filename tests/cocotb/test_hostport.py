"""Runs the cocotb tests of the host port, with and without stalls on every channel."""

import pytest

from hw.config import preset
from hw.top import Top
from tests.cocotb.runner import run
from tests.coredouble import CoreDouble


@pytest.mark.rtl
@pytest.mark.parametrize("stalls", ["0", "0.4"])
def test_hostport(stalls):
    config = preset("tiny")
    assert run(Top(config, CoreDouble(config)), "tests.cocotb.hostport", seed=1, STALLS=stalls) > 10
