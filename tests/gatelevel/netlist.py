"""A design as single-bit gates and flip-flops, made by Yosys from the emitted Verilog, module by module."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tests.yosys import yosys

__all__ = ["LIBRARY", "Netlist", "synthesize"]

LIBRARY = ("AND", "OR", "XOR", "NAND", "NOR", "XNOR", "MUX")
"""Gates that ABC maps to; inverters and flip-flops with neither reset nor enable come on top."""

SCRIPT = f"""\
read_verilog -lib wordline_ram.v
read_verilog {{files}}
hierarchy -top {{top}}
proc -norom
opt -fast
memory -nomap
opt -fast
alumacc
maccmap
techmap
opt -fast
dfflegalize -cell $_DFF_P_ 01
opt_clean
abc -g {",".join(LIBRARY)} -script +strash;dc2;map
opt_clean
splitnets
clean
tee -o cells.json stat -json
write_verilog -noattr gates.v
"""
"""Memories stay what they are, for on a chip they are macros that no synthesis makes; everything else becomes gates of
one bit. The hierarchy stays, so that what a device has several times is synthesized once.

Flip-flops lose their enables and resets to multiplexers before ABC, which otherwise runs once for every enable. Its own
script would search for equal nodes among the products of the dot unit, which does not end in minutes. Nets are split
into bits, or a simulator would see loops through the vectors."""


@dataclass(frozen=True)
class Netlist:
    """Verilog of gates, how many of each kind each module has in itself, and its instances of other modules."""

    verilog: str
    cells: Mapping[str, Mapping[str, int]]
    instances: Mapping[str, Mapping[str, int]]

    def total(self, module: str) -> Counter[str]:
        """Cells of a module and of all that is in it."""
        sum_ = Counter(self.cells[module])
        for inner, count in self.instances[module].items():
            for kind, number in self.total(inner).items():
                sum_[kind] += count * number
        return sum_


def synthesize(sources: Mapping[str, str], top: str) -> Netlist:
    """Gates of the module `top` of these Verilog files, by name; its memories are in ``wordline_ram.v``."""
    files = " ".join(name for name in sources if name != "wordline_ram.v")
    cells, gates = yosys(SCRIPT.format(top=top, files=files), sources, f"{top!r} as gates", ("cells.json", "gates.v"))
    found = json.loads(cells)["modules"]
    return _netlist(gates, {name.removeprefix("\\"): facts["num_cells_by_type"] for name, facts in found.items()})


def _netlist(verilog: str, kinds: Mapping[str, Mapping[str, int]]) -> Netlist:
    """A cell is a gate, a memory, or an instance of a module that is in the netlist or of a memory's."""
    cells: dict[str, dict[str, int]] = {}
    instances: dict[str, dict[str, int]] = {}
    for module, counts in kinds.items():
        named = {kind.removeprefix("\\"): count for kind, count in counts.items()}
        cells[module] = {kind: count for kind, count in named.items() if kind not in kinds}
        instances[module] = {kind: count for kind, count in named.items() if kind in kinds}
    return Netlist(verilog, cells, instances)
