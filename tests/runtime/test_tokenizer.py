"""Tokenizers: built from a file's data, loaded from the image's text, streamed without broken characters."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.errors import ModelFileError
from compiler.frontends.load import load_model
from compiler.source import TokenizerSource
from compiler.tokenizer_json import SPLITS, build, image_text
from runtime.evaluation import EVALUATION_TEXT
from runtime.fetch import FetchError, fetch
from runtime.tokenizer import Tokenizer, TokenizerError
from tests.models.random_gguf import CHAT_TEMPLATE, write_random_model


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> TokenizerSource:
    path = write_random_model(tmp_path_factory.mktemp("tokenizer") / "random.gguf", layers=1).path
    tokenizer = load_model(path).tokenizer
    assert tokenizer is not None
    return tokenizer


@pytest.fixture(scope="module")
def tokenizer(source: TokenizerSource) -> Tokenizer:
    return Tokenizer(image_text(source, CHAT_TEMPLATE))


def spellings(tokenizer: Tokenizer, text: str, special: bool = True) -> list[str]:
    return [tokenizer.token(index) for index in tokenizer.encode(text, special)]


def test_words_become_merged_tokens(tokenizer: Tokenizer) -> None:
    assert len(tokenizer) == 413
    assert spellings(tokenizer, " the rows") == ["Ġthe", "Ġrows"]
    assert tokenizer.bos == 1 and tokenizer.eos == (2,) and not tokenizer.add_bos


def test_control_tokens_are_one_token_only_when_asked(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("<|im_start|>") == [1]
    typed = tokenizer.encode("<|im_start|>", special=False)
    assert 1 not in typed and tokenizer.decode(typed) == "<|im_start|>"
    assert tokenizer.decode([1, *typed, 2]) == "<|im_start|>"
    assert tokenizer.decode([1, *typed, 2], special=True) == "<|im_start|><|im_start|><|im_end|>"


def test_bos_is_added_once(source: TokenizerSource) -> None:
    tokenizer = Tokenizer(image_text(replace(source, add_bos=True), None))
    assert tokenizer.encode("<|im_start|>x") == tokenizer.encode("x") and tokenizer.encode("x")[0] == 1
    assert 1 not in tokenizer.encode("x", special=False)


@settings(max_examples=60, deadline=None)
@given(st.text())
def test_any_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text, special=False)
    assert tokenizer.decode(ids) == text
    assert tokenizer._tokenizer.decode(ids, skip_special_tokens=False) == text


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 412)))
def test_any_tokens_stream_like_the_bytes_they_are(tokenizer: Tokenizer, ids: list[int]) -> None:
    stream = tokenizer.stream(special=True)
    pieces = [stream.push(index) for index in ids] + [stream.finish()]
    whole = b"".join(tokenizer.token_bytes(index) for index in ids)
    assert "".join(pieces) == whole.decode("utf-8", "replace")


def test_unfinished_characters_are_held_back(tokenizer: Tokenizer) -> None:
    ids = [tokenizer.encode(chr(0x1F642), special=False)][0]
    assert len(ids) == 4
    stream = tokenizer.stream()
    assert [stream.push(index) for index in ids] == ["", "", "", "🙂"] and stream.finish() == ""
    stream = tokenizer.stream()
    assert [stream.push(index) for index in ids[:2]] == ["", ""] and stream.finish() == "\ufffd"


#: How the families cut the same text; digits and spaces tell them apart.
CUTS = {
    "gpt-2": ["it", "'s", " 2024", "  ", " x", "!\n"],
    "smollm": ["it", "'s", " ", "2", "0", "2", "4", "  ", " x", "!\n"],
    "llama-bpe": ["it", "'s", " ", "202", "4", "  ", " x", "!\n"],
    "qwen2": ["it", "'s", " ", "2", "0", "2", "4", "  ", " x", "!\n"],
}


@pytest.mark.parametrize("rule", SPLITS)
def test_splitting_rules(source: TokenizerSource, rule: str) -> None:
    tokenizer = Tokenizer(image_text(replace(source, split=rule), None))
    cuts = tokenizer._tokenizer.pre_tokenizer.pre_tokenize_str("it's 2024   x!\n")
    words = [bytes(tokenizer._byte_of[char] for char in word).decode() for word, _ in cuts]
    families = [family for family in CUTS if SPLITS[family] == SPLITS[rule]]
    wanted = CUTS[families[0]]
    if families[0] in ("gpt-2", "smollm"):  # GPT-2's own pattern keeps a line end apart
        wanted = [*wanted[:-1], "!", "\n"]
    assert words == wanted


BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
PIECES = ["<unk>", "<s>", "</s>", *BYTES, "▁", "a", "b", "ab", "▁a", "▁ab"]


def sentencepiece() -> TokenizerSource:
    types = np.array([2, 3, 3] + [6] * 256 + [1] * (len(PIECES) - 259), np.int32)
    scores = np.zeros(len(PIECES), np.float32)
    scores[-3:] = [-2, -1, -3]  # "▁a" before "ab"
    return TokenizerSource(
        kind="spm", split="default", tokens=PIECES, types=types, scores=scores,
        bos_id=1, eos_id=2, unknown_id=0, end_ids=(2,), add_bos=True, add_space_prefix=True,
    )  # fmt: skip


def test_sentencepiece_merges_best_score_first_and_falls_back_to_bytes() -> None:
    tokenizer = Tokenizer(image_text(sentencepiece(), None))
    assert spellings(tokenizer, "ab") == ["<s>", "▁ab"]
    assert spellings(tokenizer, "bab ab") == ["<s>", "▁", "b", "ab", "▁ab"]
    assert spellings(tokenizer, "é") == ["<s>", "▁", "<0xC3>", "<0xA9>"]
    for text in ("ab é 🙂  a", " a", ""):
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert tokenizer._tokenizer.decode(tokenizer.encode(text)) == text


REFUSED = {
    "rule": (
        {"split": "tekken"},
        f"wanted a tokenizer that cuts words by one of the rules {', '.join(sorted(SPLITS))}, "
        "found 'tekken'; "
        "use a model with one of these tokenizers",
    ),
    "merge": (
        {"merges": ["a b", "abc"]},
        "wanted two tokens in every merge, found 'abc' as merge 1; convert the model again",
    ),
    "twice": (
        {"tokens": ["a", "b", "a"]},
        "wanted every token once, found 'a' as 0 and 2; convert the model again",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_data(source: TokenizerSource, name: str) -> None:
    changes, text = REFUSED[name]
    with pytest.raises(ModelFileError, match=f"^{re.escape(text)}$"):
        build(replace(source, **changes))


def test_refused_images(tokenizer: Tokenizer) -> None:
    with pytest.raises(
        TokenizerError, match=r"^a tokenizer was wanted; this image has none: give token ids, or "
    ):
        Tokenizer({})
    with pytest.raises(TokenizerError, match=r"^a tokenizer was wanted; the image's does not load \("):
        Tokenizer({"tokenizer": "{}"})
    with pytest.raises(TokenizerError, match=r"^a token id from 0 to 412 was wanted, 413 came$"):
        tokenizer.decode([413])


@pytest.mark.model
def test_a_real_tokenizer() -> None:
    try:
        model = load_model(fetch("smollm2-135m"))
    except FetchError as error:
        pytest.skip(str(error))
    tokenizer = Tokenizer(image_text(model.tokenizer, model.chat_template))
    spelled = ["Hello", "Ġworld", ",", "Ġit", "'s", "Ġ", "2", "0", "2", "4", "!"]
    assert spellings(tokenizer, "Hello world, it's 2024!") == spelled
    text = EVALUATION_TEXT.read_text()
    ids = tokenizer.encode(text)
    assert len(ids) > 1100 and tokenizer.decode(ids) == text
