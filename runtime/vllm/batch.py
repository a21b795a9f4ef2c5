"""Runs what a scheduler decided: tokens of some sequences, each in its slot of a device, two in a command if it can."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hw.image import Image
from runtime.device import Device
from runtime.dispatcher import Operation
from runtime.engine import ATTEMPTS, EngineError
from runtime.job import Job
from runtime.slots import COPY_LEAST, Slot, Slots
from runtime.transport import DeviceError

__all__ = ["Batch", "Outcome", "Part"]


@dataclass(frozen=True)
class Outcome:
    """What the last token of a sequence left: the device's choice, or logits (vocab,) when its request needs them."""

    best: int | None = None
    logits: np.ndarray | None = None


@dataclass
class Part:
    """What is to be done for one sequence: run its tokens up to position `end`, exclusive.

    `outcome` is set when that was the last token known, so that another one can be chosen.
    """

    job: Job
    slot: int
    end: int
    outcome: Outcome | None = field(default=None, init=False)

    @property
    def chooses(self) -> bool:
        """Whether a token follows."""
        return self.end == len(self.job.request.prompt) + len(self.job.generated)


class Batch:
    """The slots of a device, and the parts of sequences that run in them.

    Parameters
    ----------
    device : Device
        An open device; the batch alone uses it from now on.
    image : Image
        The model, which is loaded.
    """

    def __init__(self, device: Device, image: Image) -> None:
        self.device = device
        self.image = image
        device.load(image)
        self.slots = Slots(device.kv)
        self._pairs = any(name.startswith("pair@") for name in image.entries)

    def place(self, job: Job, slot: int) -> int:
        """Begin a sequence in a slot that no other uses; the number of its tokens that need not be run.

        These are what the slot held already, or a copy of what another slot holds. The last token is always run.
        """
        target, tokens = self.slots[slot], (*job.request.prompt, *job.generated)
        source = max(self.slots, key=lambda other: other.shared(tokens))
        there = source.shared(tokens)
        self.slots.cut(target, target.shared(tokens))
        if self.device.kv.copy is not None and there - len(target.tokens) >= COPY_LEAST:
            self.device.kv.share(source.number, target.number, there)
            target.tokens[:] = tokens[:there]
        job.slot, job.reused = slot, len(target.tokens)
        return job.reused

    def run(self, parts: Sequence[Part]) -> None:
        """Bring every part to its end. A device that fails is brought back, and what is missing tried once more.

        Raises `DeviceError` when it fails again, `EngineError` for numbers that are not finite.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._fill(parts)
                self._decode([part for part in parts if part.chooses and part.outcome is None])
                return
            except DeviceError:
                if attempt == ATTEMPTS:
                    raise
                self.device.recover()
                for slot in self.slots:  # what was on its way is not there
                    self.slots.cut(slot, len(slot.tokens))

    def _fill(self, parts: Sequence[Part]) -> None:
        """Run the tokens after which nothing is chosen, the next command on the device before the last is done."""
        begun: list[tuple[Slot, int, Operation]] = []
        for part in parts:
            slot, end = self.slots[part.slot], part.end - part.chooses
            for position in range(len(slot.tokens), end):
                kind, token = part.job.next_input(position)
                begun.append((slot, token, self._begin(kind, [(slot, token)])))
                if len(begun) > 1:
                    self._end(*begun.pop(0))
        while begun:
            self._end(*begun.pop(0))

    def _decode(self, parts: Sequence[Part]) -> None:
        for group in self._groups(parts):
            work = [(self.slots[part.slot], part.job.next_input(part.end - 1)[1]) for part in group]
            operation = self._begin("pair" if len(group) == 2 else "decode", work)
            self.device.wait(operation)
            if operation.completion.nonfinite and len(group) == 2:  # each alone, to show which of them it is
                for slot, _ in work:
                    self.slots.cut(slot, len(slot.tokens))
                for part in group:
                    part.job.alone = True
                self._decode(group)
                continue
            for n, (part, (slot, token)) in enumerate(zip(group, work, strict=True)):
                # Read first: should that fail, the slot does not have the token, and it is run once more.
                outcome = (Outcome(logits=self.device.read_logits(n)) if part.job.request.needs_logits
                           else Outcome(best=self.device.read_argmax(n)))
                self._end(slot, token, operation)
                part.outcome = outcome

    def _groups(self, parts: Sequence[Part]) -> list[list[Part]]:
        """Parts that share a command: two whose contexts take the same entry point, if the image has pairs."""
        groups: list[list[Part]] = []
        halves: dict[int, list[Part]] = {}
        for part in parts:
            bucket = self.image.entry("pair", part.end).context if self._pairs and not part.job.alone else None
            if bucket in halves:
                halves.pop(bucket).append(part)
                continue
            groups.append([part])
            if bucket is not None:
                halves[bucket] = groups[-1]
        return groups

    def _begin(self, kind: str, work: Sequence[tuple[Slot, int]]) -> Operation:
        positions = [self.device.kv.grow(slot.number) for slot, _ in work]
        entry = self.image.entry(kind, max(positions) + 1)
        values = {f"{name}{suffix}": value for (slot, token), position, suffix in
                  zip(work, positions, ("", "2"), strict=False)
                  for name, value in (("token", token), ("position", position), ("slot", slot.number))}
        return self.device.enqueue(entry, **{name: values[name] for name in entry.arguments})

    def _end(self, slot: Slot, token: int, operation: Operation) -> None:
        self.device.wait(operation)
        if operation.completion.nonfinite:
            raise EngineError(
                f"finite numbers were wanted; position {len(slot.tokens)} of slot {slot.number} made an infinity or a "
                "NaN: the model file is damaged, or its numbers do not fit fp32")
        slot.tokens.append(token)
