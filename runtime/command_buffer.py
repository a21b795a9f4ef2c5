"""Command buffers: operations that are written down once and submitted many times, with values for named slots."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hw.image import Entry
from runtime import transfer
from runtime.buffer import Buffer
from runtime.dispatcher import Step
from runtime.executable import Executable, check_slots
from runtime.transport import WORD, DeviceError

__all__ = ["Argument", "CommandBuffer"]


@dataclass(frozen=True)
class Argument:
    """A slot: what is submitted under this name takes its place."""

    name: str


class CommandBuffer:
    """Commands of one executable, and transfers between them, in order.

    An argument of a command is a number or an `Argument`; so is a side of a transfer, an array or a buffer.

    Parameters
    ----------
    executable : Executable
        Whose entry points the commands are.
    """

    def __init__(self, executable: Executable) -> None:
        self.executable = executable
        self.slots: set[str] = set()
        self._parts: list[Callable[[Mapping[str, Any]], Step]] = []

    def dispatch(self, entry: str | Entry, **arguments: int | Argument) -> "CommandBuffer":
        """Add a command."""
        point = self.executable.entry(entry)
        if set(arguments) != set(point.arguments):
            raise DeviceError(f"entry point at {point.address} takes ({', '.join(point.arguments)}); "
                              f"got ({', '.join(arguments)})")
        given = tuple(arguments[name] for name in point.arguments)
        for name, value in zip(point.arguments, given, strict=True):
            if isinstance(value, Argument):
                self.slots.add(value.name)
            else:
                _check(name, value)
        self._parts.append(partial(_command, point, given))
        return self

    def copy(self, source: Buffer | np.ndarray | Argument, target: Buffer | np.ndarray | Argument) -> "CommandBuffer":
        """Add a `Queue.copy`."""
        return self._transfer(transfer.copy, source, target)

    def broadcast(self, values: np.ndarray | Argument, target: Buffer | Argument) -> "CommandBuffer":
        """Add a `Queue.broadcast`."""
        return self._transfer(transfer.broadcast, values, target)

    def scatter(self, vector: np.ndarray | Argument, target: Buffer | Argument) -> "CommandBuffer":
        """Add a `Queue.scatter`."""
        return self._transfer(transfer.scatter, vector, target)

    def gather(self, source: Buffer | Argument, vector: np.ndarray | Argument) -> "CommandBuffer":
        """Add a `Queue.gather`."""
        return self._transfer(transfer.gather, source, vector)

    def bind(self, values: Mapping[str, Any]) -> list[Step]:
        """The steps with `values` in their slots; raises `DeviceError` for one missing, unknown or out of range."""
        if len(values) != len(self.slots) or any(name not in values for name in self.slots):
            raise DeviceError(f"this command buffer has the slots ({', '.join(sorted(self.slots))}); got values for "
                              f"({', '.join(sorted(values))})")
        self.executable.check()
        return [part(values) for part in self._parts]

    def _transfer(self, kind: Callable[..., Step], *sides: object) -> "CommandBuffer":
        names = [side.name for side in sides if isinstance(side, Argument)]
        self.slots.update(names)
        if names:
            self._parts.append(lambda values: kind(
                *(values[side.name] if isinstance(side, Argument) else side for side in sides)))
        else:
            work = kind(*sides)
            self._parts.append(lambda _: work)
        return self


def _command(entry: Entry, given: tuple[int | Argument, ...], values: Mapping[str, Any]) -> Step:
    bound = []
    for value in given:
        if isinstance(value, Argument):
            name, value = value.name, values[value.name]
            if not 0 <= value < WORD:
                _check(name, value)
        bound.append(value)
    check_slots(entry.arguments, tuple(bound))
    return entry.address, tuple(bound)


def _check(name: str, value: int) -> None:
    if not 0 <= value < WORD:
        raise DeviceError(f"argument {name!r} takes 0 to {WORD - 1}; got {value!r}")
