"""A recording as a device: ``replay:FILE`` answers what the recorded device answered, to a host that does the same."""

from collections import deque

import numpy as np

from hw.config import HardwareConfig
from hw.memorymap import Space
from runtime.recording import Call, Recording
from runtime.transport import Command, Completion, DeviceError, Identity, Snapshot, check_values, register

__all__ = ["ReplayTransport"]


class ReplayTransport:
    """A transport without a device behind it. Calls must come in the recorded order, or it is an error that says which
    one was to come.

    Parameters
    ----------
    path : str
        The recording.
    """

    def __init__(self, path: str) -> None:
        self.recording = Recording(path)
        self._calls = deque(call for call in self.recording.calls
                            if call.name not in ("initial", "completion", "fence"))
        self._answers = deque(Completion(**call.facts) for call in self.recording.calls if call.name == "completion")
        self._running: deque[int] = deque()

    def identify(self) -> Identity:
        config = self.recording.config
        return Identity(f"replay:{self.recording.path}", config,
                        f"recording of {self.recording.device} of {config.name!r}, {config.tiles} tiles")

    def read(self, space: Space, first: int = 0, count: int | None = None) -> np.ndarray:
        call = self._next("read", f"a read of {space.name.lower()} from {first}")
        values = self.recording.array(call["values"])
        if self.recording.space(call) != space or call["first"] != first or count not in (None, len(values)):
            raise self._other(call, f"a read of {space.name.lower()} from {first}")
        return values

    def write(self, space: Space, first: int, values: np.ndarray) -> None:
        values = check_values(self.recording.config, space, first, values)
        what = f"a write of {space.name.lower()} from {first}"
        call = self._next("write", what)
        if self.recording.space(call) != space or call["first"] != first:
            raise self._other(call, what)
        if not np.array_equal(self.recording.array(call["values"]), values):
            raise DeviceError(f"{what} came with other values than those recorded in {self.recording.path}")

    def submit(self, command: Command) -> bool:
        entry, arguments, tag = command
        call = self._next("submit", f"a command at {entry} with arguments {tuple(arguments)}")
        if (call["entry"], tuple(call["arguments"])) != (entry, tuple(arguments)):
            raise self._other(call, f"a command at {entry} with arguments {tuple(arguments)}")
        self._running.append(tag)
        return True

    def poll(self) -> Completion | None:
        if not self._running or not self._answers:
            return None
        return self._answers.popleft()._replace(tag=self._running.popleft())

    def advance(self, cycles: int) -> None:
        pass

    def reset(self) -> None:
        self._next("reset", "a reset")
        self._running.clear()

    def snapshot(self) -> Snapshot:
        return Snapshot(running=bool(self._running), waiting=max(0, len(self._running) - 1), completions=0,
                        notes=(f"the recording has {len(self._calls)} calls left",))

    def close(self) -> None:
        self.recording.close()

    def _next(self, name: str, came: str) -> Call:
        if not self._calls:
            raise DeviceError(f"{self.recording.path} is at its end; {came} came")
        if self._calls[0].name != name:
            raise self._other(self._calls[0], came)
        return self._calls.popleft()

    def _other(self, call: Call, came: str) -> DeviceError:
        facts = ", ".join(f"{name} {value}" for name, value in call.facts.items() if name != "values")
        return DeviceError(f"{self.recording.path} goes on with {call.name} ({facts}); {came} came: do what was done "
                           "when it was recorded")


@register("replay", "replay:FILE", "a recording, which answers as the recorded device did")
def _open(rest: str, config: HardwareConfig | None) -> ReplayTransport:
    return ReplayTransport(rest)
