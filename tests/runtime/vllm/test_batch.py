"""What a scheduler decides is run as the engine runs it: same tokens, whatever is cut, shared, paired or fails."""

import re
from collections.abc import Iterator

import numpy as np
import pytest

from compiler.compile import compile_model
from hw.config import preset
from hw.image import Image
from runtime.device import Device
from runtime.engine import Engine, EngineError
from runtime.job import Ending, Job, Request, Token
from runtime.sampling import Sampling
from runtime.transport import Command, DeviceError
from runtime.vllm.batch import Batch, Part
from tests.models.random_gguf import write_random_model

SLOTS = 3
GREEDY, DRAWN = Sampling(), Sampling(temperature=1.2, top_p=0.9, seed=5)


@pytest.fixture(scope="module", params=[True, False], ids=["pairs", "single"])
def image(request, tmp_path_factory: pytest.TempPathFactory) -> Image:
    path = write_random_model(tmp_path_factory.mktemp("batch") / "random.gguf", layers=1).path
    return compile_model(path, preset("tiny"), context=64, slots=SLOTS, pairs=request.param, effort=1, checked=False)


class Fragile:
    """A transport that fails at the commands whose numbers are given."""

    def __init__(self, inner, at: set[int]) -> None:
        self.inner, self.at, self.count = inner, at, 0

    def __getattr__(self, name: str):
        return getattr(self.inner, name)

    def submit(self, command: Command) -> bool:
        self.count += 1
        if self.count in self.at:
            raise DeviceError("the link is down")
        return self.inner.submit(command)


class Heard:
    def __init__(self) -> None:
        self.tokens: list[int] = []

    def token(self, token: Token) -> bool:
        self.tokens.append(token.index)
        return True

    def ended(self, ending: Ending) -> None:
        assert ending.error is None


class Scheduler(Batch):
    """A batch with what a scheduler does: it counts the tokens of every sequence that were run."""

    def begin(self, job: Job, slot: int) -> int:
        job.done = 0
        return self.place(job, slot)

    def step(self, *work: tuple[Job, int]) -> None:
        """Run so many tokens of each sequence, and choose."""
        parts = [Part(j, j.slot, j.done + count) for j, count in work]
        self.run(parts)
        for part in parts:
            part.job.done = part.end
            if part.outcome is not None:
                part.job.generated.append(part.job.choose(part.outcome.best, part.outcome.logits).index)

    def finish(self, *jobs: Job) -> None:
        while waiting := [j for j in jobs if len(j.generated) < j.request.max_tokens]:
            self.step(*((j, 1) for j in waiting))


@pytest.fixture
def batch(image) -> Iterator[Scheduler]:
    with Device.open("model:", image.config) as device:
        yield Scheduler(device, image)


def wanted(image: Image, request: Request) -> list[int]:
    """The engine's tokens."""
    heard = Heard()
    with Device.open("model:", image.config) as device:
        engine = Engine(device, image)
        engine.submit([(request, heard)])
        while engine.step():
            pass
    return heard.tokens


def job(image: Image, prompt, sampling: Sampling = GREEDY, tokens: int = 8) -> Job:
    return Job(Request(tuple(prompt), sampling, tokens), Heard(), image)


def prompts(count: int, length: int = 9) -> list[list[int]]:
    return np.random.default_rng(3).integers(3, 400, (count, length)).tolist()


@pytest.mark.parametrize("sampling", [GREEDY, DRAWN], ids=["greedy", "drawn"])
@pytest.mark.parametrize("chunks", [(9,), (4, 5), (1,) * 9, (8, 1)], ids=str)
def test_prompts_in_pieces(batch, image, sampling, chunks):
    jobs = [job(image, prompt, sampling) for prompt in prompts(SLOTS)]
    for slot, j in enumerate(jobs):
        assert batch.begin(j, slot) == 0
    for chunk in chunks:
        batch.step(*((j, chunk) for j in jobs))
    batch.finish(*jobs)
    assert [j.generated for j in jobs] == [wanted(image, j.request) for j in jobs]


