"""``python -m tests.coverage``: line, toggle and functional coverage of the whole preset `tiny`, drawn."""

import argparse
import sys
from collections.abc import Collection

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from hw.config import preset
from tests.coverage.functional import FORMS, STATES, impossible
from tests.coverage.holes import Share, by_module, line_holes, toggle_holes
from tests.coverage.measure import Measured, measure
from tests.coverage.page import page
from tests.coverage.points import Point
from tests.coverage.reasons import reason
from tests.results import FOLDER, record

GOAL = 0.95
SHOWN = 40
"""Signals with holes that are printed; the page has all."""


def main() -> int:
    """1 if less than the goal of the lines were covered."""
    parser = argparse.ArgumentParser(prog="python -m tests.coverage", description=__doc__)
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--transfers", type=int, default=4000)
    chosen = parser.parse_args()
    config, console = preset("tiny"), Console()
    with Progress(console=console) as progress:
        task = progress.add_task("building", total=chosen.programs + 2)
        found = measure(config, chosen.programs, chosen.transfers, lambda text: progress.update(
            task, description=text, advance=text not in ("constants", "building")))

    possible = [(form, state) for form in FORMS for state in STATES if not impossible(form, state)]
    left_out = found.empty | found.constant
    kinds = {"line": _share(found, "line", left_out), "line, all": _share(found, "line", ()),
             "toggle": _share(found, "toggle", left_out), "toggle, all": _share(found, "toggle", ()),
             "functional": [sum(found.pairs.get(pair, 0) > 0 for pair in possible), len(possible)]}
    modules, lines = by_module(found.points, left_out), line_holes(found.points, left_out)
    signals = toggle_holes(found.points, left_out)

    table = Table("module", "lines", "of", "", "toggles", "of", "")
    for name, shares in modules.items():
        table.add_row(name, *(text for kind in ("line", "toggle") for text in (
            str(shares[kind].reached), str(shares[kind].total), f"{shares[kind].part:.1%}")))
    console.print(table)
    for hole in signals[:SHOWN]:
        console.print(f"hole: {hole.module} {hole.signal} {hole.ranges}: {reason(hole.module, hole.signal)}",
                      markup=False, highlight=False, soft_wrap=True)
    console.print(f"and {max(0, len(signals) - SHOWN)} more signals with bits that do not toggle")
    for point in lines:
        text = found.verilog[point.file].splitlines()[point.line - 1].strip()
        console.print(f"hole: {point.module} {point.file}:{point.line} {point.what}: {text}", markup=False,
                      highlight=False, soft_wrap=True)
    for form, state in possible:
        if not found.pairs.get((form, state)):
            console.print(f"hole: {form} began after waiting for {state}: never")

    FOLDER.mkdir(parents=True, exist_ok=True)
    picture = FOLDER / "coverage.html"
    picture.write_text(page(config, found, kinds, modules, lines, signals))
    for kind, (reached, total) in kinds.items():
        console.print(f"{kind:12} {reached:7} of {total:7}  {reached / max(1, total):6.1%}")
    console.print(f"coverage: line {_percent(kinds['line'])}, toggle {_percent(kinds['toggle'])}, functional "
                  f"{_percent(kinds['functional'])} of the preset {config.name!r}, without {len(found.empty)} points "
                  f"of empty statements and {len(found.constant)} of constant bits; picture in {picture}")
    record("coverage", {
        "preset": config.name, "programs": chosen.programs, "transfers": chosen.transfers, "cycles": found.cycles,
        "kinds": kinds, "empty": len(found.empty), "constant": len(found.constant), "line_holes": len(lines),
        "signals": len(signals), "modules": {name: {kind: [s.reached, s.total] for kind, s in shares.items()}
                                             for name, shares in modules.items()}})
    reached, total = kinds["line"]
    return int(reached < GOAL * total)


def _share(found: Measured, kind: str, left_out: Collection[Point]) -> list[int]:
    sum_ = Share()
    for shares in by_module(found.points, left_out).values():
        sum_.reached, sum_.total = sum_.reached + shares[kind].reached, sum_.total + shares[kind].total
    return [sum_.reached, sum_.total]


def _percent(share: list[int]) -> str:
    return f"{share[0] / max(1, share[1]):.1%}"


if __name__ == "__main__":
    sys.exit(main())
