"""A device with a model in it: load an image, run its entry points, read results, compare with another
device.
"""

from collections.abc import Callable
from types import TracebackType

import numpy as np

from hw.config import HardwareConfig
from hw.image import Entry, Image
from hw.memorymap import ARGUMENTS, SPACE_TABLE, Space
from runtime import transport_model, transport_rtl
from runtime.resident import KvCache, ResidentModel
from runtime.transport import Command, Completion, DeviceError, Identity, Transport, open_transport

__all__ = ["CHUNK_CYCLES", "Device", "TIMEOUT_CYCLES", "TRANSPORTS"]

TRANSPORTS = (transport_model, transport_rtl)
"""Modules whose import registers the devices that come with the project."""

CHUNK_CYCLES = 50_000
"""Cycles a device is let run between two looks at its completions."""

TIMEOUT_CYCLES = 200_000_000
"""Cycles after which a command counts as hung, unless `Device.timeout_cycles` says otherwise."""


class Device:
    """One opened device, whatever it is made of. Use it as a context manager, or `close` it.

    Parameters
    ----------
    transport : Transport
        The way to the device; `Device.open` finds it by its URI.

    Attributes
    ----------
    timeout_cycles : int
        Cycles after which a command that does not complete is given up.
    progress : callable or None
        Called with the cycles since the start of the wait, about every `CHUNK_CYCLES`.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.identity: Identity = transport.identify()
        self.timeout_cycles = TIMEOUT_CYCLES
        self.progress: Callable[[int], None] | None = None
        self._model: ResidentModel | None = None
        self._tag = 0
        self._done: dict[int, Completion] = {}
        self._waiting: set[int] = set()

    @classmethod
    def open(cls, uri: str, config: HardwareConfig | None = None) -> "Device":
        """The device called `uri` (``model:``, ``rtl:tiny``, …), of configuration `config` if that is given.

        Raises `DeviceError` for a name that does not exist or a device of another configuration.
        """
        return cls(open_transport(uri, config))

    @property
    def config(self) -> HardwareConfig:
        """The device's configuration."""
        return self.identity.config

    @property
    def model(self) -> ResidentModel:
        """The loaded model; raises `DeviceError` when there is none."""
        if self._model is None:
            raise DeviceError(f"device {self.identity.uri!r} must have a model; it has none: call "
                              "load(image) first")
        return self._model

    @property
    def kv(self) -> KvCache:
        """The slots of the loaded model's KV cache."""
        return self.model.kv

    def load(self, image: Image) -> ResidentModel:
        """Make an image resident: its weights are written once and stay; loading it again writes nothing.

        Raises `DeviceError` when the image was compiled for another configuration.
        """
        if image.config.fingerprint != self.config.fingerprint:
            raise DeviceError(
                f"an image for configuration {self.config.name!r} ({self.config.fingerprint}) was wanted by "
                f"device {self.identity.uri!r}; this one is for {image.config.name!r} "
                f"({image.config.fingerprint}): compile it with --config {self.config.name}, or open a "
                "device "
                f"of configuration {image.config.name!r}")
        if self._model is None or self._model.image is not image:
            self._model = ResidentModel.load(self.transport, image)
        return self._model

    def enqueue(self, entry: str | Entry, **arguments: int) -> int:
        """Queue a command and return its tag; `wait` takes its completion. Waits only while the queue is
        full.

        `entry` is an entry point of the loaded model or its name; `arguments` are those that it names.
        """
        if isinstance(entry, str):
            entry = self._entry(entry)
        self._tag = (self._tag + 1) & 0xFFFF_FFFF
        command = Command(entry.address, _bind(entry, arguments), self._tag)
        self._run_until(lambda: self.transport.submit(command), "a place in the command queue")
        self._waiting.add(command.tag)
        return command.tag

    def wait(self, tag: int) -> Completion:
        """The completion of the command with this tag; raises `DeviceError` when the device hangs."""
        if tag not in self._waiting:
            waiting = ", ".join(map(str, sorted(self._waiting))) or "none"
            raise DeviceError(f"no command with tag {tag!r} is waiting; waiting are {waiting}")
        self._run_until(lambda: tag in self._done, f"the completion of command {tag}")
        self._waiting.discard(tag)
        return self._done.pop(tag)

    def submit(self, entry: str | Entry, **arguments: int) -> Completion:
        """Run one command to its end: `enqueue`, then `wait`."""
        return self.wait(self.enqueue(entry, **arguments))

    def read_scalar(self, number: int) -> np.float32:
        """Scalar register `number` as fp32."""
        return self.transport.read(Space.SCALARS, number, 1).view(np.float32)[0]

    def read_argmax(self) -> int:
        """Index of the largest logit of the last ``decode`` command."""
        return int(self.transport.read(Space.SCALARS, self.model.image.argmax, 1)[0])

    def read_logits(self, image: Image | None = None) -> np.ndarray:
        """Logits of the last ``decode`` command, float32 (vocabulary,)."""
        first, count = (image or self.model.image).logits
        words = self.transport.read(Space.SCRATCH, first, -(-count // self.config.tiles))  # (words, T)
        return words.view(np.float32).reshape(-1)[:count]

    def state(self) -> dict[Space, np.ndarray]:
        """A copy of everything the host can see, by space (shapes as in docs/machine.md)."""
        return {space: self.transport.read(space) for space in SPACE_TABLE}

    def reset(self) -> None:
        """Stop what runs and forget what waits. The model must be loaded again."""
        self.transport.reset()
        self._model = None
        self._done.clear()
        self._waiting.clear()

    def close(self) -> None:
        """Give the device back."""
        self.transport.close()

    def __enter__(self) -> "Device":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def _entry(self, name: str) -> Entry:
        entries = self.model.image.entries
        if name not in entries:
            raise DeviceError(f"entry point {name!r} does not exist; this image has {', '.join(entries)}")
        return entries[name]

    def _run_until(self, condition: Callable[[], bool], what: str) -> None:
        """Let the device work, and collect completions, until a condition holds."""
        spent = 0
        while True:
            while (completion := self.transport.poll()) is not None:
                self._done[completion.tag] = completion
            if condition():
                return
            if spent >= self.timeout_cycles:
                raise DeviceError(f"{what} was wanted from device {self.identity.uri!r} within "
                                  f"{self.timeout_cycles} cycles; it hangs: reset "
                                  f"it\n{self.transport.dump()}")
            self.transport.advance(min(CHUNK_CYCLES, self.timeout_cycles - spent))
            spent += CHUNK_CYCLES
            if self.progress is not None:
                self.progress(spent)


def _bind(entry: Entry, arguments: dict[str, int]) -> tuple[int, ...]:
    """Values of an entry's arguments in its order; raises `DeviceError` for one missing, unknown or too
    large.
    """
    if set(arguments) != set(entry.arguments) or len(entry.arguments) > ARGUMENTS:
        raise DeviceError(f"entry point at {entry.address} takes ({', '.join(entry.arguments)}); "
                          f"got ({', '.join(arguments)})")
    for name, value in arguments.items():
        if not 0 <= value < 1 << 32:
            raise DeviceError(f"argument {name!r} takes 0 to {(1 << 32) - 1}; got {value!r}")
    return tuple(int(arguments[name]) for name in entry.arguments)
