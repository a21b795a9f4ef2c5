"""A device: open it by its URI, load a model, queue work, wait, look at results, and bring it back when it fails."""

from collections.abc import Callable
from types import TracebackType

import numpy as np

from hw.config import HardwareConfig
from hw.image import Entry, Image
from hw.memorymap import ARGUMENTS, SPACE_TABLE, Space
from runtime import (
    transport_faulty,
    transport_model,
    transport_null,
    transport_record,
    transport_replay,
    transport_rtl,
)
from runtime.buffer import Buffer, Memory
from runtime.command_buffer import CommandBuffer
from runtime.diagnosis import describe
from runtime.dispatcher import CHUNK_CYCLES, TIMEOUT_CYCLES, Dispatcher, Operation
from runtime.executable import check_fingerprint, check_slots
from runtime.kvcache import KvCache
from runtime.queue import Queue
from runtime.resident import ResidentModel
from runtime.semaphore import Point
from runtime.transport import (
    WORD,
    Command,
    Completion,
    DeviceError,
    Identity,
    Transport,
    check_command,
    open_transport,
)
from runtime.wait import wait

__all__ = ["CHUNK_CYCLES", "Device", "TIMEOUT_CYCLES", "TRANSPORTS"]

TRANSPORTS = (transport_model, transport_rtl, transport_null, transport_record, transport_replay, transport_faulty)
"""Modules whose import registers the devices that come with the project."""


