"""Builds a component for cocotb with Verilator or Icarus Verilog, once for equal Verilog, and runs the tests of a
module on it.
"""

import functools
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import cocotb
from amaranth import Value
from amaranth.hdl._ir import PortDirection
from amaranth.lib import wiring
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import Icarus, Verilator

from hw import emit
from hw.paths import cache_directory
from sim.verilator import FLAGS, environment, require, verilator_version

__all__ = ["ICARUS", "TOP", "Built", "build", "pins", "run"]

TOP = "wordline"

ICARUS = shutil.which("iverilog") is not None
"""Whether Icarus Verilog is installed."""


class _Runner(Verilator):
    """cocotb's runner without its ``--public-flat-rw``, which makes large designs slow to build and to
    run.
    """

    def _build_command(self):
        compile_, make = super()._build_command()
        return [[argument for argument in compile_ if argument != "--public-flat-rw"], make]


@functools.cache
def _icarus_version() -> str:
    return subprocess.run(["iverilog", "-V"], capture_output=True, text=True, check=True).stdout.splitlines()[0]


def pins(component) -> dict[str, tuple[Value, PortDirection]]:
    """Ports by name; members of an array are called ``x_0``."""
    return {"_".join(map(str, path)): (Value.cast(value), PortDirection.Input if member.flow == wiring.In else
                                       PortDirection.Output)
            for path, member, value in component.signature.flatten(component)}


@dataclass(frozen=True)
class Built:
    """A simulation that cocotb's tests can run on: its folder, and who runs it."""

    folder: Path
    runner: Verilator | Icarus

    def test(self, module: str, *, seed: int | None = None, **environment_: str) -> tuple[Path, Path]:
        """Run all cocotb tests in the Python module `module`; their results, which are missing if the simulator died,
        and their report. `environment_` is set for the tests.
        """
        report, results = self.folder / f"{module}.log", self.folder / f"{module}.xml"
        results.unlink(missing_ok=True)
        # Inside pytest, cocotb leaves the process when a test fails; its log says which and why.
        with mock.patch.dict(os.environ, environment()), suppress(SystemExit):
            self.runner.test(
                test_module=module, hdl_toplevel=TOP, hdl_toplevel_lang="verilog", build_dir=self.folder,
                test_dir=self.folder, results_xml=str(results), seed=seed, extra_env=environment_,
                log_file=report)
        return results, report

    def passed(self, module: str, *, seed: int | None = None, **environment_: str) -> int:
        """The number of tests that `test` runs. Fails the calling test with cocotb's report if one of them fails."""
        results, report = self.test(module, seed=seed, **environment_)
        count, failed = get_results(results) if results.exists() else (1, 1)
        assert count and not failed, f"{failed} of {count} tests failed:\n{report.read_text()[-6000:]}"
        return count


def build(verilog: dict[str, str], visible: Iterable[str], *, settings: str = "",
          simulator: str = "verilator") -> Built:
    """Simulate Verilog files by name, of which module `TOP` has the ports `visible`; what was built before is kept."""
    verilated = simulator == "verilator"
    require("g++", "make", "perl") if verilated else require("iverilog")
    sources = dict(verilog)
    if verilated:
        # Only the pins are visible to cocotb: what it can see, Verilator cannot optimise.
        lines = "".join(f'public_flat_rw -module "{TOP}" -var "{pin}"\n' for pin in ["clk", "rst", *visible])
        sources["pins.vlt"] = "`verilator_config\n" + lines + settings
    version = verilator_version() if verilated else _icarus_version()
    # A program finds cocotb's libraries where they were when it was built.
    key = hashlib.sha256(repr((sorted(sources.items()), version, cocotb.__version__, sys.prefix)).encode())
    folder = cache_directory() / "cocotb" / key.hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    runner = _Runner() if verilated else Icarus()
    # Both simulators leave a program: its name is cocotb's choice.
    if (folder / (TOP if verilated else "sim.vvp")).exists():
        runner.build_dir = folder
        return Built(folder, runner)
    for name, text in sources.items():
        (folder / name).write_text(text)
    with mock.patch.dict(os.environ, environment()):
        runner.build(
            sources=[folder / name for name in sources], hdl_toplevel=TOP, build_dir=folder, always=True,
            timescale=("1ns", "1ps"), log_file=folder / "build.log",
            build_args=[*FLAGS, "-CFLAGS", "-O0"] if verilated else [])
    return Built(folder, runner)


def run(component, module: str, *, verilog: dict[str, str] | None = None, settings: str = "",
        seed: int | None = None, simulator: str = "verilator", **environment_: str) -> int:
    """Run all cocotb tests in the Python module `module` on an Amaranth component; the number of tests.

    Further Verilog files come in `verilog`, Verilator's settings for them in `settings`; what remains is
    set in the environment of the tests. `simulator` is ``verilator`` or ``icarus``. Fails the calling test with
    cocotb's report if one of them fails.
    """
    ports = pins(component)
    built = build({"top.v": emit.verilog(component, TOP, ports), **(verilog or {})}, ports, settings=settings,
                  simulator=simulator)
    return built.passed(module, seed=seed, **environment_)
