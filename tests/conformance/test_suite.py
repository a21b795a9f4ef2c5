"""The conformance suite that ships with the runtime, run as its users run it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CASES = 216

SOME = "test_recovery or test_recording or test_commands or part or broadcast or scatter or forked"
"""On the Verilog: what goes through the ports, and what can go wrong there."""


def run(device: str, *options: str) -> dict[str, int]:
    """Outcomes of the suite on a device, counted."""
    # By the entry point of an installed project the plugin would be there already; this works in a bare checkout too.
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:wordline", "-p", "runtime.conformance.plugin", "--pyargs",
         "runtime.conformance", "--device", device, "-o", "addopts=--import-mode=importlib", *options],
        cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    return {what: int(n) for n, what in re.findall(r"(\d+) (passed|skipped|deselected|xfailed)", done.stdout)}


def test_the_functional_model_passes_all_of_it():
    assert run("model:tiny") == {"passed": CASES}


def test_nothing_passes_what_needs_no_machine():
    found = run("null:tiny")
    assert found["passed"] > 60 and found["passed"] + found["skipped"] == CASES


def test_faults_in_front_of_a_device_are_no_difference_until_they_come():
    found = run("faulty:hang=1000000@model:tiny", "-k", "test_queue or test_commands")
    assert found["passed"] > 40 and "skipped" not in found


@pytest.mark.rtl
def test_the_verilog_passes():
    found = run("rtl:tiny", "-k", SOME)
    assert found["passed"] > 100 and "skipped" not in found


@pytest.mark.rtl
def test_the_verilog_passes_through_its_ports_alone():
    found = run("rtl:tiny?port=all", "-k", "test_memory or forked or damaged")
    assert found["passed"] > 80 and "skipped" not in found
