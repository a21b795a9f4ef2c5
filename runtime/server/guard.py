"""What every request passes first: who may ask, how, and how much; and the place where faults become answers."""

import asyncio
import hmac
import logging
from collections.abc import Callable
from time import perf_counter

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runtime.server.errors import ApiError
from runtime.server.settings import LOOPBACK, Settings

__all__ = ["Guard"]

log = logging.getLogger("wordline.server")

OPEN_PATHS = ("/", "/health")
"""What needs no key: a page without data, and whether the server lives."""


class Guard:
    """ASGI middleware around the whole application.

    Parameters
    ----------
    app : ASGIApp
        The application.
    settings : Settings
        Key, limits, address.
    count : callable
        Told of every answer: path, status, seconds.
    """

    def __init__(self, app: ASGIApp, settings: Settings, count: Callable[[str, int, float], None]) -> None:
        self.app = app
        self.settings = settings
        self.count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = perf_counter(), 499  # nginx's number for a client that left before the answer

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._guarded(scope, receive, watched)
        except ApiError as error:
            await JSONResponse(error.body(), error.status, error.headers)(scope, receive, watched)
        except Exception:
            log.exception("%s %s", scope["method"], scope["path"])
            if status != 499:
                raise
            failed = ApiError(500, "the server has a fault; its log says more: please report it", code="internal_error")
            await JSONResponse(failed.body(), 500)(scope, receive, watched)
        finally:
            self.count(scope["path"], status, perf_counter() - started)

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        self._check_host(headers)
        if scope["path"] not in OPEN_PATHS:
            self._check_key(headers)
        if scope["method"] == "POST":
            self._check_form(headers)
            receive = _replayed(await self._body(headers, receive), receive)
        await self.app(scope, receive, send)

    def _check_host(self, headers: Headers) -> None:
        """A page from elsewhere must not reach a loopback server by a name of its own for 127.0.0.1."""
        if not self.settings.loopback:
            return
        host = headers.get("host", "")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        if name.strip("[]") not in LOOPBACK:
            raise ApiError(403, f"a request to one of {', '.join(LOOPBACK)} was wanted; it was sent to {host[:100]!r}: "
                                "use such an address, or start the server with --host", code="host")

    def _check_key(self, headers: Headers) -> None:
        if self.settings.api_key is None:
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        wanted = self.settings.api_key.encode()
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), wanted):
            came = "another key came" if given else "none came"
            raise ApiError(401, f"an API key was wanted; {came}: send it as 'Authorization: Bearer KEY'",
                           code="invalid_api_key", headers={"www-authenticate": "Bearer"})

    def _check_form(self, headers: Headers) -> None:
        # A browser asks first before it sends this type to another site, and is not let: no page can use the model.
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise ApiError(415, f"the content type application/json was wanted; got {kind[:100]!r}: set the header "
                                "'Content-Type: application/json'", code="content_type")

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        limit, parts, size = self.settings.body_bytes, [], 0
        promised = headers.get("content-length", "")
        if promised.isdecimal() and int(promised) > limit:
            raise _too_large(limit)
        try:
            async with asyncio.timeout(self.settings.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ApiError(400, "a whole request was wanted; the client left in the middle of it")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > limit:
                        raise _too_large(limit)
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            raise ApiError(408, f"a whole request was wanted within {self.settings.body_seconds:g} s; {size} bytes "
                                "came: send it faster", code="body_timeout", headers={"connection": "close"}) from None


def _too_large(limit: int) -> ApiError:
    return ApiError(413, f"a body of at most {limit} bytes was wanted; this one is larger: shorten the prompt",
                    code="body_too_large", headers={"connection": "close"})


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body, once, and then what the connection says."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
