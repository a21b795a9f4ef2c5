"""The Verilog under Verilator as a device: ``rtl:`` and ``rtl:PRESET``."""

import numpy as np

from hw.config import HardwareConfig
from hw.memorymap import Space
from runtime.transport import (
    Command,
    Completion,
    Identity,
    Snapshot,
    check_command,
    check_range,
    check_values,
    configuration_of,
    register,
)
from sim.rtl import RtlDevice

__all__ = ["RtlTransport"]


class RtlTransport:
    """A transport to a simulation in this process, which moves on inside `advance` and while it answers.

    Parameters
    ----------
    config : HardwareConfig
        Up to 32 tiles. The simulation is built when the cache has none, which takes a minute or more.
    uri : str
        What the device was called.
    """

    def __init__(self, config: HardwareConfig, uri: str = "rtl:") -> None:
        self.config = config
        self.uri = uri
        self.device = RtlDevice(config)

    def identify(self) -> Identity:
        return Identity(self.uri, self.config, f"Verilog of {self.config.name!r} under Verilator, "
                                               f"{self.config.tiles} tiles")

    def read(self, space: Space, first: int = 0, count: int | None = None) -> np.ndarray:
        return self.device.read(space, first, check_range(self.config, space, first, count))

    def write(self, space: Space, first: int, values: np.ndarray) -> None:
        self.device.write(space, first, check_values(self.config, space, first, values))

    def submit(self, command: Command) -> bool:
        check_command(self.config, command)
        return self.device.submit(command.entry, command.arguments, command.tag)

    def poll(self) -> Completion | None:
        done = self.device.poll()
        return None if done is None else Completion(done.tag, done.cycles, done.nonfinite)

    def advance(self, cycles: int) -> None:
        self.device.advance(cycles)

    def reset(self) -> None:
        self.device.reset()

    def snapshot(self) -> Snapshot:
        return Snapshot(notes=(self.device.dump(),))

    def close(self) -> None:
        self.device.close()


@register("rtl", "rtl:PRESET", "the Verilog under Verilator: every cycle of the machine", whole=True)
def _open(rest: str, config: HardwareConfig | None) -> RtlTransport:
    return RtlTransport(configuration_of("rtl", rest, config), f"rtl:{rest}")
