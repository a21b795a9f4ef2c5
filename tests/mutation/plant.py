"""Every fault in one Verilog text, each behind a switch, so that one simulator build serves them all."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from hw.config import HardwareConfig
from hw.errors import WordlineError
from tests.mutation.faults import Fault

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

TOPS = {"core": "top", "host": "wordline"}
"""Top module of the Verilog with faults in the core, and of that with faults in the host port."""

MODULE = """\
module wordline_fault #(parameter NUMBER = 0) (output wire on);
    assign on = {top}.chosen_fault == NUMBER;
endmodule
"""


class PlantError(WordlineError):
    """A fault's text is not in the source any more."""


def patched(number: int, fault: Fault, source: str) -> str:
    """The source with a fault behind its switch; raises `PlantError` unless its text occurs exactly once."""
    before, right, behind = fault.parts
    count = source.count(before + right + behind)
    if count != 1:
        raise PlantError(f"the text of fault {fault.name!r} must occur once in hw/{fault.file}; it occurs {count} "
                         "times: change tests/mutation/faults.py or hostfaults.py with the source")
    return source.replace(before + right + behind, f"{before}planted(m, {number}, {fault.wrong}, {right}){behind}")


def planted_sources(what: Literal["core", "host"], config: HardwareConfig, faults: Sequence[Fault]) -> dict[str, str]:
    """Verilog of `tests.mutation.faulty` with all faults; number n, from 1, is in force while input ``fault`` is n."""
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        hardware = Path(folder) / "hw"
        shutil.copytree(ROOT / "hw", hardware, ignore=shutil.ignore_patterns("__pycache__"))
        (hardware / "planted.py").write_text(SWITCH)
        for file in sorted({fault.file for fault in faults}):
            source = (hardware / file).read_text()
            for number, fault in enumerate(faults, 1):
                if fault.file == file:
                    source = patched(number, fault, source)
            # Behind the docstring, where imports are.
            head, mark, rest = source.partition("\nfrom ")
            (hardware / file).write_text(f"{head}\nfrom hw.planted import planted{mark}{rest}")
        result = subprocess.run(
            [sys.executable, "-m", "tests.mutation.faulty", what], input=json.dumps(config.to_json()), text=True,
            capture_output=True, cwd=folder,
            env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"})
    if result.returncode:
        raise PlantError(f"the hardware with faults must elaborate; it said\n{result.stderr[-2000:]}")
    return {"fault.v": MODULE.format(top=TOPS[what]), **json.loads(result.stdout)}
