"""Queues: commands and transfers in order, each after the points it waits for, each signalling points at its end."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from runtime import transfer
from runtime.buffer import Buffer
from runtime.command_buffer import CommandBuffer
from runtime.dispatcher import Dispatcher, Operation, Step
from runtime.semaphore import Point

__all__ = ["Queue"]

Points = Sequence[Point]


class Queue:
    """One order of operations on a device; `Device.new_queue` makes it. Different queues do not wait for each other.

    Every operation returns at once with an `Operation` for `wait`. A transfer takes place when everything that was
    queued before it is done: an array to be written must stay as it is until then, and one to be filled is valid then.
    What is wrong with an operation is said when it is queued.

    Parameters
    ----------
    dispatcher : Dispatcher
        Of the device.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._lane = dispatcher.lane()

    def submit(self, commands: CommandBuffer, arguments: Mapping[str, Any] | None = None, waits: Points = (),
               signals: Points = ()) -> Operation:
        """Run a command buffer with values for its slots."""
        return self._dispatcher.add(self._lane, commands.bind(arguments or {}), waits, signals)

    def enqueue(self, command: Step, waits: Points = (), signals: Points = ()) -> Operation:
        """Run a single command that was checked already: entry point and arguments."""
        return self._dispatcher.add(self._lane, (command,), waits, signals)

    def barrier(self, waits: Points = (), signals: Points = ()) -> Operation:
        """Nothing, in its turn: it signals when everything before it is done."""
        return self._dispatcher.add(self._lane, (), waits, signals)

    def copy(self, source: Buffer | np.ndarray, target: Buffer | np.ndarray, waits: Points = (),
             signals: Points = ()) -> Operation:
        """Contents as they are, between host and device or from buffer to buffer, of another device too.

        An array has the shape of the buffer and 32-bit elements. What is queued on the other device is not waited
        for: that is what `waits` is for.
        """
        return self._dispatcher.add(self._lane, (transfer.copy(source, target),), waits, signals)

    def broadcast(self, values: np.ndarray, target: Buffer, waits: Points = (), signals: Points = ()) -> Operation:
        """The same entries, shaped as the buffer without the tiles' axis, into every tile."""
        return self._dispatcher.add(self._lane, (transfer.broadcast(values, target),), waits, signals)

    def scatter(self, vector: np.ndarray, target: Buffer, waits: Points = (), signals: Points = ()) -> Operation:
        """A vector (n,), element i to tile i mod T, entry i div T; the rest of the buffer becomes zero."""
        return self._dispatcher.add(self._lane, (transfer.scatter(vector, target),), waits, signals)

    def gather(self, source: Buffer, vector: np.ndarray, waits: Points = (), signals: Points = ()) -> Operation:
        """The other way round, into `vector` (n,)."""
        return self._dispatcher.add(self._lane, (transfer.gather(source, vector),), waits, signals)
