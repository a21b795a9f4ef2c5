"""``python -m tests.verification``: docs/verification.md from the plan below and what the long runs found."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.formal.proofs import PROOFS
from tests.mutation.faults import FAULTS
from tests.mutation.hostfaults import HOST_FAULTS
from tests.results import load

__all__ = ["PLAN", "Item", "text"]

HEAD = """\
# Verification

<!-- Written by `python -m tests.verification` from tests/verification.py and the records of the long runs. -->

What is checked, by whom, with how much, and what came out last. `make test` runs the quick form of everything,
`make verify` all of it. A random program that fails is shrunk to a minimal one and printed with its seed."""

BOUNDS = """\
A bounded proof says nothing about later cycles. Induction needs signals from inside a component; the proofs take them
by name (`tests/formal/inside.py`), so that the hardware holds none of this."""

FAULTS_TEXT = """\
Those of the core stand in one build and those of the host port in another, each behind a switch
(`tests/mutation/plant.py`); without one the programs and the tests show nothing."""

OPEN = """\
## What is not covered

* Of the counters, those of the empty branch with which Yosys begins every combinational block are left out, for it is
  never taken, and those of bits that Yosys proves constant. `make coverage` lists all other holes, and draws them with
  what is known of their reasons in build/verification/coverage.html. The lines among them are branches behind a
  condition that is always true, the second read port of memories that need one, and words that no table's entry has.
* Memories of the netlist stay memories: on a chip they are macros, which no synthesis makes. `make sim` checks what
  they do.
