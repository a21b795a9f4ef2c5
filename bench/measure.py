"""What the benchmarks share: one core, the machine they ran on, and the JSON they write."""

import argparse
import json
import os
import platform
import resource
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["arguments", "machine", "on_one_core", "peak_megabytes", "record"]


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


def record(facts: dict[str, Any], output: Path | None) -> None:
    """Print the measurements as JSON, and write them to a file if one is named."""
    text = json.dumps({**facts, "machine": machine()}, indent=2)
    print(text)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text + "\n")
