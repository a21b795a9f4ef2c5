"""Verilog of the core for any tool, and what a simulator has to be told about it."""

import os

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


def verilog(component, name: str) -> str:
    """Verilog of an Amaranth component, its top module called `name`, without source locations."""
    # A Yosys on the path would be picked up silently, and distributions ship ones that are too old.
    os.environ["AMARANTH_USE_YOSYS"] = "builtin"
    from amaranth.back import verilog as back  # slow to import, and needed only here

    return back.convert(component, name=name, emit_src=False)


def tile_sources(config: HardwareConfig, *, packed: bool = True) -> dict[str, str]:
    """Verilog files of the tile (module ``tile``) and its memories, by name; the core needs them.

    Without `packed` the dot unit has products that fit multipliers of 18 by 18 bits, as FPGAs have them.
    """
    return {"wordline_ram.v": VERILOG, "tile.v": verilog(Tile(config, packed=packed), "tile")}


def core_sources(config: HardwareConfig) -> dict[str, str]:
    """Verilog files of the core alone, module ``core``."""
    return {**tile_sources(config), "core.v": verilog(Core(config), "core")}
