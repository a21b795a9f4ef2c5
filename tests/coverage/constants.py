"""Bits of a design that cannot toggle, because Yosys proves them constant."""

import json
from collections.abc import Mapping

from tests.yosys import yosys

__all__ = ["Bit", "constant_bits"]

SCRIPT = """\
read_verilog -lib wordline_ram.v
read_verilog {files}
hierarchy -top {top}
proc -norom
opt -full
wreduce
opt -full
write_json bits.json
"""
"""Constants travel through cells and registers, but not from one module into another."""

NAMELESS = "nameless_$"
"""Yosys forgets signals whose name begins with ``$``, which are those that Amaranth has no name for."""

Bit = tuple[str, str, int]
"""Module, signal, number."""


def constant_bits(sources: Mapping[str, str], top: str) -> set[Bit]:
    """Constant bits of the signals of all modules in Verilog files by name."""
    files = " ".join(name for name in sources if name != "wordline_ram.v")
    renamed = {name: text.replace(r"\$", f"\\{NAMELESS}") for name, text in sources.items()}
    text, = yosys(SCRIPT.format(top=top, files=files), renamed, f"constants of {top!r}", ("bits.json",))
    return {(module, signal.replace(NAMELESS, "$"), n + net.get("offset", 0))
            for module, facts in json.loads(text)["modules"].items()
            for signal, net in facts["netnames"].items() if not net["hide_name"]
            for n, bit in enumerate(net["bits"]) if bit in ("0", "1")}
