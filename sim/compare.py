"""The first difference between the visible state of two devices, space by space."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hw.config import HardwareConfig
from hw.errors import WordlineError
from hw.memorymap import SPACE_TABLE, Space

__all__ = ["CompareError", "Difference", "Readable", "first_difference", "first_difference_of"]

CHUNK_WORDS = 1 << 16
"""Words compared at a time: small enough for both sides to stay in the cache between comparison and search."""


class CompareError(WordlineError):
    """Two states that cannot be compared."""


class Readable(Protocol):
    """What a device must offer: a whole space in host form, uint32, without a copy where it can."""

    config: HardwareConfig

    def view(self, space: Space) -> np.ndarray: ...


@dataclass(frozen=True)
class Difference:
    """The first word that differs, in the order of addresses, and how many of the space do.

    `word` and `tile` are None in spaces that have no such axis.
    """

    space: Space
    address: int
    word: int | None
    tile: int | None
    first: int
    second: int
    count: int

    def __str__(self) -> str:
        place = f"{self.space.name.lower()} address {self.address}"
        place += "" if self.word is None else f" word {self.word}"
        place += "" if self.tile is None else f" of tile {self.tile}"
        return f"{place}: {self.first:#010x} and {self.second:#010x} ({self.count} words of this space differ)"


def first_difference_of(space: Space, first: np.ndarray, second: np.ndarray) -> Difference | None:
    """The first difference of one space's contents, two uint32 arrays of the same host shape, or None."""
    if first.shape != second.shape:
        raise CompareError(f"{space.name.lower()}: two spaces of one shape were wanted; got {first.shape} and "
                           f"{second.shape}: compare devices of one configuration")
    a, b = first.reshape(-1), second.reshape(-1)
    found, count = -1, 0
    for start in range(0, len(a), CHUNK_WORDS):
        part_a, part_b = a[start:start + CHUNK_WORDS], b[start:start + CHUNK_WORDS]
        if np.array_equal(part_a, part_b):
            continue
        different = np.flatnonzero(part_a != part_b)
        found = found if found >= 0 else start + int(different[0])
        count += len(different)
    if found < 0:
        return None
    index = [int(k) for k in np.unravel_index(found, first.shape)]
    tile = index.pop() if SPACE_TABLE[space].per_tile else None
    word = index[1] if len(index) > 1 else None
    return Difference(space, index[0], word, tile, int(a[found]), int(b[found]), count)


def first_difference(first: Readable, second: Readable, spaces: Any = SPACE_TABLE) -> Difference | None:
    """The first difference between two devices of one configuration in `spaces`, or None."""
    if first.config.fingerprint != second.config.fingerprint:
        raise CompareError(f"two devices of one configuration were wanted; got {first.config.name!r} and "
                           f"{second.config.name!r}")
    for space in spaces:
        difference = first_difference_of(Space(space), first.view(space), second.view(space))
        if difference is not None:
            return difference
    return None
