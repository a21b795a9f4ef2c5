# amaranth: UnusedElaboratable=no
"""``python -m tests.mutation.faulty core|host``: Verilog of hardware that holds planted faults, as JSON, for a
configuration on standard input. `tests.mutation.plant` runs it where ``hw`` is a copy with the faults.
"""

import json
import sys

from amaranth import ClockDomain, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.config import HardwareConfig
from hw.core import Core
from hw.emit import tile_sources, verilog
from hw.ram import VERILOG
from hw.top import Top
from tests.cocotb.runner import TOP, pins
from tests.coredouble import CoreDouble
from tests.hw.corebench import Registered

__all__ = ["FaultyCore", "FaultyHost", "texts"]

CHOICE = {"fault": In(16), "chosen_fault": Out(16)}


class FaultyCore(Registered):
    """`Registered` with an input that chooses a fault, behind a register."""

    def __init__(self, core):
        super().__init__(core, CHOICE)

    def elaborate(self, platform):
        m = super().elaborate(platform)
        m.d.pin += self.chosen_fault.eq(self.fault)
        return m


class FaultyHost(wiring.Component):
    """The host port in front of `CoreDouble`, as in its own tests, with an input that chooses a fault."""

    def __init__(self, config):
        self.device = Top(config, CoreDouble(config))
        super().__init__({**self.device.signature.members, **CHOICE})

    def elaborate(self, platform):
        m = Module()
        m.domains.choice = choice = ClockDomain(local=True, reset_less=True)
        m.submodules.device = device = self.device
        m.d.comb += choice.clk.eq(self.clk)
        m.d.choice += self.chosen_fault.eq(self.fault)
        for name, member in device.signature.members.items():
            ours, theirs = getattr(self, name), getattr(device, name)
            m.d.comb += theirs.eq(ours) if member.flow == In else ours.eq(theirs)
        return m


def texts(what: str, config: HardwareConfig) -> dict[str, str]:
    """Verilog files by name, of the core or of the host port."""
    if what == "core":
        return {**tile_sources(config), "top.v": verilog(FaultyCore(Core(config)), "top")}
    host = FaultyHost(config)
    return {"ram.v": VERILOG, "top.v": verilog(host, TOP, pins(host))}


if __name__ == "__main__":
    json.dump(texts(sys.argv[1], HardwareConfig.from_json(json.load(sys.stdin))), sys.stdout)
