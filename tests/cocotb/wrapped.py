"""The Verilog memories with ports, and the tile with one clock, as the benches need them."""

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.config import HardwareConfig
from hw.ram import Array, Ram
from hw.tile import Tile, tile_ports

__all__ = ["WrappedArray", "WrappedRam", "WrappedTile"]


class WrappedArray(wiring.Component):
    """`hw.ram.Array`."""

    def __init__(self, **sizes: int) -> None:
        self.array = array = Array(**sizes)
        super().__init__({"address": In(len(array.address)), "read_0": In(1), "q_0": Out(len(array.q)), "write": In(1),
                          "strobe": In(len(array.strobe)), "data": In(len(array.data))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.array = self.array.instance
        m.d.comb += [
            self.array.address.eq(self.address), self.array.read.eq(self.read_0), self.q_0.eq(self.array.q),
            self.array.write.eq(self.write), self.array.strobe.eq(self.strobe), self.array.data.eq(self.data),
        ]
        return m


class WrappedRam(wiring.Component):
    """`hw.ram.Ram`, all ports with one clock."""

    def __init__(self, *, reads: int, **sizes: int) -> None:
        self.ram = ram = Ram(reads=("sync",) * reads, **sizes)
        ports = {"write": In(1), "strobe": In(len(ram.strobe)), "write_address": In(len(ram.write_address)),
                 "data": In(len(ram.data))}
        for n in range(reads):
            ports |= {f"read_{n}": In(1), f"address_{n}": In(len(ram.read_address[n])), f"q_{n}": Out(len(ram.q[n]))}
        super().__init__(ports)

    def elaborate(self, platform):
        m = Module()
        ram = self.ram
        m.submodules.ram = ram.instance
        for name in ("write", "strobe", "write_address", "data"):
            m.d.comb += getattr(ram, name).eq(getattr(self, name))
        for n, (read, address, q) in enumerate(zip(ram.read, ram.read_address, ram.q, strict=True)):
            m.d.comb += [read.eq(getattr(self, f"read_{n}")), address.eq(getattr(self, f"address_{n}")),
                         getattr(self, f"q_{n}").eq(q)]
        return m


class WrappedTile(wiring.Component):
    """`hw.tile.Tile`, whose two clocks are one here, and which has no reset."""

    def __init__(self, config: HardwareConfig, *, packed: bool) -> None:
        self.tile = Tile(config, packed=packed)
        self.ports = {name: member for name, member in tile_ports(config).items() if not name.endswith("clk")}
        super().__init__({"clk": In(1), "rst": In(1), **self.ports})

    def elaborate(self, platform):
        m = Module()
        m.submodules.tile = tile = self.tile
        m.d.comb += [tile.clk.eq(self.clk), tile.lane_clk.eq(self.clk)]
        for name, member in self.ports.items():
            ours, theirs = getattr(self, name), getattr(tile, name)
            m.d.comb += theirs.eq(ours) if member.flow == In else ours.eq(theirs)
        return m
