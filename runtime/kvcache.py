"""The KV cache of a loaded model: slots, how many tokens each holds, copies of shared beginnings, eviction."""

from collections.abc import Callable
from dataclasses import dataclass, field

from hw.image import KvLayout
from runtime.transport import DeviceError

__all__ = ["KvCache"]


@dataclass
class KvCache:
    """The slots of a device's KV cache. The contents are in the device; this object counts.

    A slot is free, taken, or *kept*: nobody uses it, but its tokens stay for whoever continues them, until `take`
    finds no free slot and evicts the one kept for longest.

    Parameters
    ----------
    layout : KvLayout
        Of the image.
    copy : callable or None
        Copies the first tokens of a slot to another one: (source, target, tokens).
    """

    layout: KvLayout
    copy: Callable[[int, int, int], None] | None = None
    lengths: dict[int, int] = field(default_factory=dict)
    """Tokens in every slot that is taken or kept."""
    kept: dict[int, None] = field(default_factory=dict)
    """Slots that are kept, the longest first."""
    evictions: int = 0

    def take(self) -> int:
        """The lowest free slot, or the one kept for longest, now taken and empty; raises `DeviceError` when all are
        taken."""
        for slot in range(self.layout.slots):
            if slot not in self.lengths:
                self.lengths[slot] = 0
                return slot
        if self.kept:
            slot = next(iter(self.kept))
            self.evict(slot)
            self.lengths[slot] = 0
            return slot
        raise DeviceError(f"a free KV slot was wanted; all {self.layout.slots} are taken: release one, or compile "
                          "with more slots")

    def release(self, slot: int) -> None:
        """Give a slot back. Its tokens are forgotten."""
        self._check(slot)
        del self.lengths[slot]

    def keep(self, slot: int) -> None:
        """Give a slot back, but let its tokens stay for as long as no other one is free."""
        self._check(slot)
        self.kept[slot] = None

    def resume(self, slot: int) -> int:
        """Take a kept slot again; the tokens it holds."""
        if slot not in self.kept:
            raise DeviceError(f"KV slot {slot!r} is not kept; kept slots are {_list(self.kept)}")
        del self.kept[slot]
        return self.lengths[slot]

    def evict(self, slot: int) -> None:
        """Forget a kept slot."""
        self.resume(slot)
        self.release(slot)
        self.evictions += 1

    def grow(self, slot: int, tokens: int = 1) -> int:
        """Room for `tokens` more tokens in a slot; the position of the first of them."""
        position = self.lengths.get(slot, -1)
        if position < 0 or slot in self.kept:
            self._check(slot)
        if position + tokens > self.layout.context:
            raise DeviceError(f"KV slot {slot} holds {self.layout.context} tokens; {position + tokens} were wanted: "
                              "shorten the text or compile with a longer context")
        self.lengths[slot] = position + tokens
        return position

    def truncate(self, slot: int, length: int) -> None:
        """Forget the tokens of a slot from `length` on."""
        self._check(slot)
        if not 0 <= length <= self.lengths[slot]:
            raise DeviceError(f"KV slot {slot} has {self.lengths[slot]} tokens; it cannot be cut to {length}")
        self.lengths[slot] = length

    def fork(self, source: int, tokens: int | None = None) -> int:
        """Take a slot that begins with the first `tokens` tokens of another one (default: with all of them)."""
        if source not in self.kept:
            self._check(source)
        tokens = self.lengths[source] if tokens is None else tokens
        spared = source in self.kept
        if spared:  # it must not be the one that is evicted for its own copy
            self.resume(source)
        try:
            target = self.take()
            try:
                self.share(source, target, tokens)
            except BaseException:
                self.release(target)
                raise
        finally:
            if spared:
                self.keep(source)
        return target

    def share(self, source: int, target: int, tokens: int) -> None:
        """Make a taken slot hold the first `tokens` tokens of another one, and nothing else."""
        self._check(target)
        if not 0 <= tokens <= self.lengths.get(source, -1):
            raise DeviceError(f"KV slot {source} has {self.lengths.get(source, 0)} tokens; {tokens} cannot be copied")
        if self.copy is None:
            raise DeviceError("the rows of the KV cache must be known to copy them; this image does not say where they "
                              "are: compile it again")
        self.lengths[target] = 0
        if tokens and source != target:
            self.copy(source, target, tokens)
        self.lengths[target] = tokens

    def _check(self, slot: int) -> None:
        if slot not in self.lengths or slot in self.kept:
            taken = _list(sorted(self.lengths.keys() - self.kept.keys()))
            raise DeviceError(f"KV slot {slot!r} is not taken; taken slots are {taken}")


def _list(slots: object) -> str:
    return ", ".join(map(str, slots)) or "none"  # type: ignore[call-overload]