def test_prompts_beside_decoding(batch, image):
    first, second = (job(image, prompt) for prompt in prompts(2))
    batch.begin(first, 2)
    batch.step((first, 9))
    batch.begin(second, 0)
    for _ in range(3):
        batch.step((first, 1), (second, 3))
    batch.finish(first, second)
    for j in (first, second):
        assert j.generated == wanted(image, j.request)


def test_what_a_slot_holds_is_not_run_again(batch, image):
    prompt = prompts(1, 20)[0]
    first = job(image, prompt)
    batch.begin(first, 0)
    batch.step((first, 20))
    same, copied, short = job(image, prompt), job(image, [*prompt, 7]), job(image, [*prompt[:4], 9])
    assert batch.begin(same, 0) == 19
    assert batch.begin(copied, 1) == 19  # as much as slot 0 was left with
    assert batch.begin(short, 2) == 0  # too little to copy
    batch.step((same, 20), (copied, 21), (short, 5))
    batch.finish(same, copied, short)
    for j in (same, copied, short):
        assert j.generated == wanted(image, j.request)


def test_a_sequence_set_aside_goes_on_in_another_slot(batch, image):
    j, other = (job(image, prompt, DRAWN) for prompt in prompts(2))
    batch.begin(j, 0)
    batch.step((j, 9))
    batch.step((j, 1))
    batch.begin(other, 0)
    batch.step((other, 9))
    batch.begin(j, 1)
    batch.step((j, 9 + len(j.generated)))
    batch.finish(j, other)
    for each in (j, other):
        assert each.generated == wanted(image, each.request)


@pytest.mark.parametrize("at", range(1, 24, 3))
def test_a_device_that_fails_once(batch, image, at):
    jobs = [job(image, prompt, DRAWN, 4) for prompt in prompts(2)]
    for slot, j in enumerate(jobs):
        batch.begin(j, slot)
    batch.device.transport = Fragile(batch.device.transport, {at})
    batch.step(*((j, 9) for j in jobs))
    batch.finish(*jobs)
    assert [j.generated for j in jobs] == [wanted(image, j.request) for j in jobs]


@pytest.mark.parametrize("sampling", [GREEDY, DRAWN], ids=["greedy", "drawn"])
@pytest.mark.parametrize("at", range(1, 5))
def test_results_that_cannot_be_read_once(batch, image, monkeypatch, sampling, at):
    jobs = [job(image, prompt, sampling, 4) for prompt in prompts(2)]
    for slot, j in enumerate(jobs):
        batch.begin(j, slot)
    name, reads = "read_argmax" if sampling.greedy else "read_logits", 0
    real = getattr(batch.device, name)

    def broken(sequence: int = 0):
        nonlocal reads
        reads += 1
        if reads == at:
            raise DeviceError("the link is down")
        return real(sequence)

    monkeypatch.setattr(batch.device, name, broken)
    batch.step(*((j, 9) for j in jobs))
    batch.finish(*jobs)
    assert reads > 8 and [j.generated for j in jobs] == [wanted(image, j.request) for j in jobs]


def test_a_device_that_fails_twice(batch, image):
    j = job(image, prompts(1)[0])
    batch.begin(j, 0)
    batch.device.transport = Fragile(batch.device.transport, {5, 6})
    with pytest.raises(DeviceError, match="the link is down"):
        batch.step((j, 9))


def test_numbers_that_are_not_finite(batch, image, monkeypatch):
    jobs = [job(image, prompt) for prompt in prompts(2)]
    for slot, j in enumerate(jobs):
        batch.begin(j, slot)
    batch.step(*((j, 8) for j in jobs))
    real = batch._begin

    def broken(kind, work):
        operation = real(kind, work)
        batch.device.wait(operation)
        if any(slot.number == 1 for slot, _ in work):
            operation.completions[-1] = operation.completions[-1]._replace(nonfinite=True)
        return operation

    monkeypatch.setattr(batch, "_begin", broken)
    message = ("finite numbers were wanted; position 8 of slot 1 made an infinity or a NaN: the model file is "
               "damaged, or its numbers do not fit fp32")
    with pytest.raises(EngineError, match=f"^{re.escape(message)}$"):
        batch.step(*((j, 1) for j in jobs))
    assert len(batch.slots[0].tokens) == 9
