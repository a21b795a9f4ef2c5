"""What the benchmarks share: one core, the machine they ran on, and the JSON they write."""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["BASELINE", "arguments", "machine", "on_one_core", "peak_megabytes", "record"]

BASELINE = Path(__file__).with_name("speed.json")
"""Recorded times and speeds, by benchmark, model and configuration."""


def arguments(description: str | None) -> argparse.ArgumentParser:
    """A parser with what every benchmark takes."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--output", type=Path, help="write the JSON here too")
    parser.add_argument("--model", default="smollm2-135m", help="a model that `wordline fetch` knows")
    parser.add_argument("--config", default="w16", help="preset")
    return parser


def on_one_core() -> None:
    """Keep this process and its threads on one core."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def peak_megabytes() -> int:
    """Largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def machine() -> dict[str, Any]:
    """The machine and the state of the project that numbers belong to."""
    cpu, flags = platform.processor(), ""
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        facts = dict(line.split("\t: ", 1) for line in map(_spaced, lines) if "\t: " in line)
        cpu, flags = facts.get("model name", cpu), facts.get("flags", "")
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False,
                          cwd=Path(__file__).parent)
    return {"cpu": cpu, "avx512_vnni": "avx512_vnni" in flags, "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 2), "commit": done.stdout.strip() or None,
            "when": datetime.now(UTC).isoformat(timespec="seconds")}


def _spaced(line: str) -> str:
    return line.replace("\t\t:", "\t:")


def _key(facts: dict[str, Any]) -> str:
    return f"{facts['benchmark']}, {facts.get('model')}, {facts.get('configuration')}"


def _compare(facts: dict[str, Any]) -> None:
    """Say on standard error how the measurements changed against the recorded ones, or record them if asked to.

    With ``WORDLINE_RECORD=1`` the baseline is written. Times belong to a machine: changes are shown, never judged.
    """
    known = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    numbers = {k: v for k, v in facts.items() if isinstance(v, int | float)}
    old = known.get(_key(facts))
    for name, value in numbers.items():
        if old and old["numbers"].get(name):
            print(f"{name}: {old['numbers'][name]:,} at {old['commit']} -> {value:,} "
                  f"({value / old['numbers'][name] - 1:+.1%})", file=sys.stderr)
    if os.environ.get("WORDLINE_RECORD") == "1":
        here = machine()
        known[_key(facts)] = {"numbers": numbers, "commit": here["commit"], "cpu": here["cpu"]}
        BASELINE.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def record(facts: dict[str, Any], output: Path | None) -> None:
    """Print the measurements as JSON, and write them to a file if one is named."""
    text = json.dumps({**facts, "machine": machine()}, indent=2)
    print(text)
    _compare(facts)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text + "\n")
