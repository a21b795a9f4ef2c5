"""Slots that keep alike: a walk for one slot proves the same arguments in another.

Slots take part in a command in two ways: in rows of the cache, which are compared for every slot
(`compiler.check.rowreads`), and in scratch words that commands keep. When the words of one slot are those of another
a fixed distance on, first written by the same positions, and two commands differ only by that distance, and only
where they read or write kept words, then one walk is the other with these words renamed.
"""

import numpy as np

from compiler.check import kernel
from compiler.check.cache import Kept

__all__ = ["Alike"]


class Alike:
    """Commands that differ in their slots alone.

    Parameters
    ----------
    kept : Kept
        What commands keep.
    slots : int
        Of the cache.
    chooses : bool (m,)
        Accesses whose scratch words an argument chooses.
    sequence : int64 (m,)
        The sequence, 0 or 1, of each of these.
    """

    def __init__(self, kept: Kept, slots: int, chooses: np.ndarray, sequence: np.ndarray) -> None:
        self.chooses, self.sequence = chooses, sequence
        self.kept = np.concatenate([[0], np.cumsum(kept.word >= 0)])
        words = np.flatnonzero(kept.word >= 0)
        owner = kept.word_slot[kept.word[words]]
        first = words[owner == 0]
        self.distance: list[int | None] = []
        for slot in range(slots):
            mine = words[owner == slot]
            fits = (len(mine) == len(first) and len(np.unique(mine - first)) < 2
                    and np.array_equal(kept.tiles[kept.word[mine]], kept.tiles[kept.word[first]]))
            self.distance.append((int(mine[0] - first[0]) if len(mine) else 0) if fits else None)

    def keeps_to_kept(self, accesses: np.ndarray) -> bool:
        """Whether the words that arguments choose are all kept ones, and no others are."""
        scratch = accesses[:, kernel.SPACE] == kernel.SCRATCH
        number, room = self.count(accesses)
        return bool(np.all(np.where(self.chooses, number == room, number == 0) | ~scratch))

    def count(self, accesses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Kept words among those that each access reaches, as if it were to scratch, and the words that it reaches,
        those between them too."""
        low = high = accesses[:, kernel.BASE]
        for loop, step in ((kernel.OUTER, kernel.OUTER_STEP), (kernel.INNER, kernel.INNER_STEP)):
            span = (np.maximum(accesses[:, loop], 1) - 1) * accesses[:, step]
            low, high = low + np.minimum(span, 0), high + np.maximum(span, 0)
        last = len(self.kept) - 2
        inside = self.kept[np.clip(high, 0, last) + 1] - self.kept[np.clip(low, 0, last)]
        return inside, high - low + 1

    def same(self, walked: np.ndarray, accesses: np.ndarray, slots: list[int], others: list[int]) -> bool:
        """Whether `accesses` of a command for the slots `others` are those of a `walked` one for `slots`, renamed."""
        renamed = walked.copy()
        for sequence, (slot, other) in enumerate(zip(slots, others, strict=True)):
            at, to = self.distance[slot], self.distance[other]
            if at is None or to is None:
                return False
            renamed[self.chooses & (self.sequence == sequence), kernel.BASE] += to - at
        return np.array_equal(renamed, accesses)
