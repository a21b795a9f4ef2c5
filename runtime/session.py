"""Runs one sequence on a device: prompt processing, generation, and a KV cache kept from turn to turn."""

import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from hw.errors import WordlineError
from hw.image import Entry, Image
from runtime.device import Device
from runtime.dispatcher import Operation
from runtime.kvcache import KvCache
from runtime.sampling import Sampler, Sampling
from runtime.transport import Completion
from runtime.wait import wait

__all__ = ["GREEDY", "Machine", "Session", "SessionError", "Step"]

GREEDY = Sampling()
"""Always the best token."""


class SessionError(WordlineError):
    """Tokens that the model or its KV cache cannot take."""


class Machine(Protocol):
    """What a session needs of a device that holds an image: a `Device`, or two of them in lockstep."""

    @property
    def kv(self) -> KvCache:
        """The slots of the loaded image's KV cache."""

    def submit(self, entry: Entry, **arguments: int) -> Completion:
        """Run one command to its end."""

    def read_argmax(self) -> int:
        """Index of the largest logit of the last ``decode`` command."""

    def read_logits(self) -> np.ndarray:
        """Logits of the last ``decode`` command, float32 (vocabulary,)."""


@dataclass(frozen=True)
class Step:
    """One token through the model: which, where, how long it took on the device and on the clock."""

    kind: str
    token: int
    position: int
    cycles: int
    seconds: float


class _Begun(NamedTuple):
    """A command on its way: queued on a device, or done on a machine that has no queue."""

    kind: str
    token: int
    position: int
    started: float
    queued: Operation | None
    done: Completion | None


class Session:
    """One sequence in one slot of the KV cache. Use it as a context manager, or `close` it.

    Parameters
    ----------
    device : Machine
        The device, with the image loaded.
    image : Image
        That image.

    Attributes
    ----------
    tokens : list of int
        The tokens whose keys and values are in the cache, from position 0.
    steps : list of Step
        What each command took, prompt and generation.
    """

    def __init__(self, device: Machine, image: Image) -> None:
        self.device = device
        self.image = image
        self.slot = device.kv.take()
        self.tokens: list[int] = []
        self.steps: list[Step] = []
        self._ended = 0.0

    @property
    def vocabulary(self) -> int:
        """Number of tokens that the model knows."""
        return self.image.logits[1]

    @property
    def context(self) -> int:
        """Tokens that the KV cache holds."""
        return self.image.kv.context

    def generate(self, prompt: Sequence[int], sampling: Sampling = GREEDY, max_tokens: int | None = None,
                 stop: Collection[int] = ()) -> Iterator[int]:
        """Tokens that follow `prompt`, one by one: `max_tokens` at most, and none from `stop` on.

        The part of the prompt that the cache already holds is not processed again. Raises `SessionError`
        at once for a prompt that cannot be, and while generating when the context is full.
        """
        self._check(prompt)
        return self._generate(list(prompt), Sampler(sampling), max_tokens, frozenset(stop))

    def _generate(self, prompt: list[int], sampler: Sampler, max_tokens: int | None,
                  stop: frozenset[int]) -> Iterator[int]:
        self.feed(prompt[:-1])
        token, made = prompt[-1], 0
        while max_tokens is None or made < max_tokens:
            if len(self.tokens) == self.context:
                raise SessionError(f"the context of {self.context} tokens is full after {made} new ones: "
                                   "compile with a longer --context, or start a new chat")
            self._run("decode", token)
            # The device has found the best token itself: greedy moves one number, not the logits.
            if sampler.sampling.greedy:
                token = self.device.read_argmax()
            else:
                token = sampler.choose(self.device.read_logits())
            if token in stop:
                return
            yield token
            made += 1

    def feed(self, prompt: Sequence[int]) -> None:
        """Bring the cache to hold exactly `prompt`; what it shares with the tokens already there is kept."""
        kept = 0
        while kept < min(len(prompt), len(self.tokens)) and prompt[kept] == self.tokens[kept]:
            kept += 1
        self._truncate(kept)
        # The next command is on the device before the one before it is done.
        ahead = 1 if isinstance(self.device, Device) else 0
        begun: deque[_Begun] = deque()
        try:
            for token in prompt[kept:]:
                begun.append(self._begin("prefill", token))
                if len(begun) > ahead:
                    self._end(begun.popleft())
            while begun:
                self._end(begun.popleft())
        except BaseException:
            # A command that is left behind runs before whatever is queued for its slot later, so it does no harm.
            self.device.kv.truncate(self.slot, len(self.tokens))
            raise

    def score(self, tokens: Sequence[int]) -> Iterator[np.ndarray]:
        """Logits, float32 (vocabulary,), after each of `tokens`, from an empty cache."""
        self._check(tokens)
        self._truncate(0)
        for token in tokens:
            self._run("decode", token)
            yield self.device.read_logits()

    def close(self) -> None:
        """Give the slot back."""
        self.device.kv.release(self.slot)

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _truncate(self, length: int) -> None:
        del self.tokens[length:]
        self.device.kv.truncate(self.slot, length)

    def _run(self, kind: str, token: int) -> None:
        try:
            self._end(self._begin(kind, token))
        except BaseException:  # an interrupted command has written nothing that counts
            self.device.kv.truncate(self.slot, len(self.tokens))
            raise

    def _begin(self, kind: str, token: int) -> "_Begun":
        position = self.device.kv.grow(self.slot)
        entry = self.image.entry(kind, position + 1)
        values = {"token": token, "position": position, "slot": self.slot}
        arguments = {name: values[name] for name in entry.arguments}
        started = time.perf_counter()
        if isinstance(self.device, Device):
            return _Begun(kind, token, position, started, self.device.enqueue(entry, **arguments), None)
        return _Begun(kind, token, position, started, None, self.device.submit(entry, **arguments))

    def _end(self, begun: "_Begun") -> None:
        kind, token, position, started, queued, done = begun
        if queued is not None:
            wait(queued)
            done = queued.completion
        assert done is not None
        now = time.perf_counter()
        seconds, self._ended = now - max(started, self._ended), now
        self.tokens.append(token)
        self.steps.append(Step(kind, token, position, done.cycles, seconds))
        if done.nonfinite:
            raise SessionError(f"finite numbers were wanted; token {token} at position {position} made an "
                               "infinity or a NaN: the model file is damaged, or its numbers do not fit fp32")

    def _check(self, prompt: Sequence[int]) -> None:
        if not prompt:
            raise SessionError("a prompt of at least one token was wanted; got none")
        if len(prompt) > self.context:
            raise SessionError(f"the prompt has {len(prompt)} tokens; this image holds {self.context}: "
                               f"compile with --context {len(prompt) + 1} or more, or shorten the prompt")
        for token in prompt:
            if not 0 <= token < self.vocabulary:
                raise SessionError(f"a token id from 0 to {self.vocabulary - 1} was wanted; got {token!r}")
