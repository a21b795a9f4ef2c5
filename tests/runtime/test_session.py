"""Sessions against a toy machine whose next token depends on every token in its cache."""

import hashlib
import re

import numpy as np
import pytest

from hw.config import preset
from hw.image import Entry, Image, KvLayout
from runtime.kvcache import KvCache
from runtime.sampling import Sampler, Sampling
from runtime.session import Session, SessionError
from runtime.transport import Completion, DeviceError

VOCABULARY = 50
CONTEXT = 16


def toy_image(slots: int = 1) -> Image:
    entries = {f"{kind}@{context}": Entry(100 * k + context, ("token", "position", "slot"), context)
               for k, kind in enumerate(("prefill", "decode")) for context in (8, CONTEXT)}
    empty = np.zeros(0, np.uint32)
    return Image(config=preset("tiny"), entries=entries, kv=KvLayout(slots, CONTEXT), logits=(0, VOCABULARY),
                 argmax=1, array=empty, scratch=empty, scalars=empty, microcode=empty, tables=empty,
                 functions=empty)


def toy_logits(tokens: list[int]) -> np.ndarray:
    seed = int.from_bytes(hashlib.sha256(str(tokens).encode()).digest()[:8], "little")
    return np.random.default_rng(seed).normal(size=VOCABULARY).astype(np.float32)


class ToyMachine:
    """A machine whose cache is the tokens themselves and whose logits are a hash of them."""

    def __init__(self, image: Image) -> None:
        self.kv = KvCache(image.kv)
        self.cache = {slot: [-1] * CONTEXT for slot in range(image.kv.slots)}
        self.commands: list[tuple[int, int, int]] = []
        self.moved: list[str] = []
        self.fail_at: int | None = None
        self.nonfinite = False

    def submit(self, entry: Entry, *, token: int, position: int, slot: int) -> Completion:
        assert position < entry.context
        self.cache[slot][position] = token
        if position == self.fail_at:
            raise KeyboardInterrupt
        self.commands.append((entry.address, token, position))
        self.logits = toy_logits(self.cache[slot][:position + 1]) if entry.address >= 100 else None
        return Completion(0, 10 * (position + 1), self.nonfinite)

    def read_argmax(self) -> int:
        self.moved.append("argmax")
        return int(np.argmax(self.logits))

    def read_logits(self) -> np.ndarray:
        self.moved.append("logits")
        return self.logits


@pytest.fixture
def machine():
    return ToyMachine(toy_image())


@pytest.fixture
def session(machine):
    return Session(machine, toy_image())


def expected(prompt: list[int], count: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(np.argmax(toy_logits(tokens))))
    return tokens[len(prompt):]


def test_prompt_then_tokens(session, machine):
    assert list(session.generate([3, 1, 4], max_tokens=4)) == expected([3, 1, 4], 4)
    a, b, c, _ = expected([3, 1, 4], 4)
    assert machine.commands == [(8, 3, 0), (8, 1, 1), (108, 4, 2), (108, a, 3), (108, b, 4), (108, c, 5)]
    assert session.tokens == [3, 1, 4, a, b, c]


def test_greedy_moves_no_logits_and_sampling_does(session, machine):
    list(session.generate([3], max_tokens=3))
    assert machine.moved == ["argmax"] * 3
    list(session.generate([3], Sampling(temperature=1, seed=1), max_tokens=2))
    assert machine.moved == ["argmax"] * 3 + ["logits"] * 2


def test_sampling_is_the_samplers(session):
    sampling, tokens = Sampling(temperature=2, top_k=20, seed=7), [3, 1]
    sampler = Sampler(sampling)
    for _ in range(5):
        tokens.append(sampler.choose(toy_logits(tokens)))
    assert list(session.generate([3, 1], sampling, max_tokens=5)) == tokens[2:]


def test_longer_contexts_use_the_larger_entry(session, machine):
    list(session.generate([5] * 7, max_tokens=3))
    assert [entry for entry, _, _ in machine.commands[-3:]] == [108, 108, 100 + CONTEXT]


