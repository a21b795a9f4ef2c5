"""Connections that do not stay for ever: time limits that the HTTP library leaves to others."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["connection"]


def connection(header_seconds: float, write_seconds: float) -> type[H11Protocol]:
    """The protocol of a connection that is dropped when its first request does not arrive within `header_seconds`,
    or when what was sent to it is not read within `write_seconds`.
    """

    class Connection(H11Protocol):
        """HTTP/1.1, with limits."""

        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._limit(header_seconds)

        def handle_events(self) -> None:
            super().handle_events()
            if self.cycle is not None and not self.flow.write_paused:
                self._limit(None)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._limit(write_seconds)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._limit(None)

        def connection_lost(self, exc: Exception | None) -> None:
            self._limit(None)
            super().connection_lost(exc)

        def _limit(self, seconds: float | None) -> None:
            """Give the connection up after so many seconds, unless something else is said before."""
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if seconds is not None:
                # Closing would wait for the client to read what is buffered; it does not.
                self._timer = self.loop.call_later(seconds, self.transport.abort)

    return Connection
