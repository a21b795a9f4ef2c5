"""What an operator can set about the server, with defaults that are safe on a machine shared with others."""

from dataclasses import dataclass

from hw.errors import WordlineError

__all__ = ["LOOPBACK", "Settings"]

LOOPBACK = ("127.0.0.1", "::1", "localhost")
"""Addresses that only this machine can reach, and the names under which a browser may ask for them."""


@dataclass(frozen=True)
class Settings:
    """Settings of the server.

    Parameters
    ----------
    host, port : str, int
        Where to listen. Other machines can only reach it when `api_key` is set or `open_access` is.
    api_key : str or None
        What clients must present.
    name : str or None
        The name under which clients ask for the model; None: that of the image's file.
    queue : int
        Sequences that may wait for a slot; more are refused with 429.
    body_bytes : int
        Size of a request's body.
    body_seconds : float
        Time in which a body must have arrived.
    request_seconds : float
        Time in which a sequence must end, its wait included.
    write_seconds : float
        Time that a client may take to read what was sent, before it counts as gone.
    keep_alive_seconds : float
        A comment is sent on a stream that was silent for so long, so that nobody takes it for dead.
    choices : int
        Sequences that one request may ask for.
    connections : int
        Open connections.
    open_access : bool
        Serve other machines without a key.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = None
    name: str | None = None
    queue: int = 256
    body_bytes: int = 1 << 20
    body_seconds: float = 20.0
    request_seconds: float = 600.0
    write_seconds: float = 30.0
    keep_alive_seconds: float = 15.0
    choices: int = 16
    connections: int = 1024
    open_access: bool = False

    def __post_init__(self) -> None:
        if self.api_key is not None and not self.api_key.strip():
            raise WordlineError("an API key of at least one character was wanted; got an empty one: leave it out, or "
                                "give a long random text")
        if not self.loopback and self.api_key is None and not self.open_access:
            raise WordlineError(f"an API key is needed to serve other machines on {self.host!r}: give --api-key, "
                                "or --open-access to let anyone in, or listen on 127.0.0.1")
        for name in ("queue", "body_bytes", "body_seconds", "request_seconds", "write_seconds", "keep_alive_seconds",
                     "choices", "connections"):
            if not getattr(self, name) > 0:
                raise WordlineError(f"{name} above 0 was wanted; got {getattr(self, name)!r}: leave it out, or "
                                    "raise it")

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host in LOOPBACK
