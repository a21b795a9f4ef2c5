"""The server, held to the real `openai` client and to clients that misbehave."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import openai
import pytest
from openai import OpenAI
from typer.testing import CliRunner

import wordline
from compiler.compile import compile_model
from hw.config import preset
from hw.errors import WordlineError
from hw.image import Image, save
from runtime.device import Device
from runtime.engine import Engine
from runtime.sampling import Sampling
from runtime.server.app import Service
from runtime.server.model import ServedModel
from runtime.server.run import server as make_server
from runtime.server.settings import Settings
from runtime.session import Session
from runtime.tokenizer import Tokenizer
from runtime.transport import Command, DeviceError
from tests.models.random_gguf import write_random_model

CONTEXT, SLOTS = 160, 4


def compiled(folder: Path, seed: int = 0) -> Image:
    path = write_random_model(folder / f"random{seed}.gguf", layers=1, seed=seed).path
    return compile_model(path, preset("tiny"), context=CONTEXT, slots=SLOTS, effort=1, checked=False)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return compiled(tmp_path_factory.mktemp("server"))


class Valve:
    """A transport that can be slowed down, and broken."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.delay = 0.0
        self.failures = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def submit(self, command: Command) -> bool:
        sleep(self.delay)
        if self.failures:
            self.failures -= 1
            raise DeviceError("the link is down")
        return self.inner.submit(command)


class Running:
    """A server on a free port, on a thread."""

    def __init__(self, image: Image, settings: Settings, path: Path | None) -> None:
        self.device = Device.open("model:", image.config)
        self.valve = self.device.transport = Valve(self.device.transport)
        self.engine = Engine(self.device, image, queue=settings.queue)
        model = ServedModel(image, "tiny")
        self.service = Service(self.engine, model, settings, path)
        self.server = make_server(self.service, log_level="error")
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        until(lambda: self.server.started)
        self.port = self.server.servers[0].sockets[0].getsockname()[1]
        self.client = OpenAI(base_url=f"http://127.0.0.1:{self.port}/v1", api_key=settings.api_key or "none",
                             max_retries=0, timeout=20)

    def idle(self) -> None:
        """Wait until nothing runs; fails when something stays."""
        until(lambda: self.engine.active == self.engine.queued == 0)

    def close(self) -> None:
        self.client.close()
        self.server.should_exit = True
        self.thread.join(20)
        assert not self.thread.is_alive()
        self.device.close()

    def http(self, method: str, path: str, body: bytes | str | dict | None = None,
             headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """One request over a plain socket."""
        data = json.dumps(body).encode() if isinstance(body, dict) else body.encode() if isinstance(body, str) else body
        sent = {"Host": f"127.0.0.1:{self.port}", "Connection": "close"}
        if data is not None:
            sent |= {"Content-Type": "application/json", "Content-Length": str(len(data))}
        sent |= headers or {}
        head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in sent.items()) + "\r\n"
        with self.connect() as link:
            link.sendall(head.encode("latin-1") + (data or b""))
            return answer(link)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def post_stream(self, body: dict[str, Any], path: str = "/v1/completions") -> socket.socket:
        """A connection on which a stream was asked for."""
        link, data = self.connect(), json.dumps({"stream": True, **body}).encode()
        link.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
        return link


def until(condition, seconds: float = 10) -> None:
    end = monotonic() + seconds
    while not condition():
        assert monotonic() < end, "waited in vain"
        sleep(0.002)


def answer(link: socket.socket) -> tuple[int, Any]:
    data = b""
    while more := link.recv(1 << 16):
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    status = int(head.split()[1])
    if b"transfer-encoding: chunked" in head.lower():
        chunks = []
        while body:
            size, _, body = body.partition(b"\r\n")
            chunks.append(body[:int(size, 16)])
            body = body[int(size, 16) + 2:]
        body = b"".join(chunks)
    return status, json.loads(body) if b"application/json" in head.lower() else body.decode()


@contextmanager
def serving(image: Image, path: Path | None = None, **settings: Any) -> Iterator[Running]:
    running = Running(image, Settings(port=0, **settings), path)
    try:
        yield running
    finally:
        running.close()


