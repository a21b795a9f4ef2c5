"""The functional model as a device: ``model:`` and ``model:PRESET``."""

from collections import deque

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
from sim.functional import FunctionalDevice

__all__ = ["ModelTransport"]


class ModelTransport:
    """A transport to a functional model in this process. A command runs, to its end, inside `advance`.

    Parameters
    ----------
    config : HardwareConfig
        At most 32 tiles.
    uri : str
        What the device was called.
    """

    def __init__(self, config: HardwareConfig, uri: str = "model:") -> None:
        self.config = config
        self.uri = uri
        self.device = FunctionalDevice(config)
        self._waiting: deque[Command] = deque()
        self._done: deque[Completion] = deque()

    def identify(self) -> Identity:
        return Identity(self.uri, self.config, f"functional model of {self.config.name!r}, "
                                               f"{self.config.tiles} tiles")

    def read(self, space: Space, first: int = 0, count: int | None = None) -> np.ndarray:
        return self.device.read(space, first, check_range(self.config, space, first, count))

    def write(self, space: Space, first: int, values: np.ndarray) -> None:
        self.device.write(space, check_values(self.config, space, first, values), first)

    def submit(self, command: Command) -> bool:
        check_command(self.config, command)
        if len(self._waiting) == self.config.commands:
            return False
        self._waiting.append(command)
        return True

    def poll(self) -> Completion | None:
        return self._done.popleft() if self._done else None

    def advance(self, cycles: int) -> None:
        # As in hardware, a command starts only if there is room for its completion.
        if self._waiting and len(self._done) < self.config.commands:
            command = self._waiting.popleft()
            done = self.device.run(command.entry, command.arguments)
            self._done.append(Completion(command.tag, done.cycles, done.nonfinite))

    def reset(self) -> None:
        self._waiting.clear()
        self._done.clear()

    def snapshot(self) -> Snapshot:
        return Snapshot(
            running=False, waiting=len(self._waiting), completions=len(self._done), address=self.device.stopped,
            notes=("a command of the functional model runs to its end at once, so no engine is at work",))

    def close(self) -> None:
        self.reset()


@register("model", "model:PRESET", "the functional model: bit for bit the machine, as fast as software can be",
          whole=True)
def _open(rest: str, config: HardwareConfig | None) -> ModelTransport:
    return ModelTransport(configuration_of("model", rest, config), f"model:{rest}")
