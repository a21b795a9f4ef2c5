"""Continuous batching: many sequences share the slots of one device, one command each in turn.

Sequences join and leave between commands. A slot keeps its tokens when its sequence has ended, so that a prompt which
begins the same way starts where that one left off; the slot unused for longest is given up first.

A command works on one slot and leaves nothing behind but that slot's keys and values and its own results, so the
tokens of a sequence are the same whatever else runs; a test holds them equal, bit for bit.
"""

import logging
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from time import monotonic, perf_counter

import numpy as np

from hw.errors import WordlineError
from hw.image import Image
from runtime.device import Device
from runtime.job import Ending, Job, Listener, Request
from runtime.roofline import row_bound
from runtime.slots import Slot, Slots
from runtime.transport import Completion

__all__ = ["Engine", "EngineError", "EngineStopped", "PromptError", "QueueFull", "SlotState", "Stats", "TimeLimit"]

log = logging.getLogger("wordline.engine")

ATTEMPTS = 2
"""Times that a command is tried: a device that failed under it is brought back and given it once more."""


class EngineError(WordlineError):
    """A request that the engine cannot take, or a device that failed under it."""


class PromptError(EngineError):
    """Tokens that the model does not know, or more than its cache holds."""


class QueueFull(EngineError):
    """As many sequences wait as may wait."""


class EngineStopped(EngineError):
    """The engine was closed, or its device failed and did not come back."""


class TimeLimit(EngineError):
    """A sequence was not done in the time it was given."""


@dataclass
class Stats:
    """Sums since the start. Written by the engine's thread alone."""

    commands: int = 0
    cycles: int = 0
    busy_seconds: float = 0.0
    bound_cycles: float = 0.0
    """Cycles that the commands would have taken at one useful row read a cycle and tile."""
    prompt_tokens: int = 0
    reused_tokens: int = 0
    generated_tokens: int = 0
    resets: int = 0
    endings: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class SlotState:
    """What a slot of the KV cache is doing: the tokens it holds, and the number and progress of its sequence."""

    slot: int
    tokens: int
    job: int | None
    generated: int


@dataclass
class _Replacement:
    """A place in the queue at which another image is loaded."""

    image: Image
    done: Future[None] = field(default_factory=Future)


@dataclass(frozen=True)
class _Result:
    """What a command left on the device, read before the next command overwrites it."""

    slot: Slot
    job: Job
    position: int
    completion: Completion
    best: int | None = None
    logits: np.ndarray | None = None


