"""A device that is recorded: ``record:FILE@DEVICE`` writes down all that goes between the host and another device."""

import numpy as np

from hw.config import HardwareConfig
from hw.memorymap import Space
from runtime.recording import Writer, digests, parts
from runtime.transport import Command, Completion, DeviceError, Identity, Snapshot, Transport, register, wrapped

__all__ = ["RecordTransport"]


class RecordTransport:
    """A transport that does what another one does, and writes a recording, complete when it is closed.

    Parameters
    ----------
    inner : Transport
        The device.
    path : str
        The file.
    """

    def __init__(self, inner: Transport, path: str) -> None:
        self.inner = inner
        self._writer = Writer(path, inner.identify())
        self._running = 0
        for space, first, count in parts(inner.identify().config):
            if (values := inner.read(space, first, count)).any():
                self._writer.add("initial", space=space.name.lower(), first=first, values=values)

    def identify(self) -> Identity:
        return self.inner.identify()

    def read(self, space: Space, first: int = 0, count: int | None = None) -> np.ndarray:
        values = self.inner.read(space, first, count)
        self._writer.add("read", space=space.name.lower(), first=first, count=len(values), values=values)
        return values

    def write(self, space: Space, first: int, values: np.ndarray) -> None:
        self.inner.write(space, first, values)
        self._writer.add("write", space=space.name.lower(), first=first, values=np.asarray(values))

    def submit(self, command: Command) -> bool:
        taken = self.inner.submit(command)
        if taken:
            self._running += 1
            self._writer.add("submit", entry=int(command.entry), arguments=[int(v) for v in command.arguments],
                             tag=int(command.tag))
        return taken

    def poll(self) -> Completion | None:
        completion = self.inner.poll()
        if completion is not None:
            self._running -= 1
            self._writer.add("completion", **completion._asdict())
            if not self._running:
                self._writer.add("fence", state=digests(self.inner))
        return completion

    def advance(self, cycles: int) -> None:
        self.inner.advance(cycles)

    def reset(self) -> None:
        self.inner.reset()
        self._running = 0
        self._writer.add("reset")

    def snapshot(self) -> Snapshot:
        return self.inner.snapshot()

    def close(self) -> None:
        self._writer.close()
        self.inner.close()


@register("record", "record:FILE@DEVICE", "another device, with all that it is told and says written to a file")
def _open(rest: str, config: HardwareConfig | None) -> RecordTransport:
    path, inner = wrapped("record", rest, config)
    if not path:
        inner.close()
        raise DeviceError(f"device {'record:' + rest!r} needs a file: 'record:FILE@DEVICE'")
    try:
        return RecordTransport(inner, path)
    except DeviceError:
        inner.close()
        raise
