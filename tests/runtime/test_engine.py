"""The engine: sequences that share a device get the tokens that they would get alone, whatever goes wrong beside."""

import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from time import monotonic

import numpy as np
import pytest

from compiler.compile import compile_model
from hw.config import preset
from hw.image import Image
from runtime.device import Device
from runtime.engine import Engine, EngineStopped, PromptError, QueueFull, TimeLimit
from runtime.job import Ending, Job, Request, Token
from runtime.logits import Adjustment, log_probabilities, most_probable
from runtime.sampling import Sampling
from runtime.session import Session
from runtime.transport import Command, DeviceError
from tests.models.random_gguf import write_random_model

CONTEXT, SLOTS = 64, 3


def compiled(folder, seed: int = 0, slots: int = SLOTS) -> Image:
    path = write_random_model(folder / f"random{seed}.gguf", layers=1, seed=seed).path
    return compile_model(path, preset("tiny"), context=CONTEXT, slots=slots, pairs=slots > 1, effort=1,
                         checked=False)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return compiled(tmp_path_factory.mktemp("engine"))


class Heard:
    """A listener that keeps what it hears."""

    def __init__(self, enough: int | None = None) -> None:
        self.tokens: list[Token] = []
        self.ending: Ending | None = None
        self.enough = enough
        self.over = threading.Event()

    @property
    def indices(self) -> list[int]:
        return [t.index for t in self.tokens]

    def token(self, token: Token) -> bool:
        assert self.ending is None
        self.tokens.append(token)
        return len(self.tokens) != self.enough

    def ended(self, ending: Ending) -> None:
        assert self.ending is None, "an ending is said once"
        self.ending = ending
        self.over.set()


class Breakable:
    """A transport whose next commands can be made to fail."""

    def __init__(self, inner) -> None:
        self.inner = inner
        self.failures = 0
        self.broken = False
        self.commands: list[Command] = []

    def __getattr__(self, name: str):
        return getattr(self.inner, name)

    def submit(self, command: Command) -> bool:
        if self.failures:
            self.failures -= 1
            raise DeviceError("the link is down")
        self.commands.append(command)
        return self.inner.submit(command)

    def reset(self) -> None:
        if self.broken:
            raise DeviceError("no answer")
        self.inner.reset()


@pytest.fixture
def device(image) -> Iterator[Device]:
    with Device.open("model:", image.config) as opened:
        opened.transport = Breakable(opened.transport)
        yield opened


@pytest.fixture
def engine(device, image) -> Engine:
    return Engine(device, image, queue=8)


def without_pairs(image: Image) -> Image:
    return replace(image, entries={name: e for name, e in image.entries.items() if not name.startswith("pair@")})


def submit(engine: Engine, request: Request, enough: int | None = None) -> tuple[Job, Heard]:
    heard = Heard(enough)
    return engine.submit([(request, heard)])[0], heard


def run(engine: Engine) -> None:
    while engine.step():
        pass


def alone(image: Image, request: Request) -> list[int]:
    """What a session of one's own on a fresh device makes."""
    with Device.open("model:", image.config) as fresh:
        fresh.load(image)
        with Session(fresh, image) as session:
            return list(session.generate(request.prompt, request.sampling, request.max_tokens, request.stop))


REQUESTS = [
    Request((5, 6, 7), max_tokens=20),
    Request((300,), Sampling(temperature=1.5, seed=1), max_tokens=30),
    Request(tuple(range(40)), max_tokens=8),
    Request((5, 6, 7, 8), Sampling(temperature=2, top_k=20, seed=2), max_tokens=25),
    Request((9,) * 33, Sampling(temperature=1, top_p=0.9, seed=3), max_tokens=5),
    Request((5, 6), max_tokens=40),
    Request((412, 1, 2), Sampling(temperature=1, min_p=0.01, seed=4), max_tokens=1),
]


