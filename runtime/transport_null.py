"""A device that does nothing, at once: ``null:`` and ``null:PRESET``. What is measured on it is the host's own work."""

from collections import deque

import numpy as np

from hw.config import HardwareConfig
from hw.memorymap import SPACE_TABLE, Space
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

__all__ = ["NullTransport"]


class NullTransport:
    """Reads give zeros, writes are checked and dropped, commands complete as soon as they are submitted, in no time.

    Parameters
    ----------
    config : HardwareConfig
        Of any size, since nothing is stored.
    uri : str
        What the device was called.
    """

    def __init__(self, config: HardwareConfig, uri: str = "null:") -> None:
        self.config = config
        self.uri = uri
        self._inner = {space: info.shape(config)[1:] for space, info in SPACE_TABLE.items()}
        self._done: deque[Completion] = deque()

    def identify(self) -> Identity:
        return Identity(self.uri, self.config, f"nothing that says it is {self.config.name!r}, {self.config.tiles} "
                                               "tiles")

    def read(self, space: Space, first: int = 0, count: int | None = None) -> np.ndarray:
        count = check_range(self.config, space, first, count)
        return np.zeros((count, *self._inner[space]), np.uint32)

    def write(self, space: Space, first: int, values: np.ndarray) -> None:
        check_values(self.config, space, first, values)

    def submit(self, command: Command) -> bool:
        check_command(self.config, command)
        if len(self._done) == self.config.commands:
            return False
        self._done.append(Completion(command.tag, 0, False))
        return True

    def poll(self) -> Completion | None:
        return self._done.popleft() if self._done else None

    def advance(self, cycles: int) -> None:
        pass

    def reset(self) -> None:
        self._done.clear()

    def snapshot(self) -> Snapshot:
        return Snapshot(running=False, waiting=0, completions=len(self._done))

    def close(self) -> None:
        self.reset()


@register("null", "null:PRESET", "a device that does nothing, at once: it shows what the host costs")
def _open(rest: str, config: HardwareConfig | None) -> NullTransport:
    return NullTransport(configuration_of("null", rest, config), f"null:{rest}")
