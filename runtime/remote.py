"""A chat with a server that speaks OpenAI's interface, in place of a device of one's own."""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

from hw.errors import WordlineError
from runtime.sampling import Sampling

__all__ = ["RemoteConversation", "ServerError"]

CONNECT_SECONDS = 600
"""Longest silence of a server that is waited for."""

SILENT_FIELDS = ("", "event", "id", "retry")
"""Fields of server-sent events that say nothing here; one without a name is a comment."""


class ServerError(WordlineError):
    """A server that cannot be reached, or that refuses."""


class RemoteConversation:
    """A conversation whose turns a server completes; the history is kept here.

    Parameters
    ----------
    url : str
        The server's address, such as ``http://127.0.0.1:8000``, with or without ``/v1``.
    api_key : str, optional
        Presented as a bearer token.
    system : str, optional
        The first message.
    """

    def __init__(self, url: str, api_key: str | None = None, system: str | None = None) -> None:
        if not _is_address(url):
            raise ServerError(f"a server's address such as 'http://127.0.0.1:8000' was wanted; got {url!r}: check it")
        if api_key and not _is_plain(api_key):
            raise ServerError("an API key of visible ASCII characters was wanted; got others: check it")
        self.url, self.api_key = url.rstrip("/").removesuffix("/v1"), api_key
        self.messages = [{"role": "system", "content": system}] if system else []

    def ask(self, text: str, sampling: Sampling, max_tokens: int) -> Iterator[str]:
        """The reply to `text`, piece by piece; it joins the history when it is complete, or as far as it came."""
        self.messages.append({"role": "user", "content": text})
        body: dict[str, Any] = {"messages": self.messages, "stream": True, "max_tokens": max_tokens,
                                "temperature": sampling.temperature, "top_p": sampling.top_p,
                                "top_k": sampling.top_k, "min_p": sampling.min_p}
        if sampling.seed is not None:
            body["seed"] = sampling.seed
        reply: list[str] = []
        try:
            for piece in self._pieces(body):
                reply.append(piece)
                yield piece
        finally:
            self.messages.append({"role": "assistant", "content": "".join(reply)})

    def _pieces(self, body: dict[str, Any]) -> Iterator[str]:
        headers = {"Content-Type": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        request = urllib.request.Request(f"{self.url}/v1/chat/completions", json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=CONNECT_SECONDS) as answer:
                for event in _events(answer):
                    yield from _content(event)
        except urllib.error.HTTPError as error:
            raise ServerError(f"{self.url} refused: {_reason(error)}") from error
        except http.client.IncompleteRead as error:
            raise ServerError(f"a whole reply of {self.url} was wanted; it broke off: ask again") from error
        except (http.client.HTTPException, ValueError) as error:
            raise ServerError(f"a server that speaks OpenAI's interface was wanted at {self.url}; it sent something "
                              f"else ({error!r}): check the address") from error
        except (urllib.error.URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise ServerError(f"a server was wanted at {self.url}; it cannot be reached ({reason}): start one with "
                              "`wordline serve IMAGE`") from error


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return _is_plain(url) and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of a port that is no number, for instance
        return False


def _is_plain(text: str) -> bool:
    """Whether there are only characters that may stand in a header."""
    return text.isascii() and text.isprintable() and " " not in text


def _events(lines: Iterable[bytes]) -> Iterator[Any]:
    """What server-sent events hold, up to the one that says that all is said.

    Raises `ValueError` for lines that are none, `IncompleteRead` when the last one is missing.
    """
    for line in lines:
        field, _, data = line.decode("utf-8").strip().partition(":")
        if field in SILENT_FIELDS:
            continue
        if field != "data":
            raise ValueError(line[:40])
        if data.strip() == "[DONE]":
            return
        yield json.loads(data)
    raise http.client.IncompleteRead(b"")


def _content(event: Any) -> Iterator[str]:
    """The pieces of text in an event; raises `ServerError` for an error, `ValueError` for what is no event."""
    match event:
        case {"error": {"message": message}}:
            raise ServerError(str(message))
        case {"error": error}:
            raise ServerError(str(error))
        case {"choices": [*choices]}:
            for choice in choices:
                match choice:
                    case {"delta": {"content": str(piece)}} if piece:
                        yield piece
        case _:
            raise ValueError(event)


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read())["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP status {error.code}"
