"""Carries a recording out on another device, compares all that it says, and finds the command that differs."""

from collections import deque
from dataclasses import dataclass

import numpy as np

from hw.errors import WordlineError
from hw.memorymap import SPACE_TABLE
from runtime.dispatcher import CHUNK_CYCLES, TIMEOUT_CYCLES
from runtime.recording import PART, Call, Recording, digests, parts
from runtime.transport import Command, Completion, DeviceError, Transport
from sim.compare import Difference, first_difference_of

__all__ = ["Outcome", "ReplayDiffers", "replay"]


class ReplayDiffers(WordlineError):
    """A device that does not do what was recorded."""


@dataclass(frozen=True)
class Outcome:
    """What was compared and found equal."""

    commands: int
    fences: int
    reads: int
    cycles: int


def replay(recording: Recording, device: Transport, reference: Transport | None = None) -> Outcome:
    """Do what was recorded, on `device`, and compare every read, completion and, at every fence, every memory.

    Both devices are set to zero first. At a difference the commands since the last fence are repeated on `device` and
    on `reference` to find the first one that leaves different states. Raises `ReplayDiffers`, which names it and the
    first word.
    """
    run = _Run(recording, device)
    fence = 0
    for n, call in enumerate(recording.calls):
        if wrong := run.carry_out(call):
            raise ReplayDiffers(_explain(recording, device, reference, fence, n, wrong))
        if call.name == "fence":
            fence = n + 1
    return Outcome(run.commands, run.fences, run.reads, run.cycles)


class _Run:
    """A recording on the way through a device."""

    def __init__(self, recording: Recording, transport: Transport) -> None:
        found = transport.identify()
        if found.config.fingerprint != recording.config.fingerprint:
            wanted = recording.config.name
            raise DeviceError(f"{recording.path} is of configuration {wanted!r}; device {found.uri!r} is "
                              f"{found.config.name!r}: open a device of configuration {wanted!r}")
        self.recording, self.transport = recording, transport
        self.commands = self.fences = self.reads = self.cycles = 0
        _clear(transport)

    def carry_out(self, call: Call) -> str:
        """Do one call; what differs from the recording, if anything does."""
        recording, transport = self.recording, self.transport
        match call.name:
            case "write" | "initial":
                transport.write(recording.space(call), call["first"], recording.array(call["values"]))
            case "read":
                space, values = recording.space(call), recording.array(call["values"])
                self.reads += 1
                found = first_difference_of(space, values, transport.read(space, call["first"], call["count"]))
                if found:
                    return f"a read of {space.name.lower()} from {call['first']}: {found}"
            case "submit":
                self.commands += 1
                _submit(transport, _command(call))
            case "completion":
                done, wanted = _completion(transport), Completion(**call.facts)
                self.cycles += done.cycles
                if done != wanted:
                    return f"{wanted} was recorded, {done} came"
            case "fence":
                self.fences += 1
                return _first_part(call["state"], digests(transport))
            case "reset":
                transport.reset()
        return ""


def _explain(recording: Recording, device: Transport, reference: Transport | None, fence: int, n: int,
             wrong: str) -> str:
    """Which of the commands between the last fence and call `n` makes the difference."""
    submits = [k for k, call in recording.named("submit") if k < n]
    suspects = [k for k in submits if k >= fence]
    uri = device.identify().uri
    head = f"{uri} differs from {recording.path}"
    if not suspects:
        return f"{head} without a command: {wrong}"
    if reference is None:
        names = [_name(recording, submits, k) for k in suspects]
        return f"{head} after {' or '.join(names)}: {wrong}"
    same, different, difference = -1, len(suspects) - 1, _difference(recording, device, reference, suspects[-1])
    if difference is None:
        return (f"{head} after {_name(recording, submits, suspects[-1])}: {wrong}; done again on {uri} and "
                f"{reference.identify().uri}, the same commands leave no difference")
    while different - same > 1:
        middle = (same + different) // 2
        if found := _difference(recording, device, reference, suspects[middle]):
            different, difference = middle, found
        else:
            same = middle
    return f"{head} after {_name(recording, submits, suspects[different])}: {difference}"


def _name(recording: Recording, submits: list[int], k: int) -> str:
    call = recording.calls[k]
    count = len(list(recording.named("submit")))
    return f"command {submits.index(k) + 1} of {count} (at {call['entry']} with arguments {tuple(call['arguments'])})"


def _difference(recording: Recording, device: Transport, reference: Transport, last: int) -> Difference | None:
    """Both devices after the recorded calls up to the submit at `last`; where they differ, the reference's word first.
    """
    completed = _completed(recording)
    for transport in (device, reference):
        _clear(transport)
        for n, call in enumerate(recording.calls[:last + 1]):
            if call.name in ("write", "initial"):
                transport.write(recording.space(call), call["first"], recording.array(call["values"]))
            elif call.name == "submit" and (n in completed or n == last):
                _submit(transport, _command(call))
                _completion(transport)
    for space, first, count in parts(recording.config):
        found = first_difference_of(space, reference.read(space, first, count), device.read(space, first, count))
        if found:
            return Difference(space, first + found.address, found.word, found.tile, found.first, found.second,
                              found.count)
    return None


def _completed(recording: Recording) -> set[int]:
    """Places of the submits whose completions were taken; a reset forgets the others."""
    completed, running = set(), deque[int]()
    for n, call in recording.named("submit", "completion", "reset"):
        if call.name == "submit":
            running.append(n)
        elif call.name == "completion":
            completed.add(running.popleft())
        else:
            running.clear()
    return completed


def _command(call: Call) -> Command:
    return Command(call["entry"], tuple(call["arguments"]), call["tag"])


def _submit(transport: Transport, command: Command) -> None:
    spent = 0
    while not transport.submit(command):
        spent = _spend(transport, spent)


def _completion(transport: Transport) -> Completion:
    spent = 0
    while (done := transport.poll()) is None:
        spent = _spend(transport, spent)
    return done


def _spend(transport: Transport, spent: int) -> int:
    if spent >= TIMEOUT_CYCLES:
        raise DeviceError(f"device {transport.identify().uri!r} was to complete a recorded command within "
                          f"{TIMEOUT_CYCLES} cycles; it hangs: reset it")
    transport.advance(CHUNK_CYCLES)
    return spent + CHUNK_CYCLES


def _clear(transport: Transport) -> None:
    """The state after power-up."""
    config = transport.identify().config
    transport.reset()
    for space, first, count in parts(config):
        transport.write(space, first, np.zeros((count, *SPACE_TABLE[space].shape(config)[1:]), np.uint32))


def _first_part(wanted: dict[str, list[str]], found: dict[str, list[str]]) -> str:
    for name, values in wanted.items():
        for n, (a, b) in enumerate(zip(values, found[name], strict=True)):
            if a != b:
                return f"space {name} differs in entries {n * PART} to {(n + 1) * PART - 1}"
    return ""
