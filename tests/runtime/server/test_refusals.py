"""What the server refuses, in words that say what was wanted, what came and the mend."""

import re

import openai
import pytest

from hw.errors import WordlineError
from runtime.server.settings import Settings
from tests.runtime.server.serving import HELLO, answer, serving


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
    with serving(image, body_bytes=1000, body_seconds=1) as running:
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
    ({"queue": 0}, "queue above 0 was wanted; got 0: leave it out, or raise it"),
])
def test_settings_that_are_refused(settings, message):
    with pytest.raises(WordlineError, match=f"^{re.escape(message)}$"):
        Settings(**settings)