@pytest.fixture(scope="module")
def shared(image: Image) -> Iterator[Running]:
    with serving(image) as running:
        yield running


@pytest.fixture
def running(shared: Running) -> Iterator[Running]:
    """The shared server; nothing may be left running by a test."""
    yield shared
    shared.valve.delay = 0.0
    shared.idle()


@pytest.fixture
def client(running: Running) -> OpenAI:
    return running.client


@pytest.fixture(scope="module")
def tokenizer(image: Image) -> Tokenizer:
    return Tokenizer(image.text)


def alone(image: Image, prompt: list[int], count: int, sampling: Sampling | None = None,
          stop: tuple[int, ...] = ()) -> list[int]:
    with Device.open("model:", image.config) as fresh:
        fresh.load(image)
        with Session(fresh, image) as session:
            return list(session.generate(prompt, sampling or Sampling(), count, stop))


HELLO = [{"role": "user", "content": "the rows"}]
GREEDY: dict[str, Any] = {"model": "tiny", "temperature": 0}


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


# What is refused.

@pytest.mark.parametrize("body, status, param, message", [
    ("{", 400, None, r"a JSON object was wanted; the body is no JSON: .*"),
    ("", 400, None, r"a JSON object was wanted; the body is no JSON: .*"),
    (b"\xff\xfe{}", 400, None, r"a JSON object was wanted; the body is no JSON: .*"),
    ("[" * 50_000, 400, None, r"a JSON object was wanted; the body is no JSON: .*"),
    ("[1]", 400, None, r"a JSON object was wanted; got \[1\]"),
    ({}, 400, "prompt", "prompt: Field required; it is missing"),
    ({"prompt": 5}, 400, "prompt", "prompt: a text, token ids, or a list of either was wanted; got 5"),
    ({"prompt": []}, 400, "prompt", r"prompt: a text, token ids, or a list of either was wanted; got \[\]"),
    ({"prompt": [True]}, 400, "prompt", r"prompt: a text, token ids, .* was wanted; got \[True\]"),
    ({"prompt": ""}, 400, None, "a prompt of at least one token was wanted; got none"),
    ({"prompt": [413]}, 400, None, "a token id from 0 to 412 was wanted; got 413"),
    ({"prompt": [-1]}, 400, None, "a token id from 0 to 412 was wanted; got -1"),
    ({"prompt": "x", "temperature": "hot"}, 400, "temperature",
     "temperature: Input should be a valid number; got 'hot'"),
    ({"prompt": "x", "temperature": -1}, 400, "temperature", "temperature must be a number from 0 to 100; got -1.0"),
    ('{"prompt": "x", "temperature": NaN}', 400, "temperature", "temperature: Input should be a finite .*; got nan"),
    ({"prompt": "x", "top_p": 0}, 400, "top_p", "top_p must be a number above 0, up to 1; got 0.0"),
    ({"prompt": "x", "max_tokens": "5"}, 400, "max_tokens", "max_tokens: Input should be a valid integer; got '5'"),
    ({"prompt": "x", "max_tokens": -1}, 400, "max_tokens", "max_tokens: Input should be greater than .* 0; got -1"),
    ({"prompt": "x", "max_tokens": 10**30}, 400, "max_tokens", "this model's context is 160 tokens; .*"),
    ({"prompt": "x", "n": 0}, 400, "n", "n: Input should be greater than or equal to 1; got 0"),
    ({"prompt": "x", "n": 17}, 400, "n", "at most 16 sequences a request were wanted; 1 prompts with n = 17 came: "
                                        "split the request"),
    ({"prompt": "x", "stop": [""]}, 400, "stop", r"stop: a text, or up to 16 texts, none of them empty, were wanted; "
                                                 r"got \[''\]"),
    ({"prompt": "x", "logprobs": 99}, 400, "logprobs", "logprobs: Input should be less than or equal to 20; got 99"),
    ({"prompt": "x", "logit_bias": {"a": 1}}, 400, "logit_bias", "logit_bias: token ids were wanted as keys; got 'a'"),
    ({"prompt": "x", "logit_bias": {"999": 1}}, 400, None, "a token id from 0 to 412 was wanted; got 999"),
    ({"prompt": "x", "suffix": "y"}, 400, "suffix", "suffix is not supported by this server; got 'y': leave it out"),
    ({"prompt": "x" * 5000}, 400, None, "this model's context is 160 tokens; the prompt has .*: shorten it, .*"),
    ({"prompt": list(range(200))}, 400, None, "this model's context is 160 tokens; the prompt has 200: shorten it, .*"),
    ({"prompt": "x", "max_tokens": 160}, 400, "max_tokens", "this model's context is 160 tokens; 1 of the prompt and "
     "160 of the reply were asked for: shorten the prompt, or ask for 159 at most"),
    ('{"prompt": "\\ud800"}', 400, None, ".*"),
    ({"prompt": "x", "model": "gpt-5"}, 404, "model", "model 'gpt-5' does not exist; this server has 'tiny'"),
    ({"prompt": "x", "grammar": "start: nothing"}, 400, None, "a grammar was wanted; this one cannot be used: .*"),
    ({"prompt": "x", "json_schema": {"type": "nonsense"}}, 400, None, "a grammar was wanted; .*: Invalid type: .*"),
    ({"prompt": "x", "json_schema": {}, "grammar": 'start: "x"'}, 400, "response_format",
     "one rule for the reply's form was wanted; got 2: .*"),
    ({"prompt": "x", "structured_outputs": {}}, 400, "structured_outputs", "structured_outputs: one of .*; got 0"),
    ({"prompt": "x", "response_format": {"type": "json_schema"}}, 400, "response_format.json_schema", ".*missing"),
])
def test_completions_that_are_refused(running, body, status, param, message):
    got, said = running.http("POST", "/v1/completions", body)
    assert got == status and set(said["error"]) == {"message", "type", "param", "code"}
    assert re.fullmatch(message, said["error"]["message"], re.S) and said["error"]["param"] == param


