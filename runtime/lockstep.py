"""Runs every command on two devices and compares everything that the host can see after each."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from hw.errors import WordlineError
from hw.image import Entry, Image
from hw.isa import Instruction, Opcode, decode, encode
from hw.memorymap import SPACE_TABLE, Space
from runtime.device import Device
from runtime.kvcache import KvCache
from runtime.transport import Completion
from sim.compare import Difference, first_difference_of

__all__ = ["Diverged", "Lockstep", "Pair", "first_difference"]

CHUNK_WORDS = 1 << 23
"""Words of a space that are compared at a time, so that two large arrays need not be copied whole."""

ZERO_ROWS = 4096


class Diverged(WordlineError):
    """Two devices that should be in the same state are not."""


@dataclass(frozen=True)
class Pair:
    """One command on both devices: its entry point's address, arguments, completions and seconds."""

    entry: Entry
    arguments: dict[str, int]
    first: Completion
    second: Completion
    first_seconds: float
    second_seconds: float
    compare_seconds: float


def first_difference(first: Device, second: Device) -> Difference | None:
    """Where the visible state of two devices of one configuration differs, or None."""
    for space, info in SPACE_TABLE.items():
        shape = info.shape(first.config)
        step = max(1, CHUNK_WORDS // math.prod(shape[1:]))
        found = None
        for start in range(0, shape[0], step):
            count = min(step, shape[0] - start)
            here = first_difference_of(space, first.transport.read(space, start, count),
                                       second.transport.read(space, start, count))
            if here and found:
                found = replace(found, count=found.count + here.count)
            elif here:
                found = replace(here, address=start + here.address)
        if found:
            return found
    return None


class Lockstep:
    """Two devices that hold one image and carry out the same commands; a session runs on it as on one device.

    `submit` raises `Diverged` after the first command that leaves them in different states. Results are read
    from the first device.

    Parameters
    ----------
    first, second : Device
        Both of the image's configuration. The image is loaded into both.
    image : Image
        The program.

    Attributes
    ----------
    kv : KvCache
        The slots of the KV cache, on both.
    progress : callable or None
        Called after every command with the number of commands so far.
    pairs : list of Pair
        The commands that left both devices in the same state.
    """

    def __init__(self, first: Device, second: Device, image: Image) -> None:
        self.first, self.second, self.image = first, second, image
        self.kv = KvCache(image.kv)
        self.progress: Callable[[int], None] | None = None
        self.pairs: list[Pair] = []
        first.load(image)
        second.load(image)
        if difference := first_difference(first, second):
            raise Diverged(f"{self._names} differ after loading: {difference}")
        self._initial = {space: first.transport.read(space) for space in SPACE_TABLE if space != Space.ARRAY}

    @property
    def _names(self) -> str:
        return f"{self.first.identity.uri} and {self.second.identity.uri}"

    def submit(self, entry: Entry, **arguments: int) -> Completion:
        """Run one command on both and compare; the first device's completion."""
        started = time.perf_counter()
        a = self.first.submit(entry, **arguments)
        between = time.perf_counter()
        b = self.second.submit(entry, **arguments)
        done = time.perf_counter()
        difference = first_difference(self.first, self.second)
        if difference or a.nonfinite != b.nonfinite:
            raise Diverged(self._explain(entry, arguments, difference))
        self.pairs.append(Pair(entry, arguments, a, b, between - started, done - between,
                               time.perf_counter() - done))
        if self.progress is not None:
            self.progress(len(self.pairs))
        return a

    def read_argmax(self) -> int:
        """Index of the largest logit of the last ``decode`` command."""
        return self.first.read_argmax()

    def read_logits(self) -> np.ndarray:
        """Logits of the last ``decode`` command, float32 (vocabulary,)."""
        return self.first.read_logits()

    def _explain(self, entry: Entry, arguments: dict[str, int], difference: Difference | None) -> str:
        """What differs after a command, and by which instruction."""
        given = " ".join(f"{name}={value}" for name, value in arguments.items())
        head = f"{self._names} differ after command {len(self.pairs) + 1} ({given})"
        if difference is None:
            return f"{head}: one reports numbers that are not finite, the other does not"
        found = self._search(entry, arguments)
        if found is None:
            return f"{head}: {difference}; repeated from the same state, the command leaves no difference"
        lines, difference = found
        program = decode(self.image.microcode[lines.start:lines.stop])
        text = str(program[-1]) if len(lines) == 1 else "a loop"
        where = f"{lines.start}" if len(lines) == 1 else f"{lines.start} to {lines.stop - 1}"
        return (f"{head}, at microcode {where}, {_operator(self.image, lines.start)}: {difference}; "
                f"the instruction is: {text}")

    def _search(self, entry: Entry, arguments: dict[str, int]) -> tuple[range, Difference] | None:
        """Bisect the command: which microcode words make the two states differ, and what differs then.

        Both devices are brought to the state before the command again and again, with the program cut off
        ever closer to the first word after which they differ.
        """
        before = self._replay()
        program = decode(self.image.microcode)
        end = next(n for n in range(entry.address, len(program)) if program[n].opcode == Opcode.HALT)

        def cut_at(address: int) -> Difference | None:
            for device in (self.first, self.second):
                device.transport.reset()
                for space, values in before.items():
                    device.transport.write(space, 0, values)
                device.transport.write(Space.MICROCODE, address, encode([Instruction(Opcode.HALT)]))
                device.submit(entry, **arguments)
            return first_difference(self.first, self.second)

        same, different, difference = entry.address, end, cut_at(end)
        if difference is None:
            return None
        while different - same > 1:
            middle = (same + different) // 2
            if found := cut_at(middle):
                different, difference = middle, found
            else:
                same = middle
        return _loop_around(program, same), difference


    def _replay(self) -> dict[Space, np.ndarray]:
        """The state before the latest command, made again on the first device."""
        transport, held = self.first.transport, len(self.image.array)
        transport.reset()
        transport.write(Space.ARRAY, 0, self.image.array)
        for row in range(held, self.first.config.rows, ZERO_ROWS):
            count = min(ZERO_ROWS, self.first.config.rows - row)
            transport.write(Space.ARRAY, row, np.zeros((count, *self.image.array.shape[1:]), np.uint32))
        for space, values in self._initial.items():
            transport.write(space, 0, values)
        for pair in self.pairs:
            self.first.submit(pair.entry, **pair.arguments)
        return self.first.state()


def _loop_around(program: list[Instruction], address: int) -> range:
    """A word, or the whole loop when the word is its END: then a later turn made the difference."""
    start, depth = address, 0
    if program[address].opcode == Opcode.END:
        while True:
            depth += {Opcode.END: 1, Opcode.LOOP: -1}.get(program[start].opcode, 0)
            if depth == 0:
                break
            start -= 1
    return range(start, address + 1)


def _operator(image: Image, address: int) -> str:
    for first, last, name in image.operators:
        if first <= address < last:
            return f"operator {name!r}"
    return "outside any operator"
