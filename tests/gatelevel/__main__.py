"""``python -m tests.gatelevel``: random programs on a core whose tiles are gates, against the functional model."""

import argparse
import sys

from rich.console import Console
from rich.progress import Progress

from tests.conformance.trial import Trial, config_of, random_case
from tests.gatelevel.netlist import synthesize
from tests.hw.corebench import CoreBench, bench_sources
from tests.results import record

TILES = 2


def main() -> int:
    """Number of programs that differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.gatelevel", description=__doc__)
    parser.add_argument("--programs", type=int, default=50)
    programs = parser.parse_args().programs
    config, console, failed = config_of(TILES), Console(), 0
    with Progress(console=console) as progress:
        task = progress.add_task("synthesizing", total=programs)
        sources = bench_sources(config)
        netlist = synthesize(sources, "tile")
        progress.update(task, description="building")
        trial = Trial(config, CoreBench(config, {**sources, "tile.v": netlist.verilog}, quick=True))
        progress.update(task, description="running")
        for seed in range(programs):
            what = trial.difference(random_case(seed, config))
            if what is not None:
                failed += 1
                progress.console.print(f"[red]seed {seed}: {what}[/]")
            progress.advance(task)
    gates = sum(netlist.cells.values())
    flops = sum(count for kind, count in netlist.cells.items() if "DFF" in kind)
    console.print(f"gate: {programs - failed} of {programs} programs equal; {TILES} tiles of {gates} gates each, "
                  f"{flops} of them flip-flops")
    record("gate", {"programs": programs, "failed": failed, "tiles": TILES, "gates": gates, "flops": flops})
    return failed


if __name__ == "__main__":
    sys.exit(bool(main()))
