"""``python -m tests.gatelevel``: random programs on a whole device made of gates, against the functional model, and
random transfers on its ports.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Mapping

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from hw.config import preset
from sim.rtl import TOP, sources
from tests.conformance.trial import Trial, random_case
from tests.devicebench import DeviceBench
from tests.gatelevel.netlist import Netlist, synthesize
from tests.hosttraffic import HARNESS, Traffic
from tests.results import record

FEW_WORDS = 4096
"""Words of the largest space that is not array, scratch or microcode of `tiny`."""


def main() -> int:
    """Number of programs that differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.gatelevel", description=__doc__)
    parser.add_argument("--programs", type=int, default=60)
    parser.add_argument("--through", type=int, default=1, help="programs whose whole state goes through the ports")
    parser.add_argument("--transfers", type=int, default=2000, help="random transfers on the ports")
    parser.add_argument("--preset", default="tiny", help="the device")
    chosen = parser.parse_args()
    config, console, failed = preset(chosen.preset), Console(), 0
    with Progress(console=console) as progress:
        task = progress.add_task("synthesizing", total=chosen.programs)
        began = time.monotonic()
        verilog = sources(config)
        netlist = synthesize(verilog, TOP)
        seconds = time.monotonic() - began
        progress.update(task, description="building")
        gates = {"gates.v": netlist.verilog, "wordline_ram.v": verilog["wordline_ram.v"]}
        bench = DeviceBench(config, gates, harness=HARNESS, quick=True)
        trial = Trial(config, bench, same_tables=10)
        progress.update(task, description="running")
        for seed in range(chosen.programs):
            # Every fifth program's operands and row buffers go through the window, all of the first.
            bench.port_words = 1 << 62 if seed < chosen.through else 0 if seed % 5 else FEW_WORDS
            what = trial.difference(random_case(seed, config))
            if what is not None:
                failed += 1
                progress.console.print(f"[red]seed {seed}: {what}[/]")
            progress.advance(task)
        progress.update(task, description="transfers")
        Traffic(bench.device, bench.simulation, seed=1).run(chosen.transfers)
    console.print(_table(netlist))
    facts = _count(netlist.total(TOP))
    console.print(f"gate: {chosen.programs - failed} of {chosen.programs} programs equal in whole state, cycles and "
                  f"flag on {config.name!r} of {facts['gates']} gates and {facts['flops']} flip-flops; "
                  f"{chosen.through} of them through the ports alone; {chosen.transfers} transfers answered as they "
                  f"should; synthesized in {seconds:.0f} s")
    record("gate", {
        "preset": config.name, "programs": chosen.programs, "failed": failed, "through": chosen.through,
        "transfers": chosen.transfers, "cycles": bench.device.cycles, "seconds": round(seconds), **facts,
        "modules": {name: {"instances": _instances(netlist, name), **_count(cells)}
                    for name, cells in netlist.cells.items()}})
    return failed


def _count(cells: Mapping[str, int]) -> dict[str, int]:
    """Gates, flip-flops and memories among cells."""
    kinds: Counter[str] = Counter()
    for kind, count in cells.items():
        primitive = kind.startswith("$_")
        kinds["flops" if primitive and "DFF" in kind else "gates" if primitive else
              "clock_gates" if kind == "wordline_gate" else "memories"] += count
    return {name: kinds[name] for name in ("gates", "flops", "memories", "clock_gates")}


def _instances(netlist: Netlist, module: str) -> int:
    """How often a module is in the device."""
    if module == TOP:
        return 1
    return sum(_instances(netlist, outer) * inner[module] for outer, inner in netlist.instances.items()
               if module in inner)


def _table(netlist: Netlist) -> Table:
    table = Table("module", "in the device", "gates", "flip-flops", "memories", title="cells of one copy, without the "
                  "modules inside it")
    rows = sorted(((name, _instances(netlist, name), _count(cells)) for name, cells in netlist.cells.items()),
                  key=lambda row: -row[1] * row[2]["gates"])
    for name, copies, facts in [*rows, ("all", 1, _count(netlist.total(TOP)))]:
        table.add_row(name, *map(str, (copies, facts["gates"], facts["flops"], facts["memories"])))
    return table


if __name__ == "__main__":
    sys.exit(bool(main()))
