"""Buffers: regions of a device's memories that belong to somebody, for as long as they are not freed.

A memory space is an array of entries (docs/machine.md), and a buffer is a run of them, in every tile when the space is
per tile. A loaded model holds what its program uses; the rest can be allocated.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hw.config import HardwareConfig
from hw.memorymap import SPACE_TABLE, Space
from runtime.transport import DeviceError

if TYPE_CHECKING:
    from runtime.dispatcher import Dispatcher

__all__ = ["Buffer", "Memory", "OutOfMemory"]


class OutOfMemory(DeviceError):
    """More entries of a space were wanted than are free in one piece."""


@dataclass(eq=False)
class Buffer:
    """Entries `first` to `first + count` of a space. Free it, or use it as a context manager.

    `owner` says in messages what it is for.
    """

    memory: "Memory"
    space: Space
    first: int
    count: int
    owner: str
    alive: bool = True

    def __repr__(self) -> str:
        return f"<Buffer {self.owner!r}: {self.space.name.lower()} {self.first} to {self.first + self.count - 1}>"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of its contents as the host sees them, entries first, tiles last."""
        return (self.count, *SPACE_TABLE[self.space].shape(self.memory.config)[1:])

    def part(self, first: int, count: int) -> "Buffer":
        """Some of its entries, under the same lifetime: it ends with the whole."""
        self.check()
        if first < 0 or count < 0 or first + count > self.count:
            raise DeviceError(f"buffer {self.owner!r} has entries 0 to {self.count - 1}; got {first} to "
                              f"{first + count - 1}")
        return _Part(self.memory, self.space, self.first + first, count, self.owner, whole=self)

    def check(self) -> None:
        """Raises `DeviceError` when it was freed."""
        if not self.alive:
            raise DeviceError(f"buffer {self.owner!r} was freed, or its device was reset: allocate it again")

    def free(self) -> None:
        """Give the entries back. Freeing twice is an error."""
        self.check()
        self.memory.free(self)

    def __enter__(self) -> "Buffer":
        return self

    def __exit__(self, *_: object) -> None:
        if self.alive:
            self.free()


@dataclass(eq=False, kw_only=True)
class _Part(Buffer):
    whole: Buffer

    def check(self) -> None:
        self.whole.check()

    def free(self) -> None:
        raise DeviceError(f"a part of buffer {self.owner!r} cannot be freed alone: free the buffer")


@dataclass
class Memory:
    """The allocator of one device: buffers in every space, first fit, none overlapping."""

    config: HardwareConfig
    dispatcher: "Dispatcher"
    held: dict[Space, list[Buffer]] = field(default_factory=lambda: {space: [] for space in SPACE_TABLE})
    """Living buffers of every space, by address."""

    def allocate(self, space: Space, count: int, owner: str = "buffer") -> Buffer:
        """The lowest free run of `count` entries; raises `OutOfMemory`, which says what is free and who has the rest.
        """
        if count < 1:
            raise DeviceError(f"a buffer has at least one entry; got {count!r}")
        gaps = self.gaps(space)
        fitting = [first for first, size in gaps if size >= count]
        if not fitting:
            free, largest = sum(size for _, size in gaps), max((size for _, size in gaps), default=0)
            holders = ", ".join(f"{b.owner!r} {b.count}" for b in self.held[space]) or "nobody"
            raise OutOfMemory(
                f"{count} entries of space {space.name.lower()} were wanted for {owner!r}; {free} of "
                f"{SPACE_TABLE[space].entries(self.config)} are free, {largest} in one piece (held by {holders}): free "
                "a buffer, or take a configuration with more")
        return self._hold(Buffer(self, space, fitting[0], count, owner))

    def reserve(self, space: Space, first: int, count: int, owner: str) -> Buffer:
        """Exactly these entries; raises `OutOfMemory` when somebody holds one of them."""
        for other in self.held[space]:
            if other.first < first + count and first < other.first + other.count:
                raise OutOfMemory(f"entries {first} to {first + count - 1} of space {space.name.lower()} were wanted "
                                  f"for {owner!r}; {other.owner!r} holds {other.first} to "
                                  f"{other.first + other.count - 1}: free it first")
        return self._hold(Buffer(self, space, first, count, owner))

    def free(self, buffer: Buffer) -> None:
        """Take a buffer's entries back."""
        self.held[buffer.space].remove(buffer)
        buffer.alive = False

    def clear(self) -> None:
        """End all buffers."""
        for buffers in self.held.values():
            for buffer in buffers:
                buffer.alive = False
            buffers.clear()

    def gaps(self, space: Space) -> list[tuple[int, int]]:
        """Free runs of a space: (first entry, entries)."""
        found, at = [], 0
        for buffer in self.held[space]:
            if buffer.first > at:
                found.append((at, buffer.first - at))
            at = buffer.first + buffer.count
        end = SPACE_TABLE[space].entries(self.config)
        return [*found, (at, end - at)] if end > at else found

    def _hold(self, buffer: Buffer) -> Buffer:
        self.held[buffer.space].append(buffer)
        self.held[buffer.space].sort(key=lambda b: b.first)
        return buffer

