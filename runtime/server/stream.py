"""Answers that end when their reader does: a whole one, and one in server-sent events."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from runtime.server.bodies import Form
from runtime.server.errors import ApiError
from runtime.server.reply import Reply
from runtime.server.text import Piece, PlacedToken

__all__ = ["EventStream", "WholeAnswer", "encoded"]


def encoded(body: Mapping[str, Any]) -> bytes:
    """JSON without spaces, in UTF-8."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _event(body: Mapping[str, Any]) -> bytes:
    return b"data: " + encoded(body) + b"\n\n"


@asynccontextmanager
async def _until_gone(receive: Receive, reply: Reply) -> AsyncIterator[None]:
    """Ends the block, quietly, when the client has gone; in any case the reply is given up at the end."""
    gone = False

    async def watch(work: "asyncio.Task[Any]") -> None:
        nonlocal gone
        while (await receive())["type"] != "http.disconnect":
            pass
        gone = True
        work.cancel()

    work = asyncio.current_task()
    assert work is not None
    watcher = asyncio.create_task(watch(work))
    try:
        yield
    except asyncio.CancelledError:
        if not gone:
            raise
        work.uncancel()
    finally:
        reply.cancel()
        watcher.cancel()


class WholeAnswer(Response):
    """The answer in one body, when all of it is there.

    Parameters
    ----------
    reply : Reply
        What is answered.
    form : Form
        How it is written.
    prompts : int
        Prompts of the request.
    done : callable
        Called when the reply has ended, however.
    headers : dict
        Headers to send along.
    """

    def __init__(self, reply: Reply, form: Form, prompts: int, done: Callable[[Reply], None],
                 headers: Mapping[str, str]) -> None:
        self.reply, self.form, self.prompts, self.done = reply, form, prompts, done
        super().__init__(headers=dict(headers))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with _until_gone(receive, self.reply):
                answer = await self._answer()
                await answer(scope, receive, send)
        finally:
            self.done(self.reply)

    async def _answer(self) -> Response:
        texts: list[list[str]] = [[] for _ in range(self.reply.choices)]
        tokens: list[list[PlacedToken]] = [[] for _ in range(self.reply.choices)]
        reasons = [""] * self.reply.choices
        extra = {k: v for k, v in self.headers.items() if k != "content-length"}
        try:
            async for parts in self.reply.parts():
                for part in parts:
                    texts[part.index].append(part.piece.text)
                    tokens[part.index].extend(part.piece.tokens)
                    reasons[part.index] = part.finish or ""
        except ApiError as error:
            return JSONResponse(error.body(), error.status, {**extra, **error.headers})
        pieces = [Piece("".join(t), tuple(p)) for t, p in zip(texts, tokens, strict=True)]
        body = self.form.finished(pieces, reasons, self.reply.usage(self.prompts))
        return Response(encoded(body), headers=extra, media_type="application/json")


class EventStream(Response):
    """The answer in server-sent events, as it is made. Parameters as of `WholeAnswer`, and

    Parameters
    ----------
    usage : bool
        Whether the numbers of tokens come last.
    patience : float
        Seconds of silence after which a comment is sent.
    """

    def __init__(self, reply: Reply, form: Form, prompts: int, done: Callable[[Reply], None],
                 headers: Mapping[str, str], *, usage: bool, patience: float) -> None:
        self.reply, self.form, self.prompts, self.done = reply, form, prompts, done
        self.usage, self.patience = usage, patience
        super().__init__(headers=dict(headers), media_type="text/event-stream")
        del self.headers["content-length"]
        self.headers["cache-control"] = "no-store"
        self.headers["x-accel-buffering"] = "no"  # asks proxies not to collect the events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with _until_gone(receive, self.reply):
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                async for data in self._events():
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self.done(self.reply)

    async def _events(self) -> AsyncIterator[bytes]:
        opening = [self.form.beginning(n) for n in range(self.reply.choices)]
        if start := b"".join(_event(body) for body in opening if body is not None):
            yield start
        try:
            async for parts in self.reply.parts(self.patience):
                yield self._written(parts) or b": still working\n\n"
        except ApiError as error:
            yield _event(error.body())
            return
        if self.usage:
            yield _event(self.form.ending(self.reply.usage(self.prompts)))
        yield b"data: [DONE]\n\n"

    def _written(self, parts: Sequence[Any]) -> bytes:
        return b"".join(_event(self.form.part(part.index, part.piece, part.finish)) for part in parts)
