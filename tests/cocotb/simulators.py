"""The simulators under which every bench runs, as a test's parameter."""

import pytest

from tests.cocotb.runner import ICARUS

__all__ = ["ICARUS_MARKS", "SIMULATORS"]

ICARUS_MARKS = [pytest.mark.long, pytest.mark.skipif(
    not ICARUS, reason="Icarus Verilog is not installed (Debian: apt install iverilog)")]

SIMULATORS = ["verilator", pytest.param("icarus", marks=ICARUS_MARKS)]
"""``make test`` runs the first, ``make sim`` both."""
