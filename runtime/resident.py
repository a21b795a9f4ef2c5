"""What stays in a device between commands: the model that was loaded, and the KV cache with its slots."""

from dataclasses import dataclass, field

import numpy as np

from hw.image import Image, KvLayout
from hw.memorymap import Space
from runtime.transport import DeviceError, Transport

__all__ = ["KvCache", "LOADED", "ResidentModel"]

LOADED: tuple[tuple[Space, str], ...] = (
    (Space.ARRAY, "array"), (Space.SCRATCH, "scratch"), (Space.SCALARS, "scalars"),
    (Space.MICROCODE, "microcode"), (Space.TABLES, "tables"), (Space.FUNCTIONS, "functions"),
)
"""Spaces that an image fills from entry 0 on, and the image's tensor for each."""

_CONSTANT = (Space.MICROCODE, Space.TABLES, Space.FUNCTIONS)
"""Spaces that no program can change."""


@dataclass
class KvCache:
    """The slots of a device's KV cache: which are taken, and how many tokens each holds.

    The contents are rows of the array; this object counts, so that no command is given a position that the
    cache does not have.
    """

    layout: KvLayout
    lengths: dict[int, int] = field(default_factory=dict)
    """Tokens in every slot that is taken."""

    def take(self) -> int:
        """The lowest free slot, now taken and empty; raises `DeviceError` when all are taken."""
        for slot in range(self.layout.slots):
            if slot not in self.lengths:
                self.lengths[slot] = 0
                return slot
        raise DeviceError(f"a free KV slot was wanted; all {self.layout.slots} are taken: release one, or "
                          "compile "
                          "with more slots")

    def release(self, slot: int) -> None:
        """Give a slot back. Its tokens are forgotten."""
        self._check(slot)
        del self.lengths[slot]

    def grow(self, slot: int, tokens: int = 1) -> int:
        """Room for `tokens` more tokens in a slot; the position of the first of them."""
        self._check(slot)
        position = self.lengths[slot]
        if position + tokens > self.layout.context:
            raise DeviceError(f"KV slot {slot} holds {self.layout.context} tokens; {position + tokens} "
                              "were wanted: "
                              "shorten the text or compile with a longer context")
        self.lengths[slot] = position + tokens
        return position

    def truncate(self, slot: int, length: int) -> None:
        """Forget the tokens of a slot from `length` on."""
        self._check(slot)
        if not 0 <= length <= self.lengths[slot]:
            raise DeviceError(f"KV slot {slot} has {self.lengths[slot]} tokens; it cannot be cut to {length}")
        self.lengths[slot] = length

    def _check(self, slot: int) -> None:
        if slot not in self.lengths:
            taken = ", ".join(map(str, sorted(self.lengths))) or "none"
            raise DeviceError(f"KV slot {slot!r} is not taken; taken slots are {taken}")


@dataclass
class ResidentModel:
    """An image whose weights are in a device, with the KV cache that goes with it."""

    image: Image
    kv: KvCache

    @classmethod
    def load(cls, transport: Transport, image: Image) -> "ResidentModel":
        """Write everything an image brings into a device."""
        for space, name in LOADED:
            transport.write(space, 0, np.ascontiguousarray(getattr(image, name), np.uint32))
        return cls(image, KvCache(image.kv))

    def prove(self, transport: Transport) -> None:
        """Read the program and its constants back; raises `DeviceError` at the first word that differs.

        Array rows are compared too, all but those of the KV cache, which commands write: those are zero in
        the image.
        """
        for space, name in LOADED:
            wanted = getattr(self.image, name)
            if space == Space.ARRAY:
                _same(space, *_weights(wanted, transport.read(space, 0, len(wanted))))
            elif space in _CONSTANT:
                _same(space, wanted, transport.read(space, 0, len(wanted)))


def _weights(wanted: np.ndarray, found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    used = wanted.any(axis=(1, 2))
    return wanted[used], found[used]


def _same(space: Space, wanted: np.ndarray, found: np.ndarray) -> None:
    different = np.argwhere(wanted != found)
    if len(different):
        at = tuple(int(n) for n in different[0])
        raise DeviceError(f"space {space.name.lower()} must hold the image; {len(different)} words differ, "
                          "the first "
                          f"at {at}: {int(wanted[at]):#010x} was written, {int(found[at]):#010x} read: "
                          "load again")
