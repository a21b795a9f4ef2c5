"""`vllm serve` and `wordline serve` on the same image: the same answers to the same client."""

import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from socket import create_server
from time import monotonic, sleep

import openai
import pytest
from openai import OpenAI

from compiler.compile import compile_model
from hw.config import preset
from hw.image import load, save
from runtime.vllm.folder import write_folder
from tests.models.random_gguf import write_random_model

pytestmark = [pytest.mark.vllm,
              pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: make vllm")]

SLOTS, CONTEXT = 3, 256


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("serve")
    model = write_random_model(path / "random.gguf", layers=2).path
    save(compile_model(model, preset("tiny"), context=CONTEXT, slots=SLOTS, pairs=True, effort=1, checked=False),
         path / "tiny.wl")
    write_folder(load(path / "tiny.wl"), path / "tiny.wl", path / "tiny")
    return path / "tiny.wl"


def free_port() -> int:
    with create_server(("127.0.0.1", 0)) as link:
        return link.getsockname()[1]


@pytest.fixture(scope="module")
def theirs(image) -> Iterator[OpenAI]:
    port, log = free_port(), image.with_name("vllm.log")
    with log.open("w") as stream, subprocess.Popen(
            [Path(sys.executable).with_name("vllm"), "serve", image.with_name("tiny"), "--port", str(port), "--host",
             "127.0.0.1", "--served-model-name", "tiny"], stdout=stream, stderr=subprocess.STDOUT) as process:
        try:
            end = monotonic() + 240
            while b"200" not in answer(port):
                assert process.poll() is None and monotonic() < end, log.read_text()[-5000:]
                sleep(0.5)
            with OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0) as client:
                yield client
            assert process.poll() is None and "Traceback" not in log.read_text()
        finally:
            process.terminate()
            process.wait(60)


def answer(port: int) -> bytes:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as reply:
            return str(reply.status).encode()
    except OSError:
        return b""


@pytest.fixture(scope="module")
def ours(image) -> Iterator[OpenAI]:
    with subprocess.Popen([sys.executable, "-m", "wordline", "serve", image, "--port", "0"], stderr=subprocess.PIPE,
                          text=True, cwd=Path(__file__).parents[3]) as process:
        try:
            assert process.stderr is not None
            said = [process.stderr.readline() for _ in range(2)][1]
            found = re.search(r"http://127.0.0.1:(\d+)/v1", said)
            assert found, said
            with OpenAI(base_url=f"http://127.0.0.1:{found[1]}/v1", api_key="none") as client:
                yield client
        finally:
            process.kill()


def metric(client: OpenAI, name: str) -> float:
    """A number of vLLM's own report."""
    with urllib.request.urlopen(str(client.base_url).replace("/v1/", "/metrics")) as reply:
        return float(re.findall(rf"^{name}{{.*}} (\S+)$", reply.read().decode(), re.MULTILINE)[0])


def completion(client: OpenAI, **fields) -> list:
    done = client.completions.create(model="tiny", **{"prompt": "the memory holds", "max_tokens": 24, **fields})
    # At the end of a text our server gives U+FFFD for bytes that are no whole character, vLLM nothing.
    return [(c.text.rstrip("\ufffd"), c.finish_reason) for c in done.choices]


@pytest.mark.parametrize("fields", [
    {"temperature": 0}, {"temperature": 0, "max_tokens": 100}, {"seed": 1}, {"seed": 2, "temperature": 1.7},
    {"seed": 3, "top_p": 0.6}, {"seed": 4, "extra_body": {"top_k": 3}}, {"seed": 5, "extra_body": {"min_p": 0.3}},
    {"seed": 6, "n": 3}, {"seed": 7, "presence_penalty": 1.0, "frequency_penalty": -0.5},
    {"seed": 8, "logit_bias": {"300": 4.5, "12": -100}}, {"temperature": 0, "stop": ["a", "e"]},
    {"temperature": 0, "extra_body": {"ignore_eos": True, "stop_token_ids": [300]}},
    {"temperature": 0, "prompt": [[5, 6, 7], [5, 6, 8]]}, {"seed": 9, "prompt": "a word line opens a row, " * 9},
    {"seed": 10, "extra_body": {"structured_outputs": {"choice": ["rows", "row", "line"]}}},
    {"seed": 11, "extra_body": {"structured_outputs": {"regex": "[ab]{3}-[0-9]+;"}}},
], ids=str)
def test_completions(theirs, ours, fields):
    assert completion(theirs, **fields) == completion(ours, **fields)


