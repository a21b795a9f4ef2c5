"""From tokens to the text that a client sees: whole characters only, and nothing from a stop string on."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runtime.job import Token
from runtime.tokenizer import Tokenizer

__all__ = ["Piece", "PlacedToken", "TextStream"]


@dataclass(frozen=True)
class PlacedToken:
    """A token and where its text begins in the whole text, in characters."""

    token: Token
    offset: int


@dataclass(frozen=True)
class Piece:
    """Text that became certain, and the tokens whose text begins in it."""

    text: str = ""
    tokens: tuple[PlacedToken, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.text or self.tokens)


class TextStream:
    """The text of one sequence as its tokens arrive.

    Text that could be the beginning of a stop string is held back until it is known not to be.

    Parameters
    ----------
    tokenizer : Tokenizer
        The model's.
    stops : iterable of str
        Texts that end the sequence; neither they nor what follows is given.
    """

    def __init__(self, tokenizer: Tokenizer, stops: Iterable[str] = ()) -> None:
        self.stops: Sequence[str] = tuple(stops)
        self.stopped = False
        self._decoder = tokenizer.stream()
        self._given = 0  # characters that were given
        self._held = ""
        self._waiting: list[PlacedToken] = []

    def push(self, token: Token) -> Piece:
        """What is certain with this token. Sets `stopped` when a stop string is complete."""
        self._waiting.append(PlacedToken(token, self._given + len(self._held)))
        self._held += self._decoder.push(token.index)
        if token.of_prompt:  # the prompt may hold what it likes
            return self._give(len(self._held))
        found = [at for stop in self.stops if (at := self._held.find(stop)) >= 0]
        if found:
            self.stopped = True
            return self._give(min(found), final=True)
        return self._give(len(self._held) - self._doubtful())

    def finish(self) -> Piece:
        """What is left when no more tokens come."""
        if self.stopped:
            return Piece()
        self._held += self._decoder.finish()
        return self._give(len(self._held), final=True)

    def _doubtful(self) -> int:
        """Characters at the end that may be the beginning of a stop string."""
        most = max((len(stop) for stop in self.stops), default=1) - 1
        for length in range(min(most, len(self._held)), 0, -1):
            tail = self._held[-length:]
            if any(stop.startswith(tail) for stop in self.stops):
                return length
        return 0

    def _give(self, length: int, final: bool = False) -> Piece:
        """Give `length` characters of what is held; a token goes with its first character."""
        text, self._held = self._held[:length], self._held[length:]
        self._given += length
        ready = len(self._waiting) if final and not self._held else 0
        while ready < len(self._waiting) and self._waiting[ready].offset < self._given:
            ready += 1
        tokens, self._waiting = tuple(self._waiting[:ready]), self._waiting[ready:]
        return Piece(text, tokens)
