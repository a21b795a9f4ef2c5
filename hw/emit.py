"""Verilog of the core for any tool, and what a simulator has to be told about it."""

import os
import re
from collections.abc import Mapping
from typing import Any

from hw.config import HardwareConfig
from hw.core import Core
from hw.ram import VERILOG
from hw.tile import Tile

__all__ = ["SETTINGS", "core_sources", "tile_sources", "verilog"]

SETTINGS = """\
// The tiles are copies of one module and shall stay so: inlined or specialised, they would be compiled one by one.
no_inline -module "tile"
public_flat_rw -module "tile" -var "lane"
"""
"""Verilator configuration, without its first line."""


_TRIGGER = re.compile(r"^  reg (\\\$auto\$verilog_backend\S+ ) = 0;$", re.MULTILINE)
"""What Yosys gives every combinational block to start it at time zero, should its inputs never change."""


def verilog(component: Any, name: str, ports: Mapping[str, Any] | None = None) -> str:
    """Verilog of an Amaranth component, its top module called `name`, the same for Verilog and for SystemVerilog.

    `ports` gives other names to the ports, as ``amaranth.back.verilog.convert`` takes them. The text holds no
    source locations, so that equal hardware is equal text.
    """
    # A Yosys on the path would be picked up silently, and distributions ship ones that are too old.
    os.environ["AMARANTH_USE_YOSYS"] = "builtin"
    from amaranth.back import verilog as back  # slow to import, and needed only here

    text = back.convert(component, name=name, ports=None if ports is None else dict(ports), emit_src=False)
    # SystemVerilog gives a declared value before anything runs: nothing would change, and nothing start.
    return _TRIGGER.sub(r"  reg \1;\n  initial \1 = 0;", text)


def tile_sources(config: HardwareConfig, *, packed: bool = True) -> dict[str, str]:
    """Verilog files of the tile (module ``tile``) and its memories, by name; the core needs them.

    Without `packed` the dot unit has products that fit multipliers of 18 by 18 bits, as FPGAs have them.
    """
    return {"wordline_ram.v": VERILOG, "tile.v": verilog(Tile(config, packed=packed), "tile")}


def core_sources(config: HardwareConfig) -> dict[str, str]:
    """Verilog files of the core alone, module ``core``."""
    return {**tile_sources(config), "core.v": verilog(Core(config), "core")}
