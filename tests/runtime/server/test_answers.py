"""What the server answers, held to the real `openai` client and to what a session makes alone."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from runtime.sampling import Sampling
from tests.runtime.server.serving import CONTEXT, GREEDY, HELLO, alone


def test_models(client):
    assert [m.id for m in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "wordline"


def test_a_completion_is_what_a_session_makes(client, image, tokenizer):
    prompt = tokenizer.encode("the memory holds")
    tokens = alone(image, prompt, 12, stop=tokenizer.eos)
    done = client.completions.create(prompt="the memory holds", max_tokens=12, **GREEDY)
    assert done.choices[0].text == tokenizer.decode(tokens)
    assert done.choices[0].finish_reason == "length" and done.object == "text_completion"
    assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (len(prompt), 12)
    assert client.completions.create(prompt=prompt, max_tokens=12, **GREEDY).choices[0].text == done.choices[0].text


def test_a_chat_and_its_stream_say_the_same(client):
    whole = client.chat.completions.create(messages=HELLO, max_tokens=30, seed=5, model="tiny", logprobs=True,
                                           top_logprobs=2)
    stream = list(client.chat.completions.create(messages=HELLO, max_tokens=30, seed=5, model="tiny", stream=True,
                                                 logprobs=True, top_logprobs=2,
                                                 stream_options={"include_usage": True}))
    assert stream[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in stream[:-1]) == whole.choices[0].message.content
    assert [c.choices[0].finish_reason for c in stream[:-1] if c.choices[0].finish_reason] == [
        whole.choices[0].finish_reason]
    assert stream[-1].choices == [] and stream[-1].usage.completion_tokens == whole.usage.completion_tokens
    said = [entry for c in stream[:-1] if c.choices[0].logprobs for entry in c.choices[0].logprobs.content]
    assert said == whole.choices[0].logprobs.content and len({c.id for c in stream}) == 1


def test_logprobs(client, tokenizer):
    entries = client.chat.completions.create(messages=HELLO, max_tokens=6, logprobs=True, top_logprobs=3,
                                             **GREEDY).choices[0].logprobs.content
    for entry in entries:
        assert entry.logprob == entry.top_logprobs[0].logprob <= 0 and len(entry.top_logprobs) == 3
        assert bytes(entry.bytes).decode(errors="replace") == entry.token
    legacy = client.completions.create(prompt="the rows", max_tokens=6, logprobs=2, **GREEDY).choices[0]
    assert len(legacy.logprobs.tokens) == len(legacy.logprobs.token_logprobs) == 6
    assert legacy.logprobs.text_offset == sorted(legacy.logprobs.text_offset)


def test_the_likelihood_of_a_given_text(client, tokenizer):
    prompt = "the rows hold"
    done = client.completions.create(prompt=prompt, max_tokens=0, logprobs=1, echo=True, **GREEDY).choices[0]
    ids = tokenizer.encode(prompt)
    assert done.text == prompt and done.logprobs.tokens == [tokenizer.decode([n]) for n in ids]
    assert done.logprobs.token_logprobs[0] is None and all(p < 0 for p in done.logprobs.token_logprobs[1:])
    echoed = client.completions.create(prompt=prompt, max_tokens=3, echo=True, **GREEDY).choices[0].text
    assert echoed.startswith(prompt)


def test_choices_share_their_prompt(client):
    done = client.completions.create(prompt=list(range(50, 90)), n=4, max_tokens=3, seed=1, model="tiny")
    again = client.completions.create(prompt=list(range(50, 90)), n=4, max_tokens=3, seed=1, model="tiny")
    assert [c.text for c in done.choices] == [c.text for c in again.choices]
    assert (done.usage.prompt_tokens, again.usage.prompt_tokens_details.cached_tokens) == (40, 39)


def test_choices_and_prompts_are_numbered(client, image, tokenizer):
    done = client.completions.create(prompt=["a row", "the sum"], n=3, max_tokens=5, seed=7, model="tiny")
    assert [c.index for c in done.choices] == list(range(6))
    assert done.usage.prompt_tokens == sum(len(tokenizer.encode(t)) for t in ("a row", "the sum"))
    second = alone(image, tokenizer.encode("a row"), 5, Sampling(temperature=1.0, seed=8), tokenizer.eos)
    assert done.choices[1].text == tokenizer.decode(second)
    stream = list(client.completions.create(prompt=["a row", "the sum"], n=3, max_tokens=5, seed=7, model="tiny",
                                            stream=True))
    for n, choice in enumerate(done.choices):
        assert "".join(c.choices[0].text for c in stream if c.choices[0].index == n) == choice.text


def test_a_seed_repeats_and_its_absence_does_not(client):
    def text(**more: Any) -> str:
        return client.completions.create(model="tiny", prompt="the", max_tokens=20, **more).choices[0].text

    assert text(seed=3) == text(seed=3) != text(seed=4)
    assert len({text() for _ in range(3)}) == 3


@pytest.mark.parametrize("streamed", [False, True])
def test_stop_strings_end_the_text_and_are_not_given(client, streamed):
    whole = client.completions.create(prompt="the memory", max_tokens=40, **GREEDY).choices[0].text
    stop = whole[10:13]
    done = client.completions.create(prompt="the memory", max_tokens=40, stop=[stop, "never said"], stream=streamed,
                                     **GREEDY)
    parts = list(done) if streamed else [done]
    assert "".join(p.choices[0].text for p in parts) == whole[:whole.index(stop)]
    assert parts[-1].choices[0].finish_reason == "stop"


def test_a_context_that_is_full_ends_the_text(client):
    done = client.chat.completions.create(messages=HELLO, extra_body={"ignore_eos": True}, **GREEDY)
    assert done.choices[0].finish_reason == "length"
    assert done.usage.total_tokens == CONTEXT + 1  # the last token needs no place in the cache


def test_a_conversation_starts_where_it_left_off(client):
    first = client.chat.completions.create(messages=HELLO, max_tokens=8, **GREEDY)
    turn = [*HELLO, {"role": "assistant", "content": first.choices[0].message.content},
            {"role": "user", "content": "a sum"}]
    second = client.chat.completions.create(messages=turn, max_tokens=8, **GREEDY)
    assert second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens


SCHEMA = {"type": "object", "properties": {"rows": {"type": "integer", "maximum": 999},
                                           "kind": {"enum": ["q4", "q8"]}},
          "required": ["rows", "kind"], "additionalProperties": False}


@pytest.mark.parametrize("seed", range(4))
def test_json_that_follows_a_schema(client, seed):
    form = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA}}
    done = client.chat.completions.create(messages=HELLO, model="tiny", seed=seed, temperature=1.5, max_tokens=100,
                                          response_format=form)
    found = json.loads(done.choices[0].message.content)
    assert done.choices[0].finish_reason == "stop"
    assert set(found) == {"rows", "kind"} and found["rows"] <= 999 and found["kind"] in ("q4", "q8")


@pytest.mark.parametrize("form, pattern", [
    ({"structured_outputs": {"regex": "[ab]{3}-[0-9]+;"}}, r"[ab]{3}-[0-9]+;"),
    ({"structured_outputs": {"choice": ["yes\n", "no \"way\"", "…"]}}, r"yes\n|no \"way\"|…"),
    ({"structured_outputs": {"grammar": 'start: "x" | "y"'}}, "[xy]"),
    ({"grammar": 'root ::= [a-c] "!" [a-c]'}, "[a-c]![a-c]"),
    ({"json_schema": {"type": "boolean"}}, r"\s*(true|false)\s*"),
    ({"structured_outputs": {"json": '{"type": "null"}'}}, r"\s*null\s*"),
])
def test_text_that_follows_a_grammar(client, form, pattern):
    for seed in range(3):
        done = client.completions.create(model="tiny", prompt="the", seed=seed, max_tokens=60, extra_body=form)
        assert re.fullmatch(pattern, done.choices[0].text) and done.choices[0].finish_reason == "stop"


def test_any_json_object_begins_one(client):
    text = client.chat.completions.create(messages=HELLO, max_tokens=20, seed=1, model="tiny",
                                          response_format={"type": "json_object"}).choices[0].message.content
    assert text.lstrip().startswith("{")


def test_text_parts_and_developers(client):
    parts = [{"role": "developer", "content": "the sum"},
             {"role": "user", "content": [{"type": "text", "text": "the "}, {"type": "text", "text": "rows"}]}]
    plain = [{"role": "system", "content": "the sum"}, *HELLO]
    one, other = (client.chat.completions.create(messages=m, max_tokens=5, **GREEDY) for m in (parts, plain))
    assert one.choices[0].message.content == other.choices[0].message.content


def test_many_at_once_get_what_they_would_get_alone(client, image, tokenizer):
    def ask(n: int) -> str:
        return client.completions.create(model="tiny", prompt=[n, 6, 7], max_tokens=24, seed=n).choices[0].text

    with ThreadPoolExecutor(24) as pool:
        texts = list(pool.map(ask, range(5, 29)))
    for n in range(5, 29):
        expected = alone(image, [n, 6, 7], 24, Sampling(temperature=1.0, seed=n), tokenizer.eos)
        assert texts[n - 5] == tokenizer.decode(expected)


def test_texts_and_tokens(running, tokenizer):
    ids = tokenizer.encode("the rows<|im_end|>")
    for field in "prompt", "content":
        assert running.http("POST", "/tokenize", {field: "the rows<|im_end|>"}) == (
            200, {"tokens": ids, "count": len(ids), "max_model_len": CONTEXT})
    assert running.http("POST", "/detokenize", {"tokens": ids})[1]["prompt"] == "the rows<|im_end|>"
    for path, body, message in (
            ("/tokenize", {}, "prompt: a text was wanted; it is missing"),
            ("/tokenize", '{"prompt": "\\ud800"}', ".*"),
            ("/detokenize", {"tokens": [999]}, "a token id from 0 to 412 was wanted, 999 came"),
            ("/detokenize", {"tokens": ["x"]}, "tokens.0: Input should be a valid integer; got 'x'")):
        status, said = running.http("POST", path, body)
        assert status == 400 and re.fullmatch(message, said["error"]["message"])