class Device:
    """One opened device, whatever it is made of. Use it as a context manager, or `close` it.

    Parameters
    ----------
    transport : Transport
        The way to the device; `Device.open` finds it by its URI.

    Attributes
    ----------
    memory : Memory
        What is allocated in it.
    queue : Queue
        The queue that `enqueue` uses.
    """

    def __init__(self, transport: Transport) -> None:
        self.identity: Identity = transport.identify()
        self._dispatcher = Dispatcher(transport, self.identity.uri, self.dump)
        self.memory = Memory(self.identity.config, self._dispatcher)
        self.queue = self.new_queue()
        self._model: ResidentModel | None = None

    @classmethod
    def open(cls, uri: str, config: HardwareConfig | None = None) -> "Device":
        """The device called `uri` (``model:``, ``rtl:tiny``, …), of configuration `config` if that is given.

        Raises `DeviceError` for a name that does not exist or a device of another configuration.
        """
        return cls(open_transport(uri, config))

    @property
    def transport(self) -> Transport:
        """The way to the device. What is done there directly, the queues do not know of."""
        return self._dispatcher.transport

    @transport.setter
    def transport(self, transport: Transport) -> None:
        self._dispatcher.transport = transport

    @property
    def timeout_cycles(self) -> int:
        """Cycles without a completion after which the device counts as hung."""
        return self._dispatcher.timeout_cycles

    @timeout_cycles.setter
    def timeout_cycles(self, cycles: int) -> None:
        self._dispatcher.timeout_cycles = cycles

    @property
    def progress(self) -> Callable[[int], None] | None:
        """Called while waiting, with the cycles since the last completion, about every `CHUNK_CYCLES`."""
        return self._dispatcher.progress

    @progress.setter
    def progress(self, progress: Callable[[int], None] | None) -> None:
        self._dispatcher.progress = progress

    @property
    def config(self) -> HardwareConfig:
        """The device's configuration."""
        return self.identity.config

    @property
    def failure(self) -> DeviceError | None:
        """Why the device must be reset before it is used again, if it must."""
        return self._dispatcher.failure

    @property
    def model(self) -> ResidentModel:
        """The loaded model; raises `DeviceError` when there is none."""
        if self._model is None:
            raise DeviceError(f"device {self.identity.uri!r} must have a model; it has none: call load(image) first")
        return self._model

    @property
    def kv(self) -> KvCache:
        """The slots of the loaded model's KV cache."""
        return self.model.kv

    # Memory and programs

    def load(self, image: Image) -> ResidentModel:
        """Make an image resident: its weights are written once and stay; loading it again writes nothing.

        Another image's memories are given back first. Raises `DeviceError` when the image was compiled for another
        configuration, and `OutOfMemory` when a buffer is in its way.
        """
        if self._model is None or self._model.image is not image:
            check_fingerprint(self.memory, image, self.identity.uri)
            if self._model is not None:
                self._model.release()
                self._model = None
            self._model = ResidentModel(self.memory, image, self.identity.uri)
        return self._model

    def allocate(self, space: Space, count: int, owner: str = "buffer") -> Buffer:
        """`count` free entries of a space; raises `OutOfMemory`."""
        return self.memory.allocate(space, count, owner)

    def command_buffer(self) -> CommandBuffer:
        """An empty command buffer for the loaded model's program."""
        return CommandBuffer(self.model.executable)

    def new_queue(self) -> Queue:
        """Another order of operations, independent of the others."""
        return Queue(self._dispatcher)

    # Commands

    def enqueue(self, entry: str | Entry, **arguments: int) -> Operation:
        """Queue one command and return at once; `wait` gives its completion.

        `entry` is an entry point of the loaded model or its name; `arguments` are those that it names.
        """
        if not isinstance(entry, Entry):
            entry = self.model.executable.entry(entry)
        bound = _bind(entry, arguments)
        if not 0 <= entry.address < self.identity.config.microcode:
            check_command(self.config, Command(entry.address))
        return self.queue.enqueue((entry.address, bound))

    def wait(self, awaited: Operation | Point) -> None:
        """Wait for an operation or a semaphore, of this device or another.

        Raises the error of what failed: `DeviceHang` for a device that does not answer in time, `DeviceFailure` for
        one that breaks.
        """
        wait(awaited)

    def submit(self, entry: str | Entry, **arguments: int) -> Completion:
        """Run one command to its end: `enqueue`, then `wait`."""
        operation = self.enqueue(entry, **arguments)
        wait(operation)
        return operation.completions[-1]

    # Results

    def read_scalar(self, number: int) -> np.float32:
        """Scalar register `number` as fp32."""
        return self._dispatcher.read(Space.SCALARS, number, 1).view(np.float32)[0]

    def read_argmax(self, sequence: int = 0) -> int:
        """Index of the largest logit of the last ``decode`` or ``pair`` command; `sequence` 1 is a pair's second."""
        return int(self._dispatcher.read(Space.SCALARS, self._results(sequence)[1], 1)[0])

    def read_logits(self, sequence: int = 0) -> np.ndarray:
        """Logits of the last ``decode`` or ``pair`` command, float32 (vocabulary,); of its second for `sequence` 1."""
        first, count = self._results(sequence)[0], self.model.image.logits[1]
        words = self._dispatcher.read(Space.SCRATCH, first, -(-count // self.config.tiles))  # (words, T)
        return words.view(np.float32).reshape(-1)[:count]

    def _results(self, sequence: int) -> tuple[int, int]:
        """First scratch word of the logits and the argmax scalar of a sequence."""
        image = self.model.image
        results = ((image.logits[0], image.argmax), image.second)[sequence]
        if results is None:
            raise DeviceError("results of a second sequence were wanted; this image runs one a command: compile it "
                              "with --slots 2 --pairs")
        return results

    def state(self) -> dict[Space, np.ndarray]:
        """A copy of everything the host can see, by space (shapes as in docs/machine.md)."""
        return {space: self.transport.read(space) for space in SPACE_TABLE}

    # Trouble

    def dump(self) -> str:
        """What the device is doing: commands, program position, engines, queues and tokens, a line each."""
        return describe(self.identity, self._dispatcher, None if self._model is None else self._model.executable)

    def recover(self) -> None:
        """Stop what runs and forget what is queued; model, KV cache and buffers stay.

        What was queued fails, and so does what waits for it. A command that ran leaves the tokens of its own slot
        undefined from its position on; its sequence truncates the slot there. Raises `DeviceError` when the program
        is no longer what it was: then `reset` and load again.
        """
        self.transport.reset()
        self._dispatcher.recovered()
        if self._model is not None:
            self._model.executable.restore()
            self._model.executable.prove()

    def reset(self) -> None:
        """Stop what runs and forget everything. Buffers end; the model must be loaded again."""
        self.transport.reset()
        self._dispatcher.recovered()
        if self._model is not None:
            self._model.release()
            self._model = None
        self.memory.clear()

    def close(self) -> None:
        """Give the device back. What is still queued fails."""
        self._dispatcher.drop(DeviceError(f"device {self.identity.uri!r} was closed before this was done"))
        self.transport.close()

    def __enter__(self) -> "Device":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


def _bind(entry: Entry, arguments: dict[str, int]) -> tuple[int, ...]:
    """Values of an entry's arguments in its order.

    Raises `DeviceError` for one missing, unknown or too large, and for one slot of two sequences.
    """
    names = entry.arguments
    try:
        values = tuple([arguments[name] for name in names])
    except KeyError:
        values = ()
    if len(values) != len(arguments) or len(values) != len(names) or len(names) > ARGUMENTS:
        raise DeviceError(f"entry point at {entry.address} takes ({', '.join(names)}); got ({', '.join(arguments)})")
    if values and not 0 <= min(values) <= max(values) < WORD:
        name, value = next((n, v) for n, v in arguments.items() if not 0 <= v < WORD)
        raise DeviceError(f"argument {name!r} takes 0 to {WORD - 1}; got {value!r}")
    check_slots(names, values)
    return values