* The netlist is mapped to gates, not to the cells of a process; it has no delays.
* Products are proven for one operand with every other zero; that sums of many stay apart is shown by the batches of
  `tests/hw/test_dot.py`."""

PAGE = Path(__file__).resolve().parent.parent / "docs" / "verification.md"


@dataclass(frozen=True)
class Item:
    """One line of the plan.

    `name` is that of the record in build/verification, empty if the test suite alone checks it; `result` makes a phrase
    of the record.
    """

    what: str
    judge: str
    cases: str
    command: str
    name: str = ""
    result: Callable[[dict[str, Any]], str] | None = None


def _share(facts: dict[str, Any], kind: str) -> str:
    reached, total = facts["kinds"][kind]
    return f"{kind} {reached / total:.1%} ({reached} of {total})"


PLAN: tuple[Item, ...] = (
    Item("fp32 add, multiply, round and pack; fp16 and integers to scaled fp32 (dot unit); fp32 to integers "
         "(quantizer)",
         "Berkeley SoftFloat",
         "every pair of a table of special values, random and near-tie vectors, 200,000 each in `make test`, 2,000,000 "
         "in `make verify`, through the Verilog from C++",
         "`WORDLINE_VECTORS=2000000 pytest tests/hw/test_fp32.py tests/hw/test_dot.py tests/hw/test_quantizer.py`"),
    Item("dot unit, quantizer, reduction tree, special functions", "exact integers and fractions in Python; NumPy",
         "corner tables and random batches through the Verilog", "`pytest tests/hw`"),
    Item("every instruction", "functional model, itself judged by a slow second one",
         "random programs: all instructions, formats, loops, tokens, chains; whole state, cycles and flag; six "
         "configurations of 1 to 32 tiles", "`make random`", "random",
         lambda f: f"{f['programs'] - f['failed']} of {f['programs']} equal (seeds from {f['first']}, "
                   f"{f['instructions']} words)"),
    Item("the tests themselves", f"{len(FAULTS)} faults planted in the core and {len(HOST_FAULTS)} in the host port",
         "each must make a random program differ, or a test of the host port fail",
         "`make mutate`", "mutation",
         lambda f: f"{sum(x['by'] is not None for x in f['faults'])} of {len(f['faults'])} found"),
    Item("queues, tokens, AXI rules, products, rounding", "SymbiYosys", f"{len(PROOFS)} proofs, listed below",
         "`make formal`", "formal",
         lambda f: f"{sum(x['passed'] for x in f['proofs'])} of {len(f['proofs'])} proven"),
    Item("the netlist", "functional model; a model of the ports",
         "random programs on the whole preset `tiny` made of gates that ABC mapped, some through the ports alone, and "
         "random transfers on the ports; in `make verify` also the host port's own tests on its gates", "`make gate`, "
         "`pytest -m long tests/gatelevel`", "gate",
         lambda f: f"{f['programs'] - f['failed']} of {f['programs']} equal, {f['transfers']} transfers as they should "
                   f"be; {f['gates']} gates and {f['flops']} flip-flops"),
    Item("coverage of the whole preset `tiny`", "Verilator's counters; the timing model's reasons for waiting",
         "lines, toggles of all buses, instruction x form x what it waited for; random programs, commands and "
         "transfers, all judged", "`make coverage`", "coverage",
         lambda f: ", ".join(_share(f, kind) for kind in ("line", "toggle", "functional"))
                   + f", without {f['empty']} points of empty statements and {f['constant']} of constant bits"),
    Item("both ports of the whole device", "a model that knows docs/host.md and the memory map",
         "random transfers, several under way at once: every kind, size, strobe and length, illegal ones too, with "
         "pauses on every channel", "`pytest tests/sim/test_traffic.py`"),
    Item("host port", "`cocotbext-axi`, monitors, a model",
         "bursts, strobes, back-pressure, resets, illegal addresses, full and wrapped queues; devices of 2, 4 and 16 "
         "tiles; Verilator and Icarus Verilog", "`make sim`"),
    Item("every component, the core and the whole device, cycle by cycle", "models that monitors feed from the wires",
         "arithmetic, engines and their fronts, sequencer, operand buffer, scalars, lane, tile with accumulators, "
         "memories, queues, dispatcher, register slices; the core and the device on 2, 4 and 16 tiles, with one row "
         "format, two and all; queues of several depths; pauses, stalls, seeds; Verilator, and Icarus Verilog with its "
         "unknown values, the core also with clocks that stop", "`make sim`"),
    Item("the emitted Verilog", "`verilator --lint-only -Wall`",
         "no warning but the kinds waived in `tests/hw/test_lint.py`, each with its reason; every combinational block "
         "is started in Verilog and in SystemVerilog", "`pytest tests/hw/test_lint.py tests/hw/test_emit.py`"),
    Item("contents before reset", "functional model", "registers filled at random from two seeds",
         "`pytest -m long tests/hw/test_xinitial.py`"),
)


def _modules() -> list[str]:
    """Gates and coverage of every module of the preset `tiny`; nothing if neither was measured."""
    gates = (load("gate") or {}).get("modules", {})
    covered = (load("coverage") or {}).get("modules", {})
    lines = ["", "## Modules of `tiny`", "",
             "Each without the modules inside it: copies in the device, gates and flip-flops of one copy, lines and",
             "toggles that were reached.", "",
             "| module | copies | gates | flip-flops | memories | lines | toggles |", "|---|--:|--:|--:|--:|--:|--:|"]
    for name in sorted({*gates, *covered}):
        made, counts = gates.get(name, {}), covered.get(name, {})
        shares = (f"{reached / total:.1%} of {total}" if total else "none" for reached, total in
                  (counts.get(kind, (0, 0)) for kind in ("line", "toggle")))
        cells = (str(made.get(fact, "")) for fact in ("instances", "gates", "flops", "memories"))
        lines.append(f"| `{name}` | {' | '.join((*cells, *shares))} |")
    return lines if gates or covered else []


def text() -> str:
    """The page."""
    lines = [*HEAD.splitlines(), "", "| what | judged by | cases | command | last result |", "|---|---|---|---|---|"]
    for item in PLAN:
        facts = load(item.name) if item.name else None
        last = "not run here yet" if item.name else f"in `make {'verify' if 'long' in item.command else 'test'}`"
        if facts is not None and item.result is not None:
            last = f"{item.result(facts)} ({facts['date']})"
        lines.append(f"| {item.what} | {item.judge} | {item.cases} | {item.command} | {last} |")
    lines += ["", "## Proofs", "", "| proof | what holds | how far | solver | result |", "|---|---|---|---|---|"]
    proven = {p["name"]: p["passed"] for p in (load("formal") or {"proofs": []})["proofs"]}
    for name, proof in PROOFS.items():
        state = {True: "proven", False: "fails", None: "not run here yet"}[proven.get(name)]
        lines.append(f"| {name} | {proof.claim} | {proof.reach} | {proof.solver} | {state} |")
    lines += ["", *BOUNDS.splitlines(), "", "## Planted faults", "", *FAULTS_TEXT.splitlines(), "",
              "| fault | in | found by | what it said |", "|---|---|---|---|"]
    found = {x["name"]: x for x in (load("mutation") or {"faults": []})["faults"]}
    for fault in (*FAULTS, *HOST_FAULTS):
        facts = found.get(fault.name, {"by": "not run here yet", "what": ""})
        what = (facts["what"] or "").split(" (")[0].replace("|", r"\|")
        lines.append(f"| {fault.name} | `hw/{fault.file}` | {facts['by'] or 'none'} | {what} |")
    lines += [*_modules(), "", *OPEN.splitlines()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text())