def test_every_sequence_is_what_it_is_alone(engine, image):
    heard = [submit(engine, request)[1] for request in REQUESTS]
    run(engine)
    assert [h.indices for h in heard] == [alone(image, request) for request in REQUESTS]
    assert {h.ending.reason for h in heard} == {"length"}
    assert engine.active == engine.queued == 0


def test_logits_are_the_same_bits_beside_others_and_after_others(engine, image):
    request = Request((7, 8, 9, 10), max_tokens=12, logprobs=5)
    _, first = submit(engine, request)
    run(engine)
    for other in REQUESTS[1:5]:
        submit(engine, other)
    _, second = submit(engine, request)
    run(engine)
    assert first.tokens == second.tokens and len(first.tokens) == 12


def test_commands_go_round(device, image):
    engine = Engine(device, without_pairs(image))
    for _ in range(3):
        submit(engine, Request((1, 2, 3), max_tokens=4))
    run(engine)
    assert [command.arguments[2] for command in device.transport.commands] == [0, 1, 2] * 6


def test_two_sequences_share_a_command_when_both_want_a_token(engine, device, image):
    requests = [Request((5, 6, 7, 8), Sampling(temperature=1, seed=n), max_tokens=9, logprobs=1) for n in range(3)]
    heard = [submit(engine, request)[1] for request in requests]
    run(engine)
    entries = [command.entry for command in device.transport.commands]
    assert entries.count(image.entry("pair", 1).address) == entries.count(image.entry("decode", 1).address) == 9
    single = Engine(device, without_pairs(image))
    for request, h in zip(requests, heard, strict=True):
        _, again = submit(single, request)
        run(single)
        assert h.tokens == again.tokens and len(h.tokens) == 9


def test_a_common_beginning_is_run_once(engine, device, image):
    prompt = tuple(range(100, 140))
    requests = [Request((*prompt, n), Sampling(temperature=1, seed=n), max_tokens=4) for n in range(3)]
    pairs = [(request, Heard()) for request in requests]
    jobs = engine.submit(pairs)
    run(engine)
    assert [job.reused for job in jobs] == [0, 40, 40] and engine.stats.prompt_tokens == 43
    assert [h.indices for _, h in pairs] == [alone(image, request) for request in requests]


def test_who_waits_for_a_beginning_runs_it_when_the_other_leaves(engine, image):
    prompt = tuple(range(100, 140))
    first, _ = submit(engine, Request(prompt, max_tokens=4))
    _, second = submit(engine, Request(prompt, max_tokens=4))
    for _ in range(20):
        engine.step()
    first.cancel()
    run(engine)
    assert second.indices == alone(image, Request(prompt, max_tokens=4)) and engine.stats.prompt_tokens == 40


def test_a_newcomer_joins_between_steps_and_waits_for_a_slot_in_order(engine):
    _, first = submit(engine, Request((1,), max_tokens=10))
    engine.step()
    later = [submit(engine, Request((2, n), max_tokens=3))[1] for n in range(4)]
    engine.step()
    assert len(first.tokens) == 2 and engine.active == 3 and engine.queued == 2
    done = []
    while engine.step():
        done += [n for n, heard in enumerate(later) if heard.ending and n not in done]
    assert done == [0, 1, 2, 3]


def test_a_conversation_goes_on_where_it_was(engine, image):
    first, heard = submit(engine, Request((5, 6, 7), max_tokens=6))
    run(engine)
    for n in range(2):  # two other slots are free, so none of these takes the conversation's
        submit(engine, Request((200 + n, 3), max_tokens=2))
        run(engine)
    turn = Request((5, 6, 7, *heard.indices, 11, 12), max_tokens=6)
    second, answer = submit(engine, turn)
    run(engine)
    assert (second.slot, second.reused) == (first.slot, 8)  # the last token made was never fed
    assert answer.indices == alone(image, turn)
    assert engine.stats.reused_tokens >= 8


