"""A sequence that waits for a slot of the device or has one: what was asked, who listens, how far it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from time import monotonic
from typing import Protocol

import numpy as np

from hw.errors import WordlineError
from hw.image import Image
from runtime.logits import Adjustment, log_probabilities, most_probable
from runtime.sampling import Sampler, Sampling

__all__ = ["Constraint", "Ending", "Job", "Listener", "Request", "Token"]

_NUMBERS = count(1)


class Constraint(Protocol):
    """Says which tokens may come next, as a grammar does. Belongs to one sequence."""

    def mask(self, logits: np.ndarray) -> np.ndarray:
        """A copy of logits (vocab,) with minus infinity for every token that may not come next."""

    def accept(self, token: int) -> None:
        """This token came."""

    @property
    def complete(self) -> bool:
        """Whether nothing may follow."""


@dataclass(frozen=True)
class Request:
    """What to generate.

    Parameters
    ----------
    prompt : tuple of int
        At least one token.
    sampling : Sampling
        How to choose; the default takes the best token.
    max_tokens : int or None
        Tokens at most; None generates until the context is full. 0 only reads the prompt.
    stop : frozenset of int
        Tokens that end the sequence and are not given.
    logprobs : int or None
        Report the logarithm of each token's probability, and this many of the most probable tokens.
    prompt_logprobs : bool
        Report them for the prompt's tokens as well, from the second on. The prompt is then read anew.
    adjustment : Adjustment
        What is added to logits before the choice.
    constraint : Constraint or None
        What may come next.
    deadline : float or None
        `time.monotonic()` after which the sequence is given up.
    """

    prompt: tuple[int, ...]
    sampling: Sampling = Sampling()
    max_tokens: int | None = None
    stop: frozenset[int] = frozenset()
    logprobs: int | None = None
    prompt_logprobs: bool = False
    adjustment: Adjustment = Adjustment()
    constraint: Constraint | None = None
    deadline: float | None = None

    @property
    def needs_logits(self) -> bool:
        """Whether the index of the largest logit, which the device finds, is not enough."""
        return (not self.sampling.greedy or self.logprobs is not None or self.constraint is not None
                or not self.adjustment.neutral)


@dataclass(frozen=True)
class Token:
    """A token of a sequence, with what the model thought of it and of others if that was asked for."""

    index: int
    logprob: float | None = None
    top: Sequence[tuple[int, float]] = ()
    of_prompt: bool = False


@dataclass(frozen=True)
class Ending:
    """How a sequence ended.

    `reason` is "stop" (an end token, or the listener or the constraint had enough), "length" (`max_tokens` or
    a full context), "cancelled" or "error"; `error` is set with the last.
    """

    reason: str
    error: WordlineError | None = None


class Listener(Protocol):
    """Hears of a sequence, on the thread that runs the engine; must be quick."""

    def token(self, token: Token) -> bool:
        """A token came; False ends the sequence."""

    def ended(self, ending: Ending) -> None:
        """The sequence has left the engine. Said exactly once."""


class Job:
    """A sequence in the engine.

    Attributes
    ----------
    generated : list of int
        Tokens made so far.
    reused : int
        Tokens of the prompt that were in the cache already.
    submitted, started, first, finished : float
        `time.monotonic()` of its arrival, of its first command, of its first token and of its end; 0 before.
    """

    def __init__(self, request: Request, listener: Listener, image: Image) -> None:
        self.number = next(_NUMBERS)
        self.request = request
        self.listener = listener
        self.image = image
        self.generated: list[int] = []
        self.reused = 0
        self.slot: int | None = None
        self.cancelled = False
        self.alone = False  # never two sequences in a command
        self.attempts = 0  # of its present command, under which the device failed
        self.ending: Ending | None = None
        self.submitted = monotonic()
        self.started = self.first = self.finished = 0.0
        self._sampler = Sampler(request.sampling)

    def cancel(self) -> None:
        """Give the sequence up before its next command. From any thread, at any time."""
        self.cancelled = True

    def next_input(self, position: int) -> tuple[str, int]:
        """The kind of command, and the token, for this position."""
        r = self.request
        if position < len(r.prompt):
            last = position == len(r.prompt) - 1
            return "decode" if last or r.prompt_logprobs else "prefill", r.prompt[position]
        return "decode", self.generated[position - len(r.prompt)]

    def read_prompt(self, position: int, logits: np.ndarray) -> bool:
        """Report the prompt's token after `position`; False when its listener has had enough."""
        index = self.request.prompt[position + 1]
        return self.listener.token(self._token(index, logits, of_prompt=True))

    def choose(self, best: int | None, logits: np.ndarray | None) -> Token:
        """The token that follows, from the device's choice or from logits (vocab,)."""
        if logits is None:
            assert best is not None
            return Token(best)
        r, adjusted = self.request, logits
        if not r.adjustment.neutral:
            adjusted = r.adjustment.apply(adjusted, self.generated)
        if r.constraint is not None:
            adjusted = r.constraint.mask(adjusted)
        return self._token(self._sampler.choose(adjusted), logits)

    def _token(self, index: int, logits: np.ndarray, of_prompt: bool = False) -> Token:
        if self.request.logprobs is None:
            return Token(index, of_prompt=of_prompt)
        logs = log_probabilities(logits)
        return Token(index, float(logs[index]), most_probable(logs, self.request.logprobs), of_prompt)

    def take(self, token: Token, context: int) -> Ending | None:
        """Hand a new token on; how the sequence ended, if it did. `context` is what the cache holds."""
        r = self.request
        if not self.generated:
            self.first = monotonic()
        if token.index in r.stop:
            return Ending("stop")
        self.generated.append(token.index)
        if r.constraint is not None:
            r.constraint.accept(token.index)
        if not self.listener.token(token) or (r.constraint is not None and r.constraint.complete):
            return Ending("stop")
        made, full = len(self.generated), len(r.prompt) + len(self.generated) > context
        return Ending("length") if made == r.max_tokens or full else None

    def end(self, ending: Ending) -> None:
        """Tell the listener, once."""
        if self.ending is None:
            self.ending = ending
            self.finished = monotonic()
            self.listener.ended(ending)
