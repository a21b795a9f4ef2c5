"""Which slot of the KV cache a sequence gets, and what it can begin with: its own past, or a copy of another's."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from runtime.job import Job
from runtime.kvcache import KvCache

__all__ = ["COPY_LEAST", "Slot", "Slots"]

LOST_WEIGHT = 0.25
"""What forgetting a cached token costs, against running one again: most are never asked for once more."""

COPY_LEAST = 8
"""Tokens from which on copying them from another slot is worth the host's work."""


@dataclass(eq=False)
class Slot:
    """A slot: the tokens whose keys and values it holds, the sequence that has it, the round of its last command.

    `source` is a slot that is about to hold the first `common` tokens that this one needs, run by `leader`.
    """

    number: int
    tokens: list[int] = field(default_factory=list)
    job: Job | None = None
    used: int = 0
    source: "Slot | None" = None
    leader: Job | None = None
    common: int = 0

    def shared(self, prompt: Sequence[int]) -> int:
        """Tokens at the beginning of `prompt` that this slot holds, short of the last: that is always run."""
        return _shared(self.tokens, prompt)

    def gain(self, prompt: Sequence[int]) -> float:
        """What is saved by continuing this slot with `prompt`, less what is lost."""
        shared = self.shared(prompt)
        return shared - LOST_WEIGHT * (len(self.tokens) - shared)

    def coming(self, prompt: Sequence[int]) -> int:
        """Like `shared`, when this slot's sequence has run its own prompt."""
        own = self.job.request.prompt if self.job is not None else ()
        return max(self.shared(prompt), _shared(own, prompt))


class Slots(list[Slot]):
    """All slots of a device, taken from its KV cache.

    Parameters
    ----------
    kv : KvCache
        Of the loaded model, every slot of it free.
    """

    def __init__(self, kv: KvCache) -> None:
        super().__init__(Slot(kv.take()) for _ in range(kv.layout.slots))
        self.kv = kv

    @property
    def free(self) -> list[Slot]:
        """Those without a sequence."""
        return [slot for slot in self if slot.job is None]

    def release(self) -> None:
        """Give all of them back."""
        for slot in self:
            self.kv.release(slot.number)

    def place(self, job: Job) -> Slot:
        """Give a sequence one of the free slots: the one that is most worth continuing, else the one unused for
        longest, which may begin with a copy of another's tokens.
        """
        prompt, free = job.request.prompt, self.free
        slot = max(free, key=lambda s: s.gain(prompt))
        if slot.gain(prompt) <= 0:
            slot = min(free, key=lambda s: s.used)
        slot.job, job.slot, slot.source = job, slot.number, None
        self.cut(slot, 0 if job.request.prompt_logprobs else slot.shared(prompt))
        job.reused = len(slot.tokens)
        if self.kv.copy is not None and not job.request.prompt_logprobs:
            self._follow(slot, prompt)
        return slot

    def _follow(self, slot: Slot, prompt: Sequence[int]) -> None:
        others = [s for s in self if s is not slot]
        source = max(others, key=lambda s: s.coming(prompt), default=None)
        if source is not None and source.coming(prompt) - len(slot.tokens) >= COPY_LEAST:
            slot.source, slot.leader, slot.common = source, source.job, source.coming(prompt)

    def waits(self, slot: Slot) -> bool:
        """Whether a slot's next command must wait for another slot's; copies what is there when it need not."""
        source, job = slot.source, slot.job
        if source is None or job is None:
            return False
        there = source.shared(job.request.prompt)
        if there < slot.common and source.job is not None and source.job is slot.leader:
            return True
        slot.source = slot.leader = None
        if there - len(slot.tokens) >= COPY_LEAST:
            self.kv.share(source.number, slot.number, there)
            slot.tokens[:] = job.request.prompt[:there]
            job.reused = there
        return False

    def cut(self, slot: Slot, length: int) -> None:
        """Forget a slot's tokens from `length` on."""
        del slot.tokens[length:]
        self.kv.truncate(slot.number, length)


def _shared(tokens: Sequence[int], prompt: Sequence[int]) -> int:
    most = min(len(tokens), len(prompt) - 1)
    return next((n for n in range(most) if tokens[n] != prompt[n]), most)