@pytest.mark.parametrize("fields", [{"temperature": 0}, {"seed": 1}, {"seed": 2, "temperature": 1.5, "top_p": 0.8}],
                         ids=str)
def test_conversations(theirs, ours, fields):
    messages = [{"role": "system", "content": "you are a memory"}, {"role": "user", "content": "what is in a row?"}]
    texts = []
    for client in (theirs, ours):
        stream = client.chat.completions.create(model="tiny", messages=messages, stream=True, max_tokens=30, **fields)
        texts.append("".join(chunk.choices[0].delta.content or "" for chunk in stream).rstrip("\ufffd"))
    assert texts[0] == texts[1] != ""


def test_logprobs(theirs, ours):
    def places(client: OpenAI) -> list:
        done = client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "hi"}], max_tokens=9,
                                              seed=3, logprobs=True, top_logprobs=4)
        assert done.choices[0].logprobs is not None and done.choices[0].logprobs.content is not None
        return [(t.logprob, [top.logprob for top in t.top_logprobs]) for t in done.choices[0].logprobs.content]

    for (logprob, best), (wanted, most) in zip(places(theirs), places(ours), strict=True):
        assert logprob == pytest.approx(wanted, abs=1e-5)
        # vLLM puts the token itself among the most probable ones, whether it is one of them or not.
        assert sorted(best, reverse=True)[:3] == pytest.approx(most[:3], abs=1e-5)


def test_refusals(theirs):
    with pytest.raises(openai.BadRequestError, match="sampling parameters that a Wordline device can honour were "
                                                     "wanted; got min_tokens=3: leave it out"):
        completion(theirs, extra_body={"min_tokens": 3})
    with pytest.raises(openai.BadRequestError, match="prompt_logprobs=0: leave it out"):
        completion(theirs, echo=True, logprobs=0)
    with pytest.raises(openai.BadRequestError, match="max_tokens=2560 cannot be greater than max_model_len=256"):
        completion(theirs, max_tokens=10 * CONTEXT)


def test_more_requests_than_slots_and_clients_that_leave(theirs, ours):
    before = metric(theirs, "vllm:generation_tokens_total")
    requests = [{"seed": n, "max_tokens": 40 + 7 * n, "prompt": f"the memory holds {n % 4}, and " * (1 + n % 5)}
                for n in range(4 * SLOTS)]

    def leave(number: int) -> None:
        stream = theirs.completions.create(model="tiny", prompt=[7, 8, number], max_tokens=CONTEXT - 3, n=8,
                                           stream=True, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()

    with ThreadPoolExecutor(5 * SLOTS) as pool:
        leaving = [pool.submit(leave, 20 + number) for number in range(SLOTS)]
        found = list(pool.map(lambda fields: completion(theirs, **fields), requests))
        for future in leaving:
            future.result()
    assert found == [completion(ours, **fields) for fields in requests]
    end = monotonic() + 20
    while metric(theirs, "vllm:num_requests_running") + metric(theirs, "vllm:num_requests_waiting"):
        assert monotonic() < end
        sleep(0.1)
    with ThreadPoolExecutor(SLOTS) as pool:  # every slot is free again
        again = list(pool.map(lambda fields: completion(theirs, **fields), requests[:SLOTS]))
    assert again == found[:SLOTS]
    run = metric(theirs, "vllm:generation_tokens_total") - before
    assert run < SLOTS * 8 * (CONTEXT - 3)  # what those who left had asked for alone
