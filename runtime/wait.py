"""The one call that blocks: lets every device that the awaited thing depends on work, simulators included."""

from collections.abc import Iterable

from runtime.dispatcher import Dispatcher, Operation
from runtime.semaphore import Point
from runtime.transport import DeviceError

__all__ = ["wait"]

def wait(awaited: Operation | Point) -> None:
    """Let devices work until an operation has ended or a semaphore has reached a value.

    The only call that blocks. Raises the error of what failed, and `DeviceError` when nothing that is queued can
    bring about what is awaited.
    """
    if isinstance(awaited, Operation):
        dispatcher = awaited.lane.dispatcher
        while not awaited.done:
            if dispatcher.turn():
                continue
            if dispatcher.blocked or not dispatcher.order:
                _run(_needed([dispatcher]), awaited)
            else:
                dispatcher.advance()
        if awaited.error is not None:
            raise awaited.error
        return
    semaphore, value = awaited
    while not semaphore.reached(value):
        _run(_needed(+semaphore.sources), awaited)


def _needed(first: Iterable[Dispatcher]) -> list[Dispatcher]:
    """Devices, and those that signal what the operations queued on them wait for."""
    found = dict.fromkeys(first)
    queue = list(found)
    while queue:
        for lane in queue.pop().lanes:
            for operation in lane.backlog:
                for semaphore, _ in operation.waits:
                    for other in +semaphore.sources:
                        if other not in found:
                            found[other] = None
                            queue.append(other)
    return list(found)


def _run(dispatchers: list[Dispatcher], awaited: Operation | Point) -> None:
    """Let some devices work for a while; raises `DeviceError` when there is nothing for them to do."""
    changed = [dispatcher.turn() for dispatcher in dispatchers]
    if any(changed):
        return
    working = [dispatcher for dispatcher in dispatchers if dispatcher.order or dispatcher.refused]
    if not working:
        raise DeviceError(f"{_name(awaited)} was wanted, and nothing that is queued brings it about: queue what "
                          "signals it before waiting")
    for dispatcher in working:
        dispatcher.advance()


def _name(awaited: Operation | Point) -> str:
    if isinstance(awaited, Point):
        return f"value {awaited.value} of {awaited.semaphore!r}"
    blocking = [f"value {value} of {semaphore!r}" for operation in awaited.lane.backlog
                for semaphore, value in operation.waits if semaphore.value < value]
    return " and ".join(blocking) or "the end of an operation"