def test_next_turn_processes_only_what_is_new(session, machine):
    reply = list(session.generate([3, 1, 4], max_tokens=3))
    machine.commands.clear()
    turn = [3, 1, 4, *reply, 9, 2]
    assert list(session.generate(turn, max_tokens=2)) == expected(turn, 2)
    assert [position for _, _, position in machine.commands] == [5, 6, 7, 8]


def test_a_changed_past_is_processed_again(session, machine):
    list(session.generate([3, 1, 4, 1, 5], max_tokens=2))
    machine.commands.clear()
    assert list(session.generate([3, 1, 9, 1], max_tokens=2)) == expected([3, 1, 9, 1], 2)
    assert [position for _, _, position in machine.commands] == [2, 3, 4]


def test_a_prompt_that_the_cache_holds_still_gives_its_token(session):
    list(session.generate([3, 1, 4, 1], max_tokens=2))
    assert list(session.generate([3, 1], max_tokens=1)) == expected([3, 1], 1)


def test_stop_token_ends_and_is_not_given(session):
    tokens = expected([3, 1, 4], 4)
    stop = tokens[2]
    assert list(session.generate([3, 1, 4], max_tokens=4, stop=(stop,))) == tokens[:tokens.index(stop)]


def test_steps_say_what_was_run(session):
    list(session.generate([3, 1], max_tokens=1))
    assert [(s.kind, s.token, s.position, s.cycles) for s in session.steps] == [
        ("prefill", 3, 0, 10), ("decode", 1, 1, 20)]


def test_full_context(session):
    tokens = session.generate([2] * 14)
    assert [next(tokens), next(tokens)] == expected([2] * 14, 2)
    assert next(tokens) == expected([2] * 14, 3)[2]
    with pytest.raises(SessionError, match=re.escape(
            "the context of 16 tokens is full after 3 new ones: compile with a longer --context, "
            "or start a new chat") + "$"):
        next(tokens)


@pytest.mark.parametrize("prompt, message", [
    ([], "a prompt of at least one token was wanted; got none"),
    ([1] * 17, "the prompt has 17 tokens; this image holds 16: compile with --context 18 or more, or "
               "shorten the prompt"),
    ([1, 50], "a token id from 0 to 49 was wanted; got 50"),
    ([-1], "a token id from 0 to 49 was wanted; got -1"),
])
def test_prompts_that_cannot_be(session, machine, prompt, message):
    with pytest.raises(SessionError, match=f"^{re.escape(message)}$"):
        session.generate(prompt)
    assert machine.commands == []


def test_interruption_leaves_a_session_that_works(session, machine):
    machine.fail_at = 1
    with pytest.raises(KeyboardInterrupt):
        list(session.generate([3, 1, 4], max_tokens=2))
    assert session.tokens == [3]
    machine.fail_at = None
    assert list(session.generate([3, 1, 4], max_tokens=2)) == expected([3, 1, 4], 2)


def test_nonfinite_numbers_are_an_error(session, machine):
    machine.nonfinite = True
    with pytest.raises(SessionError, match=(
            "^finite numbers were wanted; token 3 at position 0 made an infinity or a NaN: the model file is "
            "damaged, or its numbers do not fit fp32$")):
        list(session.generate([3], max_tokens=1))


def test_score_gives_the_logits_of_every_position(session):
    list(session.generate([9, 9], max_tokens=1))
    scores = list(session.score([3, 1, 4]))
    assert np.array_equal(scores, [toy_logits([3]), toy_logits([3, 1]), toy_logits([3, 1, 4])])


def test_slots_are_taken_and_given_back():
    image = toy_image(slots=2)
    machine = ToyMachine(image)
    with Session(machine, image) as first, Session(machine, image) as second:
        one, two = first.generate([3, 1], max_tokens=3), second.generate([4], max_tokens=3)
        assert [*zip(one, two, strict=True)] == [*zip(expected([3, 1], 3), expected([4], 3), strict=True)]
        with pytest.raises(DeviceError, match="^a free KV slot was wanted; all 2 are taken"):
            Session(machine, image)
    assert Session(machine, image).slot == 0
