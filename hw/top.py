"""The whole device: host port and core, with a clock, a reset, two AXI ports and an interrupt."""

from pathlib import Path

from amaranth import ClockDomain, DomainRenamer, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw import axi
from hw.config import HardwareConfig
from hw.core import Core
from hw.emit import tile_sources, verilog
from hw.hostport import CONTROL_PORT, WINDOW_PORT, HostPort
from hw.timing import latencies

__all__ = ["HOST_ACCESS", "Top", "emit", "sources"]

HOST_ACCESS = ("space", "tile", "address", "read", "write", "data", "strobe")
"""Signals of the core's host access that the host port drives, without ``host_``."""


class Top(wiring.Component):
    """One device.

    Timing: every input is registered, reset included, except that the ready inputs of the AXI ports also
    enable the registers of their channel. All outputs are registers.

    Parameters
    ----------
    config : HardwareConfig
    core : Component
        Stands in for ``Core(config)`` in tests of the host port.

    Members
    -------
    clk, rst : In(1)
        Clock and synchronous reset. Memories keep their contents in a reset.
    control_* : AXI4-Lite, subordinate
        The registers of `hw.memorymap`.
    window_* : AXI4, subordinate
        The window of `hw.memorymap`.
    irq : Out(1)
        High while a completion is not acknowledged, if enabled.
    """

    def __init__(self, config: HardwareConfig, core=None) -> None:
        self.config = config
        self.core = Core(config) if core is None else core
        super().__init__({
            "clk": In(1), "rst": In(1), **axi.members(CONTROL_PORT, "control"),
            **axi.members(WINDOW_PORT, "window"), "irq": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        reset = Signal()
        # The core has a reset of its own, so that the host can stop a command and keep its queues and AXI
        # ports.
        m.domains.sync = sync = ClockDomain(local=True)
        m.domains.core = core_domain = ClockDomain(local=True)
        m.domains.pin = pin = ClockDomain(reset_less=True, local=True)
        m.submodules.host = host = HostPort(self.config, read_latency=latencies(self.config).host_read)
        core = self.core
        m.submodules.core = DomainRenamer("core")(core)

        m.d.pin += reset.eq(self.rst)
        m.d.sync += core_domain.rst.eq(reset | host.core_reset)
        m.d.comb += [sync.clk.eq(self.clk), core_domain.clk.eq(self.clk), pin.clk.eq(self.clk),
        sync.rst.eq(reset)]

        for prefix, port in (("control", CONTROL_PORT), ("window", WINDOW_PORT)):
            for name, flow in axi.members(port, prefix).items():
                ours, theirs = getattr(self, name), getattr(host, name)
                m.d.comb += theirs.eq(ours) if flow.flow == In else ours.eq(theirs)
        m.d.comb += [
            self.irq.eq(host.irq),
            core.start.eq(host.start), core.entry.eq(host.entry), core.arguments.eq(host.arguments),
            host.core_busy.eq(core.busy), host.core_done.eq(core.done), host.core_cycles.eq(core.cycles),
            host.core_nonfinite.eq(core.nonfinite), host.core_position.eq(core.position),
            host.core_engines.eq(core.engines), host.host_q.eq(core.host_q),
            *(getattr(core, f"host_{name}").eq(getattr(host, f"host_{name}")) for name in HOST_ACCESS),
        ]
        return m


def sources(config: HardwareConfig, name: str = "wordline") -> dict[str, str]:
    """Verilog files of a whole device by name; the top module is `name`."""
    config.require_hardware()
    return {**tile_sources(config), f"{name}.v": verilog(Top(config), name)}


def emit(config: HardwareConfig, directory: Path) -> list[Path]:
    """Write the Verilog of a whole device into a folder, made if it is missing."""
    files = sources(config)
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, text in files.items():
        paths.append(directory / name)
        paths[-1].write_text(text)
    return paths
