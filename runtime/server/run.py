"""Listens: the application under uvicorn, with every limit set."""

import uvicorn

from runtime.server.app import Service, application
from runtime.server.connection import connection

__all__ = ["HEADER_SECONDS", "server"]

HEADER_SECONDS = 20.0
"""Time in which a new connection must have sent the head of its first request."""

STOP_SECONDS = 5
"""Time that answers have to end when the server is told to stop."""


def server(service: Service, *, log_level: str = "warning") -> uvicorn.Server:
    """A server that is ready to `run`."""
    s = service.settings
    config = uvicorn.Config(
        application(service), host=s.host, port=s.port, http=connection(HEADER_SECONDS, s.write_seconds), ws="none",
        lifespan="on", log_level=log_level, access_log=False, server_header=False, timeout_keep_alive=30,
        timeout_graceful_shutdown=STOP_SECONDS, limit_concurrency=s.connections, backlog=512)
    return uvicorn.Server(config)
