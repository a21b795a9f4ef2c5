"""The whole stack, from a model file to tokens, on every device: the same words and the same bits."""

import pytest

from compiler.compile import compile_model
from hw.config import preset
from runtime.device import Device
from runtime.fetch import fetch
from runtime.lockstep import Lockstep
from runtime.session import Session
from runtime.tokenizer import Tokenizer
from tests.models.random_gguf import write_random_model

TOKENS = 40
PROMPT = "what is in the array?"


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """Odd sizes on purpose: three heads, a vocabulary of 413, mixed weight formats."""
    path = write_random_model(tmp_path_factory.mktemp("stack") / "odd.gguf").path
    return compile_model(path, preset("tiny"), context=128)


@pytest.mark.rtl
def test_forty_tokens_are_the_same_bits_on_the_verilog(image):
    prompt = Tokenizer(image.text).encode(PROMPT)
    with Device.open("model:", image.config) as model, Device.open("rtl:", image.config) as rtl:
        both = Lockstep(model, rtl, image)
        with Session(both, image) as session:
            tokens = list(session.generate(prompt, max_tokens=TOKENS))
    assert len(tokens) == TOKENS
    assert len(both.pairs) == len(prompt) + TOKENS - 1
    assert all(pair.first.cycles == pair.second.cycles for pair in both.pairs)


def test_a_second_turn_is_the_same_as_one_long_prompt(image):
    prompt = Tokenizer(image.text).encode(PROMPT)
    with Device.open("model:", image.config) as device:
        device.load(image)
        with Session(device, image) as session:
            reply = list(session.generate(prompt, max_tokens=5))
            turns = list(session.generate([*prompt, *reply, *prompt], max_tokens=5))
            assert len(session.steps) == len(prompt) + 4 + 1 + len(prompt) + 4  # nothing was processed twice
        with Session(device, image) as session:
            assert list(session.generate([*prompt, *reply, *prompt], max_tokens=5)) == turns


@pytest.mark.model
def test_the_real_model_says_where_paris_is():
    image = compile_model(fetch("smollm2-135m"), preset("w16"), context=256)
    tokenizer = Tokenizer(image.text)
    with Device.open("model:", image.config) as device:
        device.load(image)
        with Session(device, image) as session:
            tokens = session.generate(tokenizer.encode("The capital of France is"), max_tokens=2)
            assert tokenizer.decode(tokens).startswith(" Paris")