def test_the_oldest_slot_is_given_up(engine):
    jobs = [submit(engine, Request((100 + n, 1, 2), max_tokens=2))[0] for n in range(SLOTS)]
    run(engine)
    again, _ = submit(engine, Request((100, 1, 2), max_tokens=2))
    run(engine)
    assert again.slot == jobs[0].slot
    stranger, _ = submit(engine, Request((7, 7, 7), max_tokens=2))
    run(engine)
    assert stranger.slot == jobs[1].slot and stranger.reused == 0


def test_stop_tokens_and_listeners_end_a_sequence(engine, image):
    tokens = alone(image, Request((5, 6, 7), max_tokens=20))
    _, by_token = submit(engine, Request((5, 6, 7), max_tokens=20, stop=frozenset({tokens[7]})))
    _, by_listener = submit(engine, Request((5, 6, 7), max_tokens=20), enough=4)
    run(engine)
    assert by_token.indices == tokens[:tokens.index(tokens[7])] and by_listener.indices == tokens[:4]
    assert by_token.ending == by_listener.ending == Ending("stop")


def test_a_full_context_ends_a_sequence(engine, image):
    _, heard = submit(engine, Request(tuple(range(60))))
    run(engine)
    assert heard.ending == Ending("length") and len(heard.tokens) == CONTEXT - 60 + 1
    _, heard = submit(engine, Request(tuple(range(CONTEXT))))
    run(engine)
    assert heard.ending == Ending("length") and len(heard.tokens) == 1


def test_cancelling_frees_the_slot_before_the_next_command(engine, device):
    job, heard = submit(engine, Request((1, 2, 3)))
    waiting = [submit(engine, Request((4, n)))[0] for n in range(4)]
    for _ in range(5):
        engine.step()
    before = len(device.transport.commands)
    job.cancel()
    for other in waiting:
        other.cancel()
    engine.step()
    assert heard.ending == Ending("cancelled") and len(device.transport.commands) == before
    assert engine.active == engine.queued == 0 and not engine.step()


def test_zero_tokens_reads_the_prompt_only(engine):
    _, heard = submit(engine, Request((1, 2, 3), max_tokens=0, logprobs=2, prompt_logprobs=True))
    run(engine)
    assert heard.indices == [2, 3] and all(t.of_prompt for t in heard.tokens)
    assert heard.ending == Ending("length")


def test_logprobs_are_those_of_the_logits(engine, image):
    prompt = (5, 6, 7, 8)
    with Device.open("model:", image.config) as fresh:
        fresh.load(image)
        with Session(fresh, image) as session:
            logits = [log_probabilities(values) for values in session.score(prompt)]
    _, heard = submit(engine, Request(prompt, max_tokens=1, logprobs=3, prompt_logprobs=True))
    run(engine)
    for token, logs in zip(heard.tokens, logits, strict=True):
        assert token.logprob == logs[token.index]
        best = np.argsort(-logs, kind="stable")[:3]
        assert token.top == [(n, logs[n]) for n in best]
    assert np.exp(logits[0]).sum() == pytest.approx(1)


def test_adjustments_move_the_choice(engine, image):
    best = alone(image, Request((5, 6, 7), max_tokens=1))[0]
    forbidden = Request((5, 6, 7), max_tokens=3, adjustment=Adjustment(bias={best: -100.0, 42: 100.0}))
    once = Request((5, 6, 7), max_tokens=2, adjustment=Adjustment(bias={42: 100.0}, presence_penalty=2.0))
    _, heard = submit(engine, forbidden)
    _, other = submit(engine, once)
    run(engine)
    assert heard.indices == [42, 42, 42] and other.indices == [42, 42]
    logits = np.array([1.0, 2.0, 3.0], np.float32)
    adjusted = Adjustment(presence_penalty=0.5, frequency_penalty=0.25).apply(logits, [2, 2, 0])
    assert adjusted.tolist() == [0.25, 2.0, 2.0]