@pytest.mark.parametrize("body, param, message", [
    ({"messages": []}, "messages", "messages: List should have at least 1 item .*"),
    ({"messages": "hi"}, "messages", "messages: Input should be a valid (list|array); got 'hi'"),
    ({"messages": [{"role": "user"}]}, "messages.0.content", "messages.0.content: Field required; it is missing"),
    ({"messages": [{"role": "user", "content": None}]}, "messages.0.content", ".*a list of text parts, was wanted.*"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
     "messages.0.content", "messages.0.content: parts of type 'text' were wanted; this model reads nothing else; .*"),
    ({"messages": HELLO, "tools": [{"type": "function"}]}, "tools", "tools is not supported by this server; .*"),
    ({"messages": HELLO, "max_completion_tokens": 0}, "max_completion_tokens", ".*greater than or equal to 1; got 0"),
    ({"messages": HELLO, "top_logprobs": 21, "logprobs": True}, "top_logprobs", ".*less than or equal to 20; got 21"),
])
def test_chats_that_are_refused(running, body, param, message):
    status, said = running.http("POST", "/v1/chat/completions", body)
    assert status == 400 and said["error"]["param"] == param
    assert re.fullmatch(message, said["error"]["message"], re.S)


def test_refusals_are_the_clients_own_exceptions(client):
    with pytest.raises(openai.NotFoundError, match="does not exist; this server has 'tiny'"):
        client.chat.completions.create(model="other", messages=HELLO)
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=100_000)
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "max_tokens")
    with pytest.raises(openai.NotFoundError, match="'/v1/embeddings' does not exist; there are "):
        client.embeddings.create(model="tiny", input="x")


def test_other_ways_to_ask_wrongly(running):
    assert running.http("GET", "/v1/completions")[0] == 405
    assert running.http("GET", "/nothing")[1]["error"]["type"] == "not_found_error"
    form = {"Content-Type": "text/plain"}
    status, said = running.http("POST", "/v1/completions", "{}", form)
    assert status == 415 and said["error"]["code"] == "content_type"
    status, said = running.http("GET", "/health", headers={"Host": "evil.example"})
    assert status == 403 and said["error"]["code"] == "host"
    with running.connect() as link:
        link.sendall(b"no HTTP at all\r\n\r\n")
        assert link.recv(100).startswith(b"HTTP/1.1 400")


