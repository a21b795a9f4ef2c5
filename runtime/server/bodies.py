"""Bodies of answers in OpenAI's form."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from runtime.job import Token
from runtime.server.model import ServedModel
from runtime.server.reply import Usage
from runtime.server.text import Piece, PlacedToken
from runtime.tokenizer import Tokenizer

__all__ = ["ChatForm", "CompletionForm", "Form"]

LEAST = -9999.0
"""For a probability of zero; JSON has no infinity."""


class Form(ABC):
    """How a request's answer is written: whole, or in chunks.

    Parameters
    ----------
    model : ServedModel
        The model that answers.
    identifier : str
        Of this answer.
    created : int
        Seconds since 1970.
    logprobs : bool
        Whether each token's probability is reported.
    """

    prefix: str
    whole: str
    chunk: str

    def __init__(self, model: ServedModel, identifier: str, created: int, logprobs: bool) -> None:
        self.model = model
        self.identifier = f"{self.prefix}-{identifier}"
        self.created = created
        self.logprobs = logprobs

    def _body(self, kind: str, choices: Sequence[Mapping[str, Any]], usage: Usage | None) -> dict[str, Any]:
        body: dict[str, Any] = {"id": self.identifier, "object": kind, "created": self.created,
                                "model": self.model.name, "system_fingerprint": self.model.image.config.fingerprint,
                                "choices": choices}
        if usage is not None:
            body["usage"] = usage.body()
        return body

    def finished(self, pieces: Sequence[Piece], reasons: Sequence[str], usage: Usage) -> dict[str, Any]:
        """The whole answer."""
        choices = [self._choice(n, piece, reason) for n, (piece, reason) in enumerate(zip(pieces, reasons,
                                                                                          strict=True))]
        return self._body(self.whole, choices, usage)

    def beginning(self, index: int) -> dict[str, Any] | None:
        """The chunk that opens a choice, if the form has one."""
        return None

    def part(self, index: int, piece: Piece, reason: str | None) -> dict[str, Any]:
        """A chunk of a choice."""
        return self._body(self.chunk, [self._delta(index, piece, reason)], None)

    def ending(self, usage: Usage) -> dict[str, Any]:
        """The last chunk, with the numbers of tokens."""
        return self._body(self.chunk, [], usage)

    @abstractmethod
    def _choice(self, index: int, piece: Piece, reason: str) -> dict[str, Any]:
        """A choice of a whole answer."""

    @abstractmethod
    def _delta(self, index: int, piece: Piece, reason: str | None) -> dict[str, Any]:
        """A choice of a chunk."""


class CompletionForm(Form):
    """Answers of `/v1/completions`."""

    prefix, whole, chunk = "cmpl", "text_completion", "text_completion"

    def _choice(self, index: int, piece: Piece, reason: str | None) -> dict[str, Any]:
        logprobs = _legacy_logprobs(self.model.tokenizer, piece.tokens) if self.logprobs else None
        return {"index": index, "text": piece.text, "logprobs": logprobs, "finish_reason": reason}

    _delta = _choice


class ChatForm(Form):
    """Answers of `/v1/chat/completions`."""

    prefix, whole, chunk = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def _choice(self, index: int, piece: Piece, reason: str) -> dict[str, Any]:
        return {"index": index, "message": {"role": "assistant", "content": piece.text, "refusal": None},
                "logprobs": self._logprobs(piece), "finish_reason": reason}

    def beginning(self, index: int) -> dict[str, Any] | None:
        choice = {"index": index, "delta": {"role": "assistant", "content": ""}, "logprobs": None,
                  "finish_reason": None}
        return self._body(self.chunk, [choice], None)

    def _delta(self, index: int, piece: Piece, reason: str | None) -> dict[str, Any]:
        return {"index": index, "delta": {"content": piece.text} if piece else {},
                "logprobs": self._logprobs(piece), "finish_reason": reason}

    def _logprobs(self, piece: Piece) -> dict[str, Any] | None:
        if not self.logprobs:
            return None
        return {"content": [_chat_logprob(self.model.tokenizer, p.token) for p in piece.tokens], "refusal": None}


def _chat_logprob(tokenizer: Tokenizer, token: Token) -> dict[str, Any]:
    def one(index: int, logprob: float | None) -> dict[str, Any]:
        data = tokenizer.token_bytes(index)
        return {"token": data.decode(errors="replace"), "logprob": _finite(logprob), "bytes": list(data)}

    return {**one(token.index, token.logprob), "top_logprobs": [one(*pair) for pair in token.top]}


def _legacy_logprobs(tokenizer: Tokenizer, placed: Sequence[PlacedToken]) -> dict[str, Any]:
    tokens = [p.token for p in placed]
    return {
        "tokens": [_spelling(tokenizer, t.index) for t in tokens],
        "token_logprobs": [None if t.logprob is None else _finite(t.logprob) for t in tokens],
        "top_logprobs": [None if t.logprob is None else {_spelling(tokenizer, n): _finite(p) for n, p in t.top}
                         for t in tokens],
        "text_offset": [p.offset for p in placed],
    }


def _spelling(tokenizer: Tokenizer, index: int) -> str:
    """A token as text; one that is no text by itself as its bytes, so that different ones stay different."""
    data = tokenizer.token_bytes(index)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def _finite(value: float | None) -> float:
    return LEAST if value is None or value < LEAST else value
