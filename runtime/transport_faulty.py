"""A device with planned faults, in front of any other: ``faulty:hang=3@model:tiny``. It drives tests of recovery.

A fault happens once, at the given count, and is over after a reset:

=================  ====================================================================================
``drop=N``         the completion of the N-th command is lost
``corrupt=N``      one bit of the N-th read is flipped
``hang=N``         the N-th command never completes, nor do those behind it
``disconnect=N``   from the N-th call on, nothing answers
``full=N``         the command queue has no room for the first N commands that are tried
=================  ====================================================================================
"""

import numpy as np

from hw.config import HardwareConfig
from hw.memorymap import Space
from runtime.transport import Command, Completion, DeviceError, Identity, Snapshot, Transport, register, wrapped

__all__ = ["FAULTS", "FaultyTransport"]

FAULTS = ("drop", "corrupt", "hang", "disconnect", "full")


class FaultyTransport:
    """A transport that does what another one does, but for its faults.

    Parameters
    ----------
    inner : Transport
        The device.
    faults : dict
        Counts by the names in `FAULTS`.
    uri : str
        What the device was called.
    """

    def __init__(self, inner: Transport, faults: dict[str, int], uri: str) -> None:
        self.inner = inner
        self.faults = dict(faults)
        self.uri = uri
        self._planned = ", ".join(f"{name} at {count}" for name, count in faults.items())
        self._calls = self._reads = self._commands = self._refused = 0
        self._lost: set[int] = set()
        self._hung = False

    def identify(self) -> Identity:
        found = self.inner.identify()
        return Identity(self.uri, found.config, f"{found.description}, with planned faults: {self._planned}")

    def read(self, space: Space, first: int = 0, count: int | None = None) -> np.ndarray:
        self._call()
        words = self.inner.read(space, first, count)
        self._reads += 1
        if self._reads == self.faults.get("corrupt") and words.size:
            words.reshape(-1)[words.size // 2] ^= 1 << 13
        return words

    def write(self, space: Space, first: int, values: np.ndarray) -> None:
        self._call()
        self.inner.write(space, first, values)

    def submit(self, command: Command) -> bool:
        self._call()
        if self._refused < self.faults.get("full", 0):
            self._refused += 1
            return False
        if self._hung or self._commands + 1 == self.faults.get("hang"):
            self._hung = True
            return True
        if not self.inner.submit(command):
            return False
        self._commands += 1
        if self._commands == self.faults.get("drop"):
            self._lost.add(command.tag)
        return True

    def poll(self) -> Completion | None:
        self._call()
        completion = self.inner.poll()
        if completion is not None and completion.tag in self._lost:
            self._lost.remove(completion.tag)
            return self.inner.poll()
        return completion

    def advance(self, cycles: int) -> None:
        self._call()
        self.inner.advance(cycles)

    def reset(self) -> None:
        self.faults.clear()
        self._lost.clear()
        self._hung = False
        self.inner.reset()

    def snapshot(self) -> Snapshot:
        self._call()
        return self.inner.snapshot()

    def close(self) -> None:
        self.inner.close()

    def _call(self) -> None:
        self._calls += 1
        if self._calls >= self.faults.get("disconnect", self._calls + 1):
            raise DeviceError(f"device {self.uri!r} was to answer; the connection is lost: reset it")


@register("faulty", "faulty:FAULT=N@DEVICE", "another device with planned faults, for tests of recovery")
def _open(rest: str, config: HardwareConfig | None) -> FaultyTransport:
    options, inner = wrapped("faulty", rest, config)
    faults = {}
    for option in filter(None, options.split(",")):
        name, _, count = option.partition("=")
        if name not in FAULTS or not count.isdigit():
            inner.close()
            raise DeviceError(f"faults are {', '.join(f'{name}=N' for name in FAULTS)}; got {option!r}")
        faults[name] = int(count)
    return FaultyTransport(inner, faults, f"faulty:{rest}")