def test_most_probable_breaks_ties_by_id():
    assert most_probable(np.array([-2.0, -1.0, -1.0, -3.0, -1.0]), 2) == [(1, -1.0), (2, -1.0)]
    assert most_probable(np.array([-1.0, -2.0]), 5) == [(0, -1.0), (1, -2.0)]


class Even:
    """Only even tokens, four of them."""

    def __init__(self, fail: bool = False) -> None:
        self.seen: list[int] = []
        self.fail = fail

    def mask(self, logits: np.ndarray) -> np.ndarray:
        if self.fail:
            raise RuntimeError("a fault in the constraint")
        masked = logits.copy()
        masked[1::2] = -np.inf
        return masked

    def accept(self, token: int) -> None:
        self.seen.append(token)

    @property
    def complete(self) -> bool:
        return len(self.seen) == 4


def test_constraints_bind_and_end(engine):
    _, heard = submit(engine, Request((1, 2, 3), Sampling(temperature=5, seed=1), constraint=Even()))
    run(engine)
    assert len(heard.tokens) == 4 and all(n % 2 == 0 for n in heard.indices) and heard.ending == Ending("stop")


def test_a_fault_in_one_sequence_is_its_own(engine, image):
    _, bad = submit(engine, Request((1, 2, 3), max_tokens=5, constraint=Even(fail=True)))
    _, good = submit(engine, REQUESTS[0])
    run(engine)
    assert bad.ending.reason == "error" and "RuntimeError('a fault in the constraint')" in str(bad.ending.error)
    assert good.indices == alone(image, REQUESTS[0]) and engine.stats.resets == 0


def test_deadlines(engine):
    _, waiting = submit(engine, Request((1,), deadline=monotonic() - 1))
    job, running = submit(engine, Request((1,), deadline=monotonic() + 1000))
    engine.step()
    object.__setattr__(job.request, "deadline", monotonic() - 1)
    engine.step()
    for heard in waiting, running:
        assert isinstance(heard.ending.error, TimeLimit)
    assert re.fullmatch(r"the sequence was to end in time; it was given up after \d+\.\d s and 1 tokens: ask for fewer "
                        "tokens, or try when less is going on", str(running.ending.error))
    assert engine.active == 0


@pytest.mark.parametrize("request_, message", [
    (Request(()), "a prompt of at least one token was wanted; got none"),
    (Request((1,) * 65), "the prompt has 65 tokens; this model holds 64: shorten it, or compile with a longer "
                         "--context"),
    (Request((413,)), "a token id from 0 to 412 was wanted; got 413"),
    (Request((1,), adjustment=Adjustment(bias={500: 1.0})), "a token id from 0 to 412 was wanted; got 500"),
])
def test_prompts_that_cannot_be(engine, request_, message):
    with pytest.raises(PromptError, match=f"^{re.escape(message)}$"):
        submit(engine, request_)
    assert not engine.step()


def test_the_queue_is_bounded_and_takes_all_or_none(engine):
    pairs = [(Request((1, n), max_tokens=1), Heard()) for n in range(9)]
    engine.submit(pairs)
    with pytest.raises(QueueFull, match="^a place in the queue was wanted; 6 of 8 are taken and 3 were asked for: "
                                        "try again later$"):
        engine.submit(pairs[:3])
    engine.submit(pairs[:2])
    engine.step()
    with pytest.raises(QueueFull):
        engine.submit(pairs[:1])
    for _, heard in pairs:
        heard.ending = None
    run(engine)
    engine.submit(pairs[:3])


def test_a_device_that_fails_once_loses_nothing(engine, device, image):
    heard = [submit(engine, request)[1] for request in REQUESTS]
    for _ in range(5):
        device.transport.failures = 1
        engine.step()
        engine.step()
    run(engine)
    assert [h.indices for h in heard] == [alone(image, request) for request in REQUESTS]
    assert engine.stats.resets == 5


