"""Builds a component for cocotb with Verilator, once for equal Verilog, and runs the tests of a module on
it.
"""

import hashlib
import os
from contextlib import suppress
from unittest import mock

from cocotb_tools.check_results import get_results
from cocotb_tools.runner import Verilator

from hw.paths import cache_directory
from sim.verilator import FLAGS, emit_verilog, environment, require, verilator_version

__all__ = ["run"]

TOP = "wordline"


class _Runner(Verilator):
    """cocotb's runner without its ``--public-flat-rw``, which makes large designs slow to build and to
    run.
    """

    def _build_command(self):
        compile_, make = super()._build_command()
        return [[argument for argument in compile_ if argument != "--public-flat-rw"], make]


def run(component, module: str, *, verilog: dict[str, str] | None = None, settings: str = "",
        seed: int | None = None, **environment_: str) -> int:
    """Run all cocotb tests in the Python module `module` on an Amaranth component; the number of tests.

    Further Verilog files come in `verilog`, Verilator's settings for them in `settings`; what remains is
    set in the environment of the tests. Fails the calling test with cocotb's report if one of them fails.
    """
    require("g++", "make", "perl")
    sources = {"top.v": emit_verilog(component, TOP), **(verilog or {})}
    # Only the pins are visible to cocotb: what it can see, Verilator cannot optimise.
    pins = "".join(f'public_flat_rw -module "{TOP}" -var "{pin}"\n' for pin in component.signature.members)
    sources["pins.vlt"] = "`verilator_config\n" + pins + settings
    key = hashlib.sha256(repr((sorted(sources.items()), verilator_version())).encode()).hexdigest()[:16]
    folder = cache_directory() / "cocotb" / key
    folder.mkdir(parents=True, exist_ok=True)
    with mock.patch.dict(os.environ, environment()):
        runner = _Runner()
        if not (folder / TOP).exists():
            for name, text in sources.items():
                (folder / name).write_text(text)
            runner.build(
                sources=[folder / name for name in sources], hdl_toplevel=TOP, build_dir=folder, always=True,
                timescale=("1ns", "1ps"), log_file=folder / "build.log",
                build_args=[*FLAGS, "-CFLAGS", "-O0"])
        report = folder / f"{module}.log"
        # Inside pytest, cocotb leaves the process when a test fails; its log says which and why.
        with suppress(SystemExit):
            runner.test(
                test_module=module, hdl_toplevel=TOP, hdl_toplevel_lang="verilog", build_dir=folder,
                test_dir=folder, results_xml=str(folder / f"{module}.xml"), seed=seed, extra_env=environment_,
                log_file=report)
    count, failed = get_results(folder / f"{module}.xml")
    assert count and not failed, f"{failed} of {count} tests failed:\n{report.read_text()[-6000:]}"
    return count
