"""A chat with a server that speaks OpenAI's interface, in place of a device of one's own."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

from hw.errors import WordlineError
from runtime.sampling import Sampling

__all__ = ["RemoteConversation", "ServerError"]

CONNECT_SECONDS = 600
"""Longest silence of a server that is waited for."""


class ServerError(WordlineError):
    """A server that cannot be reached, or that refuses."""


class RemoteConversation:
    """A conversation whose turns a server completes; the history is kept here.

    Parameters
    ----------
    url : str
        The server's address, such as ``http://127.0.0.1:8000``.
    api_key : str, optional
        Presented as a bearer token.
    system : str, optional
        The first message.
    """

    def __init__(self, url: str, api_key: str | None = None, system: str | None = None) -> None:
        if not url.startswith(("http://", "https://")):
            raise ServerError(f"a server's address that begins with http:// or https:// was wanted; got {url!r}")
        self.url, self.api_key = url.rstrip("/"), api_key
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
                for line in answer:
                    data = line.decode("utf-8").strip().removeprefix("data:").strip()
                    if data and data != "[DONE]":
                        yield from _content(json.loads(data))
        except urllib.error.HTTPError as error:
            raise ServerError(f"{self.url} refused: {_reason(error)}") from error
        except (urllib.error.URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise ServerError(f"a server was wanted at {self.url}; it cannot be reached ({reason}): start one with "
                              "`wordline serve IMAGE`") from error


def _content(event: dict[str, Any]) -> Iterator[str]:
    if "error" in event:
        raise ServerError(str(event["error"].get("message", event["error"])))
    for choice in event.get("choices", ()):
        piece = choice.get("delta", {}).get("content")
        if piece:
            yield piece


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read())["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP status {error.code}"
