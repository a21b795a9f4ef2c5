"""Timeline semaphores: a number that only grows, on which operations of any queue and any device wait.

An operation that fails makes the semaphores that it would have signalled fail, with the same error; whatever waits on
them fails in turn. So a failure reaches everyone who depends on it, and nobody else.
"""

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from runtime.transport import DeviceError

if TYPE_CHECKING:
    from runtime.dispatcher import Dispatcher

__all__ = ["Point", "Semaphore"]


class Point(NamedTuple):
    """A moment on a timeline: `semaphore` has reached `value`."""

    semaphore: "Semaphore"
    value: int


class Semaphore:
    """A timeline that begins at 0.

    Parameters
    ----------
    name : str
        What messages call it.

    Attributes
    ----------
    value : int
        How far it is.
    error : Exception or None
        Why it will go no further.
    sources : Counter
        Devices on which an operation that will signal it is queued.
    """

    __slots__ = ("error", "name", "sources", "value")

    def __init__(self, name: str = "semaphore") -> None:
        self.name = name
        self.value = 0
        self.error: Exception | None = None
        self.sources: Counter[Dispatcher] = Counter()

    def __repr__(self) -> str:
        state = f"failed at {self.value}" if self.error else f"at {self.value}"
        return f"<Semaphore {self.name!r} {state}>"

    def at(self, value: int) -> Point:
        """The moment at which it has reached `value`."""
        return Point(self, value)

    def signal(self, value: int) -> None:
        """Go on to `value`; raises `DeviceError` for one that was reached before. A failed one stays failed."""
        if self.error is not None:
            return
        if value <= self.value:
            raise DeviceError(f"{self.name} is at {self.value}; a signal must go beyond that, got {value!r}")
        self.value = value

    def fail(self, error: Exception) -> None:
        """Go no further; the first reason stays."""
        self.error = self.error or error

    def reached(self, value: int) -> bool:
        """Whether `value` was reached; raises the reason when it never will be."""
        if self.value >= value:
            return True
        if self.error is not None:
            raise self.error
        return False