def test_what_is_ignored_is_said(client):
    raw = client.completions.with_raw_response.create(
        model="tiny", prompt="x", max_tokens=1, extra_body={"temprature": 1, "mirostat": 2, "bad\r\nname": 1})
    assert raw.headers["x-wordline-ignored"] == "mirostat, temprature"


def test_bodies_are_limited(image):
    with serving(image, body_bytes=1000, body_seconds=0.2) as running:
        status, said = running.http("POST", "/v1/completions", {"prompt": "x" * 1000})
        assert status == 413 and said["error"]["code"] == "body_too_large"
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        with running.connect() as link:
            link.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + b"190\r\n" + b"x" * 400 + b"\r\n")
            link.sendall((b"190\r\n" + b"x" * 400 + b"\r\n") * 3)
            assert answer(link)[0] == 413
        with running.connect() as link:
            link.sendall(head + b"Content-Length: 500\r\n\r\n{")
            assert answer(link)[0] == 408
        assert running.http("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1})[0] == 200


def test_keys(image):
    with serving(image, api_key="right") as running:
        assert running.client.models.list().data[0].id == "tiny"
        with pytest.raises(openai.AuthenticationError, match="an API key was wanted; another key came"):
            running.client.with_options(api_key="wrong").models.list()
        assert running.http("GET", "/health")[0] == running.http("GET", "/")[0] == 200
        for path in ("/v1/models", "/metrics", "/device", "/nothing"):
            assert running.http("GET", path)[0] == 401
        assert running.http("POST", "/reload", "{}")[0] == 401


@pytest.mark.parametrize("settings, message", [
    ({"host": "0.0.0.0"}, "an API key is needed to serve other machines on '0.0.0.0': give --api-key, or --open-access "
                          "to let anyone in, or listen on 127.0.0.1"),
    ({"api_key": " "}, "an API key of at least one character was wanted; got an empty one: leave it out, or give a "
                       "long random text"),
    ({"queue": 0}, "queue must be above 0; got 0"),
])
def test_settings_that_are_refused(settings, message):
    with pytest.raises(WordlineError, match=f"^{re.escape(message)}$"):
        Settings(**settings)


# Clients that misbehave, and what happens meanwhile.

ENDLESS = {"prompt": "the", "max_tokens": 150, "ignore_eos": True}


@pytest.mark.parametrize("way", ["closed", "reset", "half closed"])
@pytest.mark.parametrize("streamed", [True, False])
def test_a_client_that_leaves_frees_its_slot(running, way, streamed):
    running.valve.delay = 0.01
    link = running.post_stream({**ENDLESS, "stream": streamed})
    until(lambda: running.engine.active == 1)
    made = running.engine.stats.generated_tokens
    if way == "half closed":
        link.shutdown(socket.SHUT_WR)
    elif way == "reset":
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        link.close()
    else:
        link.close()
    running.idle()
    assert running.engine.stats.generated_tokens < made + 60
    link.close()


def test_many_that_leave_at_once(running):
    running.valve.delay = 0.005
    links = [running.post_stream({**ENDLESS, "n": 2}) for _ in range(30)]
    until(lambda: running.engine.queued >= 50)
    threads = [threading.Thread(target=link.close) for link in links]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    running.idle()
    assert all(slot.job is None for slot in running.engine.slots())
    assert running.client.completions.create(prompt="x", max_tokens=2, **GREEDY).usage.completion_tokens == 2


def test_a_reader_that_does_not_read_is_let_go(image):
    with serving(image, write_seconds=0.3) as running, socket.socket() as link:
        running.server.servers[0].sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        link.connect(("127.0.0.1", running.port))
        body = json.dumps({**ENDLESS, "prompt": [1], "stream": True, "n": 16, "logprobs": 20}).encode()
        link.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     b"Content-Length: %d\r\n\r\n" % len(body) + body)
        until(lambda: running.engine.stats.commands > 100)
        until(lambda: not running.server.server_state.connections, 20)
        running.idle()
        assert running.client.completions.create(prompt="x", max_tokens=2, **GREEDY).choices