def test_a_sequence_under_which_the_device_keeps_failing_is_given_up(engine, device, image):
    bad, good = (submit(engine, request)[1] for request in REQUESTS[1:3])
    engine.step()
    device.transport.failures = 2
    run(engine)
    assert str(bad.ending.error) == ("the device failed under this sequence 2 times (the link is down): send the "
                                     "request again, or restart the server")
    assert good.indices == alone(image, REQUESTS[2])


def test_a_device_that_lost_its_state_is_started_anew(engine, device, image, monkeypatch):
    monkeypatch.setattr(device, "recover", broken)
    heard = [submit(engine, request)[1] for request in REQUESTS[:5]]
    engine.step()
    device.transport.failures = 1
    run(engine)
    assert {str(h.ending.error) for h in heard[:SLOTS]} == {
        "the device failed (the link is down) and was started anew: send the request again"}
    assert [h.indices for h in heard[SLOTS:]] == [alone(image, request) for request in REQUESTS[SLOTS:5]]


def broken() -> None:
    raise DeviceError("no answer")


def test_a_device_that_stays_away_is_said_to_everyone(engine, device):
    heard = [submit(engine, Request((1, n)))[1] for n in range(6)]
    device.transport.failures, device.transport.broken = 1, True
    run(engine)
    assert all(h.ending.reason == "error" for h in heard)
    assert str(heard[5].ending.error) == ("the device failed and did not come back after a reset (no answer): restart "
                                          "the server")
    with pytest.raises(EngineStopped, match="^the device failed and did not come back"):
        submit(engine, Request((1,)))


def test_another_image_is_loaded_in_its_turn(engine, image, tmp_path):
    other = compiled(tmp_path, seed=1, slots=2)
    request = Request((5, 6, 7), max_tokens=9)
    _, before = submit(engine, request)
    done = engine.replace(other)
    _, after = engine.submit([(request, heard := Heard())], other)[0], heard
    _, late = submit(engine, request)  # made for the old one, but behind it in the queue
    run(engine)
    assert done.result(0) is None and engine.image is other and len(engine.slots()) == 2
    assert before.indices == alone(image, request)
    assert after.indices == alone(other, request) and after.indices != before.indices
    assert str(late.ending.error) == "the model was replaced while this request waited: send it again"


def test_an_image_that_does_not_fit_changes_nothing(engine, image):
    done = engine.replace(replace(image, config=preset("w16")))
    _, heard = submit(engine, REQUESTS[0])
    run(engine)
    assert isinstance(done.exception(0), DeviceError)
    assert engine.image is image and heard.indices == alone(image, REQUESTS[0])


def test_a_thread_serves_many_and_closes(engine, image):
    engine.start()
    requests = REQUESTS * 4
    heard = []
    for request in requests:
        while True:
            try:
                heard.append(submit(engine, request)[1])
                break
            except QueueFull:
                threading.Event().wait(0.01)
    assert all(h.over.wait(20) for h in heard)
    expected = [alone(image, request) for request in REQUESTS]
    assert [h.indices for h in heard] == expected * 4
    _, last = submit(engine, Request((1,)))
    engine.close()
    assert last.over.is_set()
    with pytest.raises(EngineStopped, match="^the server is stopping: send the request to another one$"):
        submit(engine, Request((1,)))


def test_slots_can_be_looked_at(engine):
    job, _ = submit(engine, Request((1, 2, 3), max_tokens=5))
    for _ in range(4):
        engine.step()
    state = engine.slots()[0]
    assert (state.slot, state.tokens, state.job, state.generated) == (0, 4, job.number, 2)
    assert engine.stats.commands == 4 and engine.stats.prompt_tokens == 3 and engine.stats.generated_tokens == 2
    assert 0 < engine.stats.bound_cycles < engine.stats.cycles
