"""Every fault in one Verilog text, each behind a switch, so that one simulator build serves them all."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from hw.config import HardwareConfig
from hw.errors import WordlineError
from tests.mutation.faults import FAULTS, Fault

__all__ = ["PlantError", "patched", "planted_sources"]

ROOT = Path(__file__).resolve().parent.parent.parent

SWITCH = '''\
"""A wrong expression in the place of the right one while the input ``fault`` of the top module has its number."""

from amaranth import Instance, Mux, Signal


def planted(m, number, wrong, right):
    on = Signal(name=f"fault_{number}")
    m.submodules += Instance("wordline_fault", p_NUMBER=number, o_on=on)
    return Mux(on, wrong, right)
'''

MODULE = """\
module wordline_fault #(parameter NUMBER = 0) (output wire on);
    assign on = top.chosen_fault == NUMBER;
endmodule
"""

EMIT = '''\
import json, sys
from amaranth.lib.wiring import In, Out
from hw.config import HardwareConfig
from hw.core import Core
from hw.emit import tile_sources, verilog
from tests.hw.corebench import Registered

class Faulty(Registered):
    """With an input that chooses a fault, behind a register."""

    def __init__(self, core):
        super().__init__(core, {"fault": In(16), "chosen_fault": Out(16)})

    def elaborate(self, platform):
        m = super().elaborate(platform)
        m.d.pin += self.chosen_fault.eq(self.fault)
        return m

config = HardwareConfig.from_json(json.load(sys.stdin))
json.dump({**tile_sources(config), "top.v": verilog(Faulty(Core(config)), "top")}, sys.stdout)
'''


class PlantError(WordlineError):
    """A fault's text is not in the source any more."""


def patched(number: int, fault: Fault, source: str) -> str:
    """The source with a fault behind its switch; raises `PlantError` unless its text occurs exactly once."""
    before, right, behind = fault.parts
    count = source.count(before + right + behind)
    if count != 1:
        raise PlantError(f"the text of fault {fault.name!r} must occur once in hw/{fault.file}; it occurs {count} "
                         "times: change tests/mutation/faults.py with the source")
    return source.replace(before + right + behind, f"{before}planted(m, {number}, {fault.wrong}, {right}){behind}")


def planted_sources(config: HardwareConfig) -> dict[str, str]:
    """Verilog of `tests.hw.corebench` with all faults; number n of `FAULTS` is in force while input ``fault`` is n."""
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        hardware = Path(folder) / "hw"
        shutil.copytree(ROOT / "hw", hardware, ignore=shutil.ignore_patterns("__pycache__"))
        (hardware / "planted.py").write_text(SWITCH)
        for file in sorted({fault.file for fault in FAULTS}):
            source = (hardware / file).read_text()
            for number, fault in enumerate(FAULTS, 1):
                if fault.file == file:
                    source = patched(number, fault, source)
            # Behind the docstring, where imports are.
            head, mark, rest = source.partition("\nfrom ")
            (hardware / file).write_text(f"{head}\nfrom hw.planted import planted{mark}{rest}")
        result = subprocess.run(
            [sys.executable, "-c", EMIT], input=json.dumps(config.to_json()), text=True, capture_output=True,
            cwd=folder, env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"})
    if result.returncode:
        raise PlantError(f"the hardware with faults must elaborate; it said\n{result.stderr[-2000:]}")
    return {"fault.v": MODULE, **json.loads(result.stdout)}