def test_a_connection_that_says_nothing_is_let_go(image, monkeypatch):
    monkeypatch.setattr("runtime.server.run.HEADER_SECONDS", 0.1)
    with serving(image) as running, running.connect() as link:
        link.sendall(b"GET /health HTT")
        assert link.recv(10) == b""


def test_a_queue_that_is_full(image):
    with serving(image, queue=2) as running:
        running.valve.delay = 0.02
        links = [running.post_stream(ENDLESS) for _ in range(SLOTS + 2)]
        until(lambda: (running.engine.active, running.engine.queued) == (SLOTS, 2))
        with pytest.raises(openai.RateLimitError, match="a place in the queue was wanted; 2 of 2 are taken"):
            running.client.completions.create(prompt="x", **GREEDY)
        for link in links:
            link.close()
        running.idle()


def test_a_request_that_takes_too_long(image):
    with serving(image, request_seconds=0.2) as running:
        running.valve.delay = 0.02
        with pytest.raises(openai.InternalServerError, match="504.*the sequence was to end in time"):
            running.client.completions.create(prompt="x", max_tokens=100, extra_body={"ignore_eos": True}, **GREEDY)
        stream = running.client.completions.create(prompt="x", max_tokens=100, stream=True,
                                                   extra_body={"ignore_eos": True}, **GREEDY)
        with pytest.raises(openai.APIError, match="the sequence was to end in time"):
            list(stream)


def test_silence_is_filled(image):
    with serving(image, keep_alive_seconds=0.05) as running:
        running.valve.delay = 0.3
        with running.post_stream({"prompt": "x", "max_tokens": 1}) as link:
            data = b""
            while b"[DONE]" not in data:
                data += link.recv(1000)
        assert b": still working\n\n" in data


def test_a_device_that_fails(running):
    before = running.engine.stats.resets
    running.valve.failures = 1
    assert running.client.completions.create(prompt="x", max_tokens=3, **GREEDY).usage.completion_tokens == 3
    running.valve.failures = 2
    with pytest.raises(openai.InternalServerError, match="the device failed under this sequence 2 times .the link is"):
        running.client.completions.create(prompt="x", **GREEDY)
    assert running.client.completions.create(prompt="x", max_tokens=3, **GREEDY).usage.completion_tokens == 3
    assert running.http("GET", "/health") == (200, {"status": "ok", "active": 0, "queued": 0})
    assert running.engine.stats.resets == before + 3


def test_a_device_that_is_lost(image):
    with serving(image) as running:
        running.valve.failures = 1
        running.valve.reset = broken
        with pytest.raises(openai.InternalServerError):
            running.client.completions.create(prompt="x", **GREEDY)
        until(lambda: running.engine.failure is not None)
        status, said = running.http("GET", "/health")
        assert status == 503 and said["reason"].endswith("(no answer): restart the server")
        with pytest.raises(openai.InternalServerError, match="503"):
            running.client.completions.create(prompt="x", **GREEDY)


def broken() -> None:
    raise DeviceError("no answer")


def test_an_image_that_is_replaced(image, tmp_path):
    path, prompt = tmp_path / "tiny.wl", [5, 6, 7]
    save(image, path)
    other = compiled(tmp_path, seed=1)
    with serving(image, path) as running:
        def text() -> str:
            return running.client.completions.create(model="tiny", prompt=prompt, max_tokens=9,
                                                     temperature=0).choices[0].text

        before = text()
        path.write_bytes(b"damaged")
        assert text() == before
        assert "the file has changed" in running.http("GET", "/health")[1]["image"]
        status, said = running.http("POST", "/reload", "{}")
        assert status == 409 and re.search("damaged .*; the model that was loaded before goes on$",
                                           said["error"]["message"])
        os.remove(path)
        assert text() == before and running.http("POST", "/reload", "{}")[0] == 409
        save(other, path)
        running.valve.delay = 0.01
        link = running.post_stream({**ENDLESS, "prompt": prompt})
        until(lambda: running.engine.active == 1)
        assert running.http("POST", "/reload", "{}")[0] == 200
        link.close()
        running.valve.delay = 0
        after = text()
        assert after != before and "image" not in running.http("GET", "/health")[1]
        fresh = Tokenizer(other.text)
        assert after == fresh.decode(alone(other, prompt, 9, stop=fresh.eos))


