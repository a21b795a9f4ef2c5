"""The whole stack, from a model file to tokens, on every device: the same words and the same bits."""

import pytest

from compiler.compile import compile_model, compile_source
from compiler.frontends.load import load_model
from hw.config import preset
from hw.timemodel import predict
from runtime.device import Device
from runtime.evaluation import EVALUATION_TEXT, evaluate
from runtime.fetch import FetchError, fetch
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


@pytest.mark.rtl
def test_cycles_are_the_predicted_ones_at_every_position(image):
    with Device.open("model:", image.config) as model, Device.open("rtl:", image.config) as rtl:
        both = Lockstep(model, rtl, image)
        for position in range(image.kv.context):
            entry = image.entry("decode", position + 1)
            values = {"token": position * 7 % image.logits[1], "position": position, "slot": 0}
            both.submit(entry, **values)
            predicted = predict(image.config, image.microcode, entry.address, [values[n] for n in entry.arguments])
            pair = both.pairs[-1]
            assert (pair.first.cycles, pair.second.cycles) == (predicted.cycles,) * 2, position
    assert len(both.pairs) == image.kv.context


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
def test_the_real_model_knows_its_words():
    """The bounds are those promised for a text of 1,000 tokens, widened for one of 200."""
    try:
        source = load_model(fetch("smollm2-135m"))
    except FetchError as error:
        pytest.skip(str(error))
    image = compile_source(source, preset("w16"), context=256)
    tokenizer = Tokenizer(image.text)
    with Device.open("model:", image.config) as device:
        device.load(image)
        with Session(device, image) as session:
            tokens = session.generate(tokenizer.encode("The capital of France is"), max_tokens=2)
            assert tokenizer.decode(tokens).startswith(" Paris")
            ids = tokenizer.encode(EVALUATION_TEXT.read_text())[:200]
            found = evaluate(session, source.shape, source.dequantized(), ids)
    assert abs(found.perplexity_change) < 0.03
    assert found.mean_kl < 0.008
    assert found.top1 > 0.94
