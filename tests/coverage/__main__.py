"""``python -m tests.coverage``: line, toggle and functional coverage of the core under random programs, drawn."""

import argparse
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from hw.config import HardwareConfig
from tests.conformance.trial import TRIAL, Trial, config_of, random_case
from tests.coverage.functional import FORMS, STATES, count, impossible
from tests.coverage.page import page
from tests.coverage.points import Point, counted, read
from tests.hw.corebench import CoreBench, bench_sources
from tests.results import FOLDER, record

FLAGS = ("--coverage-line", "--coverage-toggle", "--coverage-user", "--coverage-max-width", "16", "-O0")
"""Buses of more than 16 bits are left out of the toggles: they carry data, which random data toggles."""

GOAL = 0.95


def measure(config: HardwareConfig, programs: int, step=lambda text: None) -> tuple[dict[Point, int], dict]:
    """Counts of all points, and of all pairs of form and state.

    Pairs are also counted in the programs of the plain suite's four tiles: with one, a block takes so many steps that
    nothing ever waits for a chain behind it.
    """
    step("building")
    bench = CoreBench(config, extra_flags=FLAGS, quick=True)
    trial = Trial(config, bench)
    pairs: Counter[tuple[str, str]] = Counter()
    for device in (trial, Trial(TRIAL)):
        cases = [random_case(seed, device.config) for seed in range(programs)]
        for case in cases:
            step("running")
            what = device.difference(case)
            assert what is None, f"{device.config.tiles} tiles, seed {case.seed}: {what}"
        pairs += count(device.config, cases)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "coverage.dat"
        bench.coverage(path)
        return read(path), dict(pairs)


def main() -> int:
    """1 if less than the goal of the lines were covered."""
    parser = argparse.ArgumentParser(prog="python -m tests.coverage", description=__doc__)
    parser.add_argument("--programs", type=int, default=100)
    programs = parser.parse_args().programs
    config, console = config_of(1), Console()
    with Progress(console=console) as progress:
        task = progress.add_task("building", total=2 * programs)
        points, pairs = measure(config, programs, lambda text: progress.update(
            task, description=text, advance=int(text == "running")))
    sources = bench_sources(config)
    every, points = len(points), counted(points, sources)
    by_kind: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for point, times in points.items():
        kind = "line" if point.kind in ("line", "branch") else point.kind
        by_kind[kind][0] += times > 0
        by_kind[kind][1] += 1
    possible = [(form, state) for form in FORMS for state in STATES if not impossible(form, state)]
    by_kind["functional"] = [sum(pairs.get(pair, 0) > 0 for pair in possible), len(possible)]
    holes = sorted((p.file, p.line, p.what) for p, times in points.items()
                   if not times and p.kind in ("line", "branch"))
    FOLDER.mkdir(parents=True, exist_ok=True)
    picture = FOLDER / "coverage.html"
    picture.write_text(page(config, programs, by_kind, pairs, points, sources))
    for kind, (reached, total) in sorted(by_kind.items()):
        console.print(f"{kind:10} {reached:6} of {total:6}  {reached / max(1, total):6.1%}")
    for form, state in possible:
        if not pairs.get((form, state)):
            console.print(f"hole: {form} began after waiting for {state}: never")
    for file, line, what in holes:
        console.print(f"hole: {file}:{line} {what}")
    console.print(f"{every - len(points)} points of no statement are left out (tests/coverage/points.py)")
    console.print(f"coverage: {programs} programs; picture in {picture}")
    record("coverage", {"programs": programs, "tiles": config.tiles, "kinds": by_kind, "line_holes": len(holes),
                        "left_out": every - len(points)})
    reached, total = by_kind["line"]
    return int(reached < GOAL * total)


if __name__ == "__main__":
    sys.exit(main())
