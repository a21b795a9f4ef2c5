"""What one device has to do: hands operations to its transport in order, matches completions, notices failures.

Nothing here waits: `runtime.wait` does.
"""

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from hw.errors import WordlineError
from hw.memorymap import Space
from runtime.semaphore import Point
from runtime.transport import WORD, Command, Completion, DeviceError, Transport

__all__ = ["CHUNK_CYCLES", "DeviceFailure", "DeviceHang", "Dispatcher", "Lane", "Operation", "Step", "TIMEOUT_CYCLES"]

CHUNK_CYCLES = 50_000
"""Cycles a device is let run between two looks at its completions."""

TIMEOUT_CYCLES = 200_000_000
"""Cycles without a completion after which a device counts as hung, unless `timeout_cycles` says otherwise."""

Step = tuple[int, tuple[int, ...]] | Callable[[], None]
"""Part of an operation: entry point and arguments of a command, or something that the host does."""


class DeviceFailure(DeviceError):
    """A device that broke while it carried something out. It must be reset."""


class DeviceHang(DeviceFailure):
    """A device that does not complete a command in the cycles that were given."""


class Operation:
    """Something that was queued on a device, for `wait`.

    Attributes
    ----------
    completions : list of Completion
        Those of its commands, in order.
    error : Exception or None
        Why it failed.
    done : bool
        It has ended, well or not.
    """

    __slots__ = ("completions", "done", "error", "issued", "lane", "running", "signals", "steps", "waits")

    def __init__(self, lane: "Lane", steps: Sequence[Step], waits: Sequence[Point], signals: Sequence[Point]) -> None:
        self.lane = lane
        self.steps = steps
        self.waits = waits
        self.signals = signals
        self.issued = self.running = 0
        self.completions: list[Completion] = []
        self.error: Exception | None = None
        self.done = False
        for semaphore, _ in signals:
            semaphore.sources[lane.dispatcher] += 1

    @property
    def completion(self) -> Completion:
        """The completion of its last command; raises the error when it failed."""
        if self.error is not None:
            raise self.error
        if not self.completions:
            raise DeviceError("a completion was wanted; this operation "
                              + ("has no command" if self.done else "is not done: wait for it"))
        return self.completions[-1]

    def end(self, error: Exception | None = None) -> None:
        """Signal what is to be signalled, or let it fail."""
        self.done, self.error = True, error
        for semaphore, value in self.signals:
            semaphore.sources[self.lane.dispatcher] -= 1
            if error is None:
                semaphore.signal(value)
            else:
                semaphore.fail(error)


class Lane:
    """Operations of one queue, which begin and end in order."""

    __slots__ = ("backlog", "dispatcher", "running")

    def __init__(self, dispatcher: "Dispatcher") -> None:
        self.dispatcher = dispatcher
        self.backlog: deque[Operation] = deque()
        self.running = 0