def test_stopping_ends_what_runs(image, monkeypatch):
    monkeypatch.setattr("runtime.server.run.STOP_SECONDS", 0.2)
    running = Running(image, Settings(port=0), None)
    running.valve.delay = 0.1
    with running.post_stream(ENDLESS) as link:
        until(lambda: running.engine.active == 1)
        running.close()
        while link.recv(1000):
            pass
    assert running.engine.active == 0 and running.engine.stats.generated_tokens < 10


def test_the_command(image, tmp_path):
    save(image, tmp_path / "small.wl")
    words = [sys.executable, "-m", "wordline", "serve", str(tmp_path / "small.wl"), "--port", "0"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            lines = [process.stderr.readline() for _ in range(2)]
            found = re.search(r"serving 'small': 4 slots of 160 tokens; http://127.0.0.1:(\d+)/ shows it", lines[1])
            assert found, lines
            with OpenAI(base_url=f"http://127.0.0.1:{found[1]}/v1", api_key="none") as client:
                assert client.chat.completions.create(model="small", messages=HELLO, max_tokens=3).choices
            assert refusal(*words[3:], "--port", found[1]).startswith(
                f"a free port was wanted; port {found[1]} of '127.0.0.1' cannot be listened on (")
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130 and process.stderr.read() == "\nwordline: interrupted\n"
        finally:
            process.kill()


def refusal(*words: str) -> str:
    result = CliRunner().invoke(wordline.app, words)
    assert result.exit_code == 2
    return result.stderr.removeprefix("wordline: ")


@pytest.mark.parametrize("words, message", [
    (["missing.wl"], "missing.wl: no such file; make an image with `wordline compile`\n"),
    (["x.wl", "--host", "0.0.0.0"], "an API key is needed to serve other machines on '0.0.0.0': .*\n"),
    (["x.wl", "--request-seconds", "0"], "request_seconds must be above 0; got 0.0\n"),
])
def test_commands_that_are_refused(words, message):
    assert re.fullmatch(message, refusal("serve", *words, "--port", "0"))


# What can be seen.

def test_metrics_can_be_read_and_add_up(running):
    parser = pytest.importorskip("prometheus_client.parser")

    def value(name: str, **labels: str) -> float:
        _, text = running.http("GET", "/metrics")
        return sum(s.value for family in parser.text_string_to_metric_families(text) for s in family.samples
                   if s.name == name and labels.items() <= s.labels.items())

    before = {name: value(f"wordline_{name}_total") for name in ("generated_tokens", "prompt_tokens", "commands")}
    asked = value("wordline_requests_total", path="/v1/completions", status="200")
    running.client.completions.create(model="tiny", prompt=[300, 301, 302, 303], max_tokens=5,
                                      extra_body={"ignore_eos": True})
    running.idle()
    assert value("wordline_generated_tokens_total") == before["generated_tokens"] + 5
    assert value("wordline_prompt_tokens_total") == before["prompt_tokens"] + 4
    assert value("wordline_commands_total") == before["commands"] + 8
    assert value("wordline_requests_total", path="/v1/completions", status="200") == asked + 1
    assert value("wordline_slots") == SLOTS and value("wordline_slots_active") == 0
    assert value("wordline_time_to_first_token_seconds_count") > 0 and value("process_resident_memory_bytes") > 0


def test_the_device_can_be_looked_at(running):
    running.valve.delay = 0.01
    link = running.post_stream(ENDLESS)
    until(lambda: running.engine.stats.generated_tokens and running.engine.active)
    status, seen = running.http("GET", "/device")
    assert status == 200 and seen["device"] == "model:" and seen["tiles"] == 4 and seen["context"] == CONTEXT
    assert [slot["slot"] for slot in seen["slots"]] == list(range(SLOTS))
    assert sum(slot["job"] is not None for slot in seen["slots"]) == 1
    assert set(seen["rates"]) >= {"generated_per_second", "busy", "share_of_row_bound"}
    link.close()


def test_the_page_is_one_file_without_strangers(running):
    status, page = running.http("GET", "/")
    assert status == 200 and "<title>Wordline</title>" in page
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page)
