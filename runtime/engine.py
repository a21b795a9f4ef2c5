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
from runtime.transport import Completion

__all__ = ["Engine", "EngineError", "EngineStopped", "PromptError", "QueueFull", "SlotState", "Stats", "TimeLimit"]

log = logging.getLogger("wordline.engine")

LOST_WEIGHT = 0.25
"""What forgetting a cached token costs, against running one again: most are never asked for once more."""


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
class _Slot:
    number: int
    tokens: list[int] = field(default_factory=list)
    job: Job | None = None
    used: int = 0

    def shared(self, prompt: Sequence[int]) -> int:
        """Tokens at the beginning of `prompt` that need not be run again; the last one always is."""
        most = min(len(self.tokens), len(prompt) - 1)
        return next((n for n in range(most) if self.tokens[n] != prompt[n]), most)

    def gain(self, prompt: Sequence[int]) -> float:
        """What is saved by continuing this slot with `prompt`, less what is lost."""
        shared = self.shared(prompt)
        return shared - LOST_WEIGHT * (len(self.tokens) - shared)


@dataclass
class _Replacement:
    """A place in the queue at which another image is loaded."""

    image: Image
    done: Future[None] = field(default_factory=Future)


@dataclass(frozen=True)
class _Result:
    """What a command left on the device, read before the next command overwrites it."""

    slot: _Slot
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
            if len(self._waiting) + len(requests) > self.queue + self._free():
                raise QueueFull(f"a place in the queue was wanted; {len(self._waiting)} of {self.queue} sequences "
                                "wait already: try again later")
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
            result = None
            for slot in self._slots:
                if slot.job is not None and self._goes_on(slot, slot.job):
                    result = self._command(slot, slot.job, result)
            if result is not None:
                self._digest(result)
            return result is not None or bool(self._waiting)
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
                free = [slot for slot in self._slots if slot.job is None]
                ready = first is not None and len(free) >= (1 if isinstance(first, Job) else len(self._slots))
                if ready:
                    self._waiting.popleft()
            for job in gone:
                self._leave(job, self._is_over(job) or Ending("cancelled"))
            if not ready:
                return
            if isinstance(first, _Replacement):
                self._replace(first)
            elif first is not None:
                self._place(first, free)

    def _place(self, job: Job, free: list[_Slot]) -> None:
        if job.image is not self.image:
            self._leave(job, Ending("error", EngineStopped(
                "the model was replaced while this request waited: send it again")))
            return
        prompt = job.request.prompt
        slot = max(free, key=lambda s: s.gain(prompt))
        if slot.gain(prompt) <= 0:
            slot = min(free, key=lambda s: s.used)
        kept = 0 if job.request.prompt_logprobs else slot.shared(prompt)
        slot.job, job.slot, job.reused, job.started = job, slot.number, kept, monotonic()
        del slot.tokens[kept:]
        self.device.kv.truncate(slot.number, kept)
        self.stats.reused_tokens += kept

    def _goes_on(self, slot: _Slot, job: Job) -> bool:
        ending = self._is_over(job)
        if ending is not None:
            self._vacate(slot, ending)
        return ending is None

    @staticmethod
    def _is_over(job: Job) -> Ending | None:
        if job.cancelled:
            return Ending("cancelled")
        if job.request.deadline is not None and monotonic() > job.request.deadline:
            return Ending("error", TimeLimit(
                f"the sequence was to end in time; it was given up after {monotonic() - job.submitted:.1f} s and "
                f"{len(job.generated)} tokens: ask for fewer tokens, or try when less is going on"))
        return None

    def _command(self, slot: _Slot, job: Job, before: _Result | None) -> _Result | None:
        """Run one command, and do the host's work for the one before while the device is busy."""
        position = self.device.kv.grow(slot.number)
        kind, token = job.next_input(position)
        entry = self.image.entry(kind, position + 1)
        values = {"token": token, "position": position, "slot": slot.number}
        started = perf_counter()
        operation = self.device.enqueue(entry, **{name: values[name] for name in entry.arguments})
        if before is not None:
            self._digest(before)
        self.device.wait(operation)
        completion = operation.completion
        slot.tokens.append(token)
        slot.used = self._round
        s = self.stats
        s.commands += 1
        s.cycles += completion.cycles
        if "needed_rows" in self.image.report:
            s.bound_cycles += row_bound(self.image, kind, position + 1)
        s.prompt_tokens += position < len(job.request.prompt)
        best, logits = None, None
        if kind == "decode":
            if job.request.needs_logits or job.request.prompt_logprobs:
                logits = self.device.read_logits()
            else:
                best = self.device.read_argmax()
        s.busy_seconds += perf_counter() - started
        return _Result(slot, job, position, completion, best, logits)

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

    def _vacate(self, slot: _Slot, ending: Ending) -> None:
        job, slot.job = slot.job, None
        if ending.error is not None:  # whatever went wrong is not for others to continue
            slot.tokens.clear()
            self.device.kv.truncate(slot.number, 0)
        if job is not None:
            self._leave(job, ending)

    def _leave(self, job: Job, ending: Ending) -> None:
        self.stats.endings[ending.reason] = self.stats.endings.get(ending.reason, 0) + 1
        try:
            job.end(ending)
        except Exception:
            log.exception("the listener of sequence %d", job.number)

    # Loading, and what goes wrong.

    def _load(self, image: Image) -> None:
        self.device.load(image)
        self.image = image
        self._slots = [_Slot(self.device.kv.take()) for _ in range(image.kv.slots)]

    def _replace(self, replacement: _Replacement) -> None:
        for slot in self._slots:
            self.device.kv.release(slot.number)
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
        """Fail what runs, and bring the device back."""
        log.error("the device failed: %s", error, exc_info=not isinstance(error, WordlineError))
        first = (str(error).splitlines() or [repr(error)])[0]
        failed = EngineError(f"the device failed ({first}): it is being reset; send the request again")
        for slot in self._slots:
            if (job := slot.job) is not None:
                slot.job = None
                self._leave(job, Ending("error", failed))
        try:
            self.device.reset()
            self._load(self.image)
            self.stats.resets += 1
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

    def _free(self) -> int:
        return len(self._slots) - self.active


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