class Dispatcher:
    """The lanes of one device on the way to its transport.

    Attributes
    ----------
    failure : DeviceFailure or None
        Why nothing can be done before a reset.
    last : Completion or None
        The latest one.
    order : deque of (Command, Operation)
        Commands that were submitted and are not complete.
    blocked : int
        Operations that were not begun, or not submitted completely.
    refused : bool
        The device had no room for the latest command.
    """

    def __init__(self, transport: Transport, name: str, describe: Callable[[], str]) -> None:
        self.transport = transport
        self.name = name
        self.timeout_cycles = TIMEOUT_CYCLES
        self.progress: Callable[[int], None] | None = None
        self.failure: DeviceFailure | None = None
        self.last: Completion | None = None
        self.spent = 0
        self.lanes: list[Lane] = []
        self.order: deque[tuple[Command, Operation]] = deque()
        self.blocked = 0
        self.refused = False
        self._describe = describe
        self._tag = 1

    def lane(self) -> Lane:
        """A new lane."""
        self.lanes.append(Lane(self))
        return self.lanes[-1]

    def add(self, lane: Lane, steps: Sequence[Step], waits: Sequence[Point] = (),
            signals: Sequence[Point] = ()) -> Operation:
        """Queue an operation, and begin it if it can begin."""
        if self.failure is not None:
            raise self._unusable()
        operation = Operation(lane, steps, waits, signals)
        lane.backlog.append(operation)
        self.blocked += 1
        if len(lane.backlog) == 1:
            self._issue(lane)
        return operation

    def turn(self) -> bool:
        """Take completions and begin what can begin, without waiting; whether anything changed."""
        changed = bool(self.order) and self.collect()
        if self.blocked:
            for lane in self.lanes:
                if lane.backlog and self._issue(lane):
                    changed = True
        return changed

    def collect(self) -> bool:
        """Take the completions that are there; whether there were any."""
        order, found = self.order, False
        try:
            while order and (completion := self.transport.poll()) is not None:
                found = True
                command, operation = order[0]
                if completion.tag != command.tag:
                    raise DeviceError(f"the completion of command {command.tag} was wanted from device {self.name!r}; "
                                      f"that of {completion.tag} came, and commands complete in order, so one was "
                                      "lost: reset it")
                order.popleft()
                self.spent, self.last = 0, completion
                operation.completions.append(completion)
                operation.lane.running -= 1
                operation.running -= 1
                if not operation.running and operation.issued == len(operation.steps):
                    operation.end()
        except (WordlineError, OSError) as error:
            self.fail(error)
            return True
        return found

    def _issue(self, lane: Lane) -> bool:
        """Begin the operations of a lane as far as they can begin; whether anything changed."""
        changed, backlog = False, lane.backlog
        try:
            while backlog:
                operation = backlog[0]
                if operation.waits and not self._ready(operation):
                    if not operation.done:
                        break
                    changed = True
                    continue
                steps = operation.steps
                while operation.issued < len(steps):
                    step = steps[operation.issued]
                    if callable(step):
                        if lane.running:
                            return changed
                        changed = True
                        step()
                    else:
                        command = Command(step[0], step[1], self._tag)
                        self.refused = not self.transport.submit(command)
                        if self.refused:
                            return changed
                        self._tag = (self._tag + 1) % WORD
                        operation.running += 1
                        lane.running += 1
                        self.order.append((command, operation))
                    operation.issued += 1
                    changed = True
                if lane.running and not operation.running:
                    break  # nothing of its own runs, but it ends after what was queued before it
                backlog.popleft()
                self.blocked -= 1
                changed = True
                if not operation.running:
                    operation.end()
        except DeviceFailure as error:
            # Of a transfer's other device, or of this one, which has then ended all operations already.
            if not operation.done:
                backlog.popleft()
                self.blocked -= 1
                operation.end(error)
            return True
        except (WordlineError, OSError) as error:
            self.fail(error)
            return True
        return changed

    def _ready(self, operation: Operation) -> bool:
        """Whether an operation's waits are over. One whose waits fail ends with their error."""
        try:
            return all(semaphore.reached(value) for semaphore, value in operation.waits)
        except Exception as error:
            operation.lane.backlog.popleft()
            self.blocked -= 1
            operation.end(error)
            return False

    def advance(self) -> None:
        """Let the device work for a while; one that has had its time without a completion hangs."""
        if self.spent >= self.timeout_cycles:
            wanted = (f"the completion of command {self.order[0][0].tag}" if self.order
                      else "a place in the command queue")
            self.fail(DeviceHang(f"{wanted} was wanted from device {self.name!r} within {self.timeout_cycles} cycles; "
                                 "it hangs: reset it"))
            return
        cycles = min(CHUNK_CYCLES, self.timeout_cycles - self.spent)
        try:
            self.transport.advance(cycles)
        except (WordlineError, OSError) as error:
            self.fail(error)
            return
        self.spent += cycles
        if self.progress is not None:
            self.progress(self.spent)

    def fail(self, error: Exception) -> DeviceFailure:
        """The device cannot go on: everything that was queued on it fails with this reason and a dump."""
        kind = DeviceHang if isinstance(error, DeviceHang) else DeviceFailure
        failure = kind(f"{error}\n{self._describe()}")
        failure.__cause__ = error
        self.failure = failure
        self.drop(failure)
        return failure

    def drop(self, error: Exception) -> None:
        """Forget everything that was queued; it fails with `error`."""
        operations = dict.fromkeys(operation for _, operation in self.order)
        for lane in self.lanes:
            operations.update(dict.fromkeys(lane.backlog))
            lane.backlog.clear()
            lane.running = 0
        self.order.clear()
        self.blocked, self.refused = 0, False
        for operation in operations:
            operation.end(error)

    def read(self, space: Space, first: int, count: int | None) -> np.ndarray:
        """`Transport.read` at once; what goes wrong counts as a failure of the device."""
        if self.failure is not None:
            raise self._unusable()
        try:
            return self.transport.read(space, first, count)
        except (WordlineError, OSError) as error:
            raise self.fail(error) from error

    def write(self, space: Space, first: int, values: np.ndarray) -> None:
        """`Transport.write` at once; what goes wrong counts as a failure of the device."""
        if self.failure is not None:
            raise self._unusable()
        try:
            self.transport.write(space, first, values)
        except (WordlineError, OSError) as error:
            raise self.fail(error) from error

    def recovered(self) -> None:
        """The device was reset."""
        self.drop(DeviceError(f"device {self.name!r} was reset before this was done: queue it again"))
        self.failure = None
        self.spent = 0

    def _unusable(self) -> DeviceError:
        reason = str(self.failure).splitlines()[0]
        return DeviceError(f"device {self.name!r} has failed and must be reset before it is used again ({reason})")
