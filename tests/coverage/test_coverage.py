"""Reading counters, and functional coverage of the programs that the plain suite runs."""

from pathlib import Path

from tests.conformance.trial import TRIAL, random_case
from tests.coverage.functional import FORMS, STATES, count, impossible
from tests.coverage.page import page
from tests.coverage.points import Point, counted, read


def _record(count: int, **fields: str) -> str:
    return "C '" + "".join(f"\x01{key}\x02{value}" for key, value in fields.items()) + f"' {count}\n"


def test_instances_of_a_module_add_up(tmp_path: Path) -> None:
    file = tmp_path / "coverage.dat"
    file.write_text("# SystemC::Coverage-3\n"
                    + _record(3, f="/x/tile.v", l="2", n="5", page="v_branch/tile", o="if", h="top.tile_0")
                    + _record(4, f="/x/tile.v", l="2", n="5", page="v_branch/tile", o="if", h="top.tile_1")
                    + _record(0, f="/x/tile.v", l="3", n="5", page="v_toggle/tile", o="q[1]:0->1", h="top.tile_1")
                    + _record(0, f="/x/tile.v", l="1", n="5", page="v_branch/tile", o="if", h="top.tile_1"))
    points = read(file)
    assert points == {Point("branch", "tile.v", 2, 5, "if"): 7, Point("toggle", "tile.v", 3, 5, "q[1]:0->1"): 0,
                      Point("branch", "tile.v", 1, 5, "if"): 0}
    verilog = "    if (\\$auto$verilog_backend.cc:2355:dump_module$1 ) begin end\n    if (a) begin\n  wire q;\n"
    assert counted(points, {"tile.v": verilog}) == {p: n for p, n in points.items() if p.line != 1}


def test_programs_reach_every_form_in_most_states() -> None:
    pairs = count(TRIAL, (random_case(seed, TRIAL) for seed in range(50)))
    assert {form for form, _ in pairs} == set(FORMS)
    assert not [pair for pair in pairs if impossible(*pair)]
    possible = [(form, state) for form in FORMS for state in STATES if not impossible(form, state)]
    assert sum(pair in pairs for pair in possible) > 0.9 * len(possible)
    text = page(TRIAL, 50, {"functional": [1, 2]}, pairs, {Point("line", "core.v", 1, 1, "if <x>"): 0},
                {"core.v": "if (a < b)"})
    assert "50.0%" in text and "if &lt;x&gt;" in text and "if (a &lt; b)" in text
