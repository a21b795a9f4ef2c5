"""The Verilog under Verilator as a device: ``rtl:`` and ``rtl:PRESET``.

Everything but large transfers goes through the device's own AXI ports. ``rtl:tiny?port=all`` sends the weights that way
too, ``?port=none`` only what must be, ``?port=N`` transfers of up to N words.
"""

import numpy as np

from hw.config import HardwareConfig
from hw.memorymap import ENGINE_FIELDS, Register, Space, Status
from runtime.transport import (
    Command,
    Completion,
    DeviceError,
    EngineState,
    Identity,
    Snapshot,
    check_command,
    check_range,
    check_values,
    configuration_of,
    register,
)
from sim.rtl import RtlDevice

__all__ = ["PORT_WORDS", "RtlTransport"]

PORT_WORDS = 1024
"""Covers the best token, ids and small logits; on the largest presets, that is some thousand cycles of simulation."""


class RtlTransport:
    """A transport to a simulation in this process, which moves on inside `advance` and while it answers.

    Parameters
    ----------
    config : HardwareConfig
        Up to 32 tiles. The simulation is built when the cache has none, which takes a minute or more.
    uri : str
        What the device was called.
    port_words : int
        Words of the largest transfer through the window port; larger ones go straight into the memories.
    """

    def __init__(self, config: HardwareConfig, uri: str = "rtl:", port_words: int = PORT_WORDS) -> None:
        self.config = config
        self.uri = uri
        self.device = RtlDevice(config, port_words=port_words)

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
        get, engines = self.device.get, []
        status, packed = get(Register.STATUS), get(Register.ENGINES)
        for name in ("matrix", "vector"):
            fields = {}
            for field, width in ENGINE_FIELDS:
                fields[field], packed = packed & ((1 << width) - 1), packed >> width
            engines.append(EngineState(name, fields["waiting"], fields["tokens"], bool(fields["active"])))
        return Snapshot(
            running=bool(status >> Status.BUSY & 1), waiting=self.config.commands - get(Register.ROOM),
            completions=get(Register.COMPLETIONS), address=get(Register.POSITION), engines=tuple(engines),
            notes=(f"{self.device.cycles} cycles since power-up",))

    def close(self) -> None:
        self.device.close()


@register("rtl", "rtl:PRESET", "the Verilog under Verilator: every cycle of the machine", whole=True)
def _open(rest: str, config: HardwareConfig | None) -> RtlTransport:
    name, _, option = rest.partition("?")
    return RtlTransport(configuration_of("rtl", name, config), f"rtl:{rest}", _port_words(rest, option))


def _port_words(rest: str, option: str) -> int:
    key, _, value = option.partition("=")
    if not option:
        return PORT_WORDS
    if key != "port" or not (value in ("all", "none") or value.isdigit()):
        raise DeviceError(f"options of rtl: are ?port=all, ?port=none and ?port=WORDS; got {'rtl:' + rest!r}")
    return {"all": 1 << 62, "none": 0}[value] if value in ("all", "none") else int(value)