class Engine:
    """Runs sequences on a device. `start` gives it a thread; without one, call `step`.

    Parameters
    ----------
    device : Device
        An open device; the engine alone uses it from now on.
    image : Image
        The model, which is loaded.
    queue : int
        Sequences that may wait for a slot.
    """

    def __init__(self, device: Device, image: Image, *, queue: int = 256) -> None:
        self.device = device
        self.queue = queue
        self.stats = Stats()
        self.failure: WordlineError | None = None
        self._condition = threading.Condition()
        self._waiting: deque[Job | _Replacement] = deque()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._round = 0
        self._running: list[Slot] = []  # of the command that the device has
        self._undigested: list[_Result] = []
        self._load(image)

    # What others may call, from any thread.

    @property
    def context(self) -> int:
        """Tokens that a sequence can have."""
        return self.image.kv.context

    @property
    def queued(self) -> int:
        """Sequences that wait for a slot."""
        return len(self._waiting)

    @property
    def active(self) -> int:
        """Sequences that have a slot."""
        return sum(slot.job is not None for slot in self._slots)

    def slots(self) -> list[SlotState]:
        """The state of every slot, for people to look at."""
        pairs = [(slot, slot.job) for slot in self._slots]
        return [SlotState(slot.number, len(slot.tokens), job.number, len(job.generated)) if job is not None
                else SlotState(slot.number, len(slot.tokens), None, 0) for slot, job in pairs]

    def submit(self, requests: Sequence[tuple[Request, Listener]], image: Image | None = None) -> list[Job]:
        """Queue sequences, all or none. `image` is the one that their tokens were made for.

        Raises `PromptError`, `QueueFull` or `EngineStopped`.
        """
        image = image or self.image
        for request, _ in requests:
            _check(request, image)
        with self._condition:
            self._check_running()
            waiting = max(len(self._waiting) - len(self._slots.free), 0)
            if waiting + len(requests) > self.queue + max(len(self._slots.free) - len(self._waiting), 0):
                raise QueueFull(f"a place in the queue was wanted; {waiting} of {self.queue} are taken and "
                                f"{len(requests)} were asked for: try again later")
            jobs = [Job(request, listener, image) for request, listener in requests]
            self._waiting.extend(jobs)
            self._condition.notify()
        return jobs

    def replace(self, image: Image) -> "Future[None]":
        """Load another image when the sequences that came before have ended; those that come after wait.

        The future fails, and the old image stays, when the new one does not fit the device.
        """
        replacement = _Replacement(image)
        with self._condition:
            self._check_running()
            self._waiting.append(replacement)
            self._condition.notify()
        return replacement.done

    def start(self) -> None:
        """Run sequences on a thread of the engine's own until `close`."""
        self._thread = threading.Thread(target=self._run, name="wordline-engine", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Cancel what runs and what waits, and stop. The device stays open."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join()
        self._end_all(Ending("cancelled"))

    # The engine's thread.

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._closing or self._waiting or self.active)
                if self._closing:
                    return
            self.step()

    def step(self) -> bool:
        """Give every sequence that has a slot one command; False when there was nothing to do."""
        self._round += 1
        try:
            self._admit()
            ready = [slot for slot in self._slots if self._goes_on(slot) and not self._slots.waits(slot)]
            for group in self._groups(ready):
                self._command(group)
            self._running = []
            self._digest_all()
            return bool(ready or self._waiting)
        except Exception as error:  # whatever a device or its simulator raises must not end the service
            self._recover(error)
            return True

    def _admit(self) -> None:
        """Sequences from the queue into free slots, in the order in which they came."""
        while True:
            with self._condition:
                gone = [w for w in self._waiting if isinstance(w, Job) and self._is_over(w)]
                for job in gone:
                    self._waiting.remove(job)
                first = self._waiting[0] if self._waiting else None
                wanted = 1 if isinstance(first, Job) else len(self._slots)
                ready = first is not None and len(self._slots.free) >= wanted
                if ready:
                    self._waiting.popleft()
            for job in gone:
                self._leave(job, self._is_over(job) or Ending("cancelled"))
            if not ready:
                return
            if isinstance(first, _Replacement):
                self._replace(first)
            elif first is not None:
                self._place(first)

    def _place(self, job: Job) -> None:
        if job.image is not self.image:
            self._leave(job, Ending("error", EngineStopped(
                "the model was replaced while this request waited: send it again")))
            return
        job.started = monotonic()
        self._slots.place(job)

    def _goes_on(self, slot: Slot) -> bool:
        if slot.job is None:
            return False
        ending = self._is_over(slot.job)
        if ending is not None:
            self._vacate(slot, ending)
        return ending is None

    def _groups(self, ready: list[Slot]) -> list[list[Slot]]:
        """Slots that share a command: two that each want a token, if the image can do two at once, else one."""
        groups: list[list[Slot]] = []
        halves: dict[int, list[Slot]] = {}  # by the entry point that the slot needs, so that it gets that one always
        for slot in ready:
            if not self._pairs or self._input(slot)[0] != "decode" or _job(slot).alone:
                groups.append([slot])
                continue
            bucket = self.image.entry("pair", len(slot.tokens) + 1).context
            if bucket in halves:
                halves.pop(bucket).append(slot)
            else:
                groups.append([slot])
                halves[bucket] = groups[-1]
        return groups

    @staticmethod
    def _input(slot: Slot) -> tuple[str, int]:
        return _job(slot).next_input(len(slot.tokens))

    @staticmethod
    def _is_over(job: Job) -> Ending | None:
        if job.cancelled:
            return Ending("cancelled")
        if job.request.deadline is not None and monotonic() > job.request.deadline:
            return Ending("error", TimeLimit(
                f"the sequence was to end in time; it was given up after {monotonic() - job.submitted:.1f} s and "
                f"{len(job.generated)} tokens: ask for fewer tokens, or try when less is going on"))
        return None

    def _command(self, group: list[Slot]) -> None:
        """Run one command, and do the host's work for the one before while the device is busy."""
        self._running = group
        inputs = [self._input(slot) for slot in group]
        positions = [self.device.kv.grow(slot.number) for slot in group]
        kind = "pair" if len(group) == 2 else inputs[0][0]
        entry = self.image.entry(kind, max(positions) + 1)
        values = {f"{name}{suffix}": value for slot, (_, token), position, suffix in
                  zip(group, inputs, positions, ("", "2"), strict=False)
                  for name, value in (("token", token), ("position", position), ("slot", slot.number))}
        started = perf_counter()
        operation = self.device.enqueue(entry, **{name: values[name] for name in entry.arguments})
        self._digest_all()
        self.device.wait(operation)
        completion = operation.completion
        if completion.nonfinite and len(group) == 2:
            self._part(group, positions)
            return
        read = [self._read(_job(slot), n) if kind != "prefill" else (None, None) for n, slot in enumerate(group)]
        for slot, (_, token), position, (best, logits) in zip(group, inputs, positions, read, strict=True):
            slot.tokens.append(token)
            slot.used = self._round
            _job(slot).attempts = 0
            self._undigested.append(_Result(slot, _job(slot), position, completion, best, logits))
            self.stats.prompt_tokens += position < len(_job(slot).request.prompt)
        self._count(kind, completion, positions)
        self.stats.busy_seconds += perf_counter() - started

    def _read(self, job: Job, sequence: int) -> tuple[int | None, np.ndarray | None]:
        """The device's choice or the logits of the first or the second sequence of a command."""
        if job.request.needs_logits or job.request.prompt_logprobs:
            return None, self.device.read_logits(sequence)
        return self.device.read_argmax(sequence), None

    def _count(self, kind: str, completion: Completion, positions: Sequence[int]) -> None:
        s = self.stats
        s.commands += 1
        s.cycles += completion.cycles
        if "needed_rows" in self.image.report:
            kind = "decode" if kind == "pair" else kind
            weights = row_bound(self.image, kind, 0)  # read once for both
            s.bound_cycles += weights + sum(row_bound(self.image, kind, p + 1) - weights for p in positions)

    def _part(self, group: list[Slot], positions: Sequence[int]) -> None:
        """One of two sequences made a number that is not finite: each runs alone from now on, to show which."""
        for slot, position in zip(group, positions, strict=True):
            self._slots.cut(slot, position)
            _job(slot).alone = True

    def _digest_all(self) -> None:
        while self._undigested:
            self._digest(self._undigested.pop(0))

    def _digest(self, result: _Result) -> None:
        """The host's work after a command: the next token, and who hears of it."""
        job, slot = result.job, result.slot
        if slot.job is not job:
            return
        try:
            ending = self._next(result)
        except Exception as error:  # a constraint, a sampler or a listener: this sequence's own trouble
            if not isinstance(error, WordlineError):
                log.exception("sequence %d", job.number)
                error = EngineError(f"sequence {job.number} could not go on ({error!r}): this is a fault of the "
                                    "server; its log has the details")
            ending = Ending("error", error)
        if ending is not None:
            self._vacate(slot, ending)

    def _next(self, result: _Result) -> Ending | None:
        job, request = result.job, result.job.request
        if result.completion.nonfinite:
            return Ending("error", EngineError(
                f"finite numbers were wanted; position {result.position} made an infinity or a NaN: the model file is "
                "damaged, or its numbers do not fit fp32"))
        if result.position < len(request.prompt) - 1:
            if result.logits is not None and not job.read_prompt(result.position, result.logits):
                return Ending("stop")
            return None
        if request.max_tokens == 0:
            return Ending("length")
        self.stats.generated_tokens += 1
        return job.take(job.choose(result.best, result.logits), self.context)

    def _vacate(self, slot: Slot, ending: Ending) -> None:
        job, slot.job = slot.job, None
        if ending.error is not None:  # whatever went wrong is not for others to continue
            self._slots.cut(slot, 0)
        if job is not None:
            self._leave(job, ending)

    def _leave(self, job: Job, ending: Ending) -> None:
        self.stats.reused_tokens += job.reused
        self.stats.endings[ending.reason] = self.stats.endings.get(ending.reason, 0) + 1
        try:
            job.end(ending)
        except Exception:
            log.exception("the listener of sequence %d", job.number)

    # Loading, and what goes wrong.

    def _load(self, image: Image) -> None:
        self.device.load(image)
        self.image = image
        self._slots = Slots(self.device.kv)
        self._pairs = any(name.startswith("pair@") for name in image.entries)

    def _replace(self, replacement: _Replacement) -> None:
        self._slots.release()
        old = self.image
        try:
            self._load(replacement.image)
        except WordlineError as error:
            replacement.done.set_exception(error)
            self.device.reset()  # so that the old image is written again, whatever the new one had overwritten
            self._load(old)
        else:
            replacement.done.set_result(None)

    def _recover(self, error: Exception) -> None:
        """Bring the device back. Sequences of the command that failed try it again, or fail; others lose nothing."""
        log.error("the device failed: %s", error, exc_info=not isinstance(error, WordlineError))
        first = (str(error).splitlines() or [repr(error)])[0]
        self.stats.resets += 1
        try:
            if not self._running:
                raise error
            self.device.recover()
            self._digest_all()
            for slot in self._running:
                self._slots.cut(slot, len(slot.tokens))
                if (job := slot.job) is not None:
                    job.attempts += 1
                    if job.attempts == ATTEMPTS:
                        self._vacate(slot, Ending("error", EngineError(
                            f"the device failed under this sequence {ATTEMPTS} times ({first}): send the request "
                            "again, or restart the server")))
        except Exception:
            log.exception("the device has lost its state")
            self._reload(first)
        self._running = []

    def _reload(self, reason: str) -> None:
        """Start the device anew; what ran on it is lost."""
        self._undigested.clear()
        for slot in self._slots:
            if (job := slot.job) is not None:
                slot.job = None
                self._leave(job, Ending("error", EngineError(
                    f"the device failed ({reason}) and was started anew: send the request again")))
        try:
            self.device.reset()
            self._load(self.image)
        except Exception as again:
            log.exception("the device did not come back")
            self.failure = EngineStopped(f"the device failed and did not come back after a reset ({again}): restart "
                                         "the server")
            self._end_all(Ending("error", self.failure))

    def _end_all(self, ending: Ending) -> None:
        with self._condition:
            waiting, self._waiting = list(self._waiting), deque()
        for slot in self._slots:
            if slot.job is not None:
                waiting.append(slot.job)
                slot.job = None
        for item in waiting:
            if isinstance(item, Job):
                self._leave(item, ending)
            else:
                item.done.set_exception(ending.error or EngineStopped("the engine was closed"))

    def _check_running(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self._closing:
            raise EngineStopped("the server is stopping: send the request to another one")


def _job(slot: Slot) -> Job:
    """The sequence that has a slot, when there is one."""
    assert slot.job is not None
    return slot.job


def _check(request: Request, image: Image) -> None:
    """Raises `PromptError` for a prompt that the image cannot take."""
    context, vocabulary = image.kv.context, image.logits[1]
    if not request.prompt:
        raise PromptError("a prompt of at least one token was wanted; got none")
    if len(request.prompt) > context:
        raise PromptError(f"the prompt has {len(request.prompt)} tokens; this model holds {context}: shorten it, "
                          "or compile with a longer --context")
    for token in (*request.prompt, *request.adjustment.bias):
        if not 0 <= token < vocabulary:
            raise PromptError(f"a token id from 0 to {vocabulary - 1} was wanted; got {token!r}")
