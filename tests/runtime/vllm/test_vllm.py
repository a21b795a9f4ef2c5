"""vLLM's `LLM` on the functional model: the engine's tokens, and errors instead of anything else."""

import json
import math
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.compile import compile_model
from hw.config import preset
from hw.image import Image, load, save
from runtime.device import Device
from runtime.engine import Engine
from runtime.job import Ending, Request, Token
from runtime.logits import Adjustment
from runtime.sampling import Sampling
from runtime.server.model import ServedModel
from runtime.vllm.folder import write_folder
from tests.models.random_gguf import write_random_model

pytestmark = [pytest.mark.vllm,
              pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: make vllm")]

SLOTS, CONTEXT = 3, 160
HELLO = [{"role": "user", "content": "what is in the array?"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vllm")
    model = write_random_model(path / "random.gguf", layers=1).path
    save(compile_model(model, preset("tiny"), context=CONTEXT, slots=SLOTS, pairs=True, effort=1, checked=False),
         path / "tiny.wl")
    write_folder(load(path / "tiny.wl"), path / "tiny.wl", path / "tiny-vllm")
    return path / "tiny-vllm"


@pytest.fixture(scope="module")
def image(folder) -> Image:
    return load(folder.with_name("tiny.wl"))


class Heard:
    def __init__(self) -> None:
        self.tokens: list[Token] = []
        self.reason = ""

    def token(self, token: Token) -> bool:
        self.tokens.append(token)
        return True

    def ended(self, ending: Ending) -> None:
        self.reason = ending.reason


def engine_says(image: Image, requests: list[Request]) -> list[Heard]:
    heard = [Heard() for _ in requests]
    with Device.open("model:", image.config) as device:
        engine = Engine(device, image)
        engine.submit(list(zip(requests, heard, strict=True)))
        while engine.step():
            pass
    return heard


def program(given: dict[str, Any], **environment: str) -> subprocess.CompletedProcess:
    variables = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), **environment}
    return subprocess.run([sys.executable, Path(__file__).with_name("generate.py")], input=json.dumps(given), text=True,
                          capture_output=True, timeout=300, env=variables)


def vllm_says(given: dict[str, Any], **environment: str) -> Any:
    done = program(given, **environment)
    assert done.returncode == 0, done.stderr[-5000:]
    assert "Traceback" not in done.stdout + done.stderr
    return json.loads(done.stdout.split("\nANSWER ")[1].splitlines()[0])


FIELDS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    # vLLM's parameters, the engine's
    ({"temperature": 0}, {}),
    ({"temperature": 0, "logprobs": 3}, {"logprobs": 3}),
    ({"temperature": 0.9, "seed": 7}, {"sampling": Sampling(0.9, seed=7)}),
    ({"temperature": 1.5, "top_k": 5, "seed": 1, "logprobs": 0}, {"sampling": Sampling(1.5, 5, seed=1), "logprobs": 0}),
    ({"temperature": 1.5, "top_p": 0.7, "seed": 2}, {"sampling": Sampling(1.5, top_p=0.7, seed=2)}),
    ({"temperature": 2, "min_p": 0.2, "seed": 3}, {"sampling": Sampling(2, min_p=0.2, seed=3)}),
    ({"temperature": 0, "presence_penalty": 1.5, "frequency_penalty": 0.5}, {"adjustment": Adjustment({}, 1.5, 0.5)}),
    ({"temperature": 0, "logit_bias": {5: 100.0, 9: -3}}, {"adjustment": Adjustment({5: 100.0, 9: -3.0})}),
    ({"temperature": 1, "seed": 4, "logprobs": -1}, {"sampling": Sampling(1, seed=4), "logprobs": 1 << 30}),
]

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"prompt_logprobs": 1}, "prompt_logprobs=1"),
    ({"repetition_penalty": 1.1}, "repetition_penalty=1.1"),
    ({"min_tokens": 3}, "min_tokens=3"),
    ({"bad_words": ["the"]}, "bad_words=['the']"),
    ({"allowed_token_ids": [5]}, "allowed_token_ids=[5]"),
    ({"logprob_token_ids": [5]}, "logprob_token_ids=[5]"),
    ({"extra_args": {"x": 1}}, "extra_args={'x': 1}"),
]


@pytest.fixture(scope="module")
def said(folder, image) -> tuple[dict[str, Any], list[Heard], list[dict[str, Any]]]:
    """What vLLM and the engine say to the same, more sequences than slots, most prompts in pieces."""
    random, asked, requests = np.random.default_rng(0), [], []
    for n, (params, fields) in enumerate(FIELDS * 2):
        prompt = random.integers(3, 400, (3, 40, 17)[n % 3]).tolist()
        asked.append({"prompt": prompt, "params": {"max_tokens": 20, **params}})
        requests.append(Request(tuple(prompt), max_tokens=20, stop=frozenset(image.text["eos"]), **fields))
    asked.append({"prompt": [5] * (CONTEXT - 1), "params": {"temperature": 0, "max_tokens": None}})  # full after two
    requests.append(Request((5,) * (CONTEXT - 1)))
    answer = vllm_says({"folder": str(folder), "requests": asked, "refused": [p for p, _ in REFUSED], "chat": HELLO,
                        "options": {"max_logprobs": -1}})
    return answer, engine_says(image, requests), asked


def test_the_tokens_are_the_engines(said, image):
    answer, heard, _ = said
    heard[-1].tokens.pop()  # of a full context: vLLM does not count on a token that need not be run itself
    for found, own in zip(answer["found"], heard, strict=True):
        tokens = [t for t in found["tokens"] if t not in image.text["eos"]]  # vLLM gives the end token too
        assert (tokens, found["reason"]) == ([t.index for t in own.tokens], own.reason)


def test_the_probabilities_are_the_engines(said):
    answer, heard, asked = said
    for found, own, request in zip(answer["found"], heard, asked, strict=True):
        if request["params"].get("logprobs") is None:
            assert found["logprobs"] is None
            continue
        for place, token in zip(found["logprobs"], own.tokens, strict=False):
            wanted = dict([(token.index, token.logprob), *token.top])
            assert {int(t): pytest.approx(p, abs=1e-5) for t, (p, _) in place.items()} == wanted
            assert place[str(token.index)][1] == 1 + sum(p > token.logprob for p in wanted.values()) or not token.top


def test_a_conversation_is_laid_out_as_the_server_does(said, image):
    chat = said[0]["chat"]
    model = ServedModel(image, "tiny")
    prompt = model.conversation(HELLO)
    heard, = engine_says(image, [Request(tuple(prompt), max_tokens=12, stop=frozenset(image.text["eos"]))])
    assert chat["prompt"] == prompt
    tokens = [t.index for t in heard.tokens]
    assert chat["tokens"][:len(tokens)] == tokens and chat["text"] == model.tokenizer.decode(tokens)


@pytest.mark.parametrize("number", range(len(REFUSED)), ids=[name for _, name in REFUSED])
def test_what_cannot_be_honoured_is_refused(said, number):
    assert said[0]["refused"][number] == ("sampling parameters that a Wordline device can honour were wanted; got "
                                          f"{REFUSED[number][1]}: leave it out")


def test_choices_and_grammars(folder, image):
    prompt = [40, 41, 42, 43]
    forms = [{"choice": ["yes", "no way"]}, {"regex": "[ab]{3}-[0-9]+;"}, {"json": {"type": "boolean"}}]
    asked = [{"prompt": prompt, "params": {"temperature": 1, "seed": 5, "max_tokens": 60, "structured_outputs": form}}
             for form in forms]
    asked.append({"prompt": prompt, "params": {"temperature": 1, "seed": 5, "n": 3, "max_tokens": 9}})
    found = vllm_says({"folder": str(folder), "requests": asked})["found"]
    assert found[0]["text"] in ("yes", "no way") and json.loads(found[2]["text"]) in (True, False)
    assert found[1]["text"][3] == "-" and set(found[1]["text"][:3]) <= {"a", "b"}
    heard = engine_says(image, [Request(tuple(prompt), Sampling(1, seed=5 + n), 9, frozenset(image.text["eos"]))
                                for n in range(3)])
    for choice, own in zip(found[3:], heard, strict=True):
        assert choice["tokens"][:len(own.tokens)] == [t.index for t in own.tokens]


def test_sequences_that_are_set_aside_go_on(folder):
    asked = [{"prompt": [5 + n, 6, 7] * (n + 1), "params": {"temperature": n % 2, "seed": 3, "max_tokens": 30}}
             for n in range(2 * SLOTS)]
    given = {"folder": str(folder), "requests": asked, "interrupt": [4, 11, 12, 30]}
    said = vllm_says(given, VLLM_ENABLE_V1_MULTIPROCESSING="0")
    assert said["interrupted"] == [found["tokens"] for found in said["found"]]


@pytest.mark.rtl
def test_the_verilog_says_the_same(folder, image):
    asked = [{"prompt": [40 + n] * (3 + n), "params": {"temperature": n, "seed": 5, "max_tokens": 4}} for n in (0, 1)]
    found = vllm_says({"folder": str(folder), "requests": asked,
                       "options": {"additional_config": {"wordline": {"device": "rtl:"}}}})["found"]
    heard = engine_says(image, [Request((40 + n,) * (3 + n), Sampling(n, seed=5), 4, frozenset(image.text["eos"]))
                                for n in (0, 1)])
    for choice, own in zip(found, heard, strict=True):
        assert choice["tokens"][:len(own.tokens)] == [t.index for t in own.tokens] != []


def fails(given: dict[str, Any], **environment: str) -> str:
    done = program(given, **environment)
    assert done.returncode != 0 and "ANSWER" not in done.stdout
    return done.stderr + done.stdout


ASKED = [{"prompt": [5], "params": {"max_tokens": 2}}]


def test_without_the_plugin_there_is_no_model(folder):
    said = fails({"folder": str(folder), "requests": ASKED}, VLLM_PLUGINS="")
    assert "model type `wordline` but Transformers does not recognize this architecture" in said


def test_the_cpu_platform_is_refused(folder):
    said = fails({"folder": str(folder), "requests": ASKED}, VLLM_TARGET_DEVICE="cpu")
    assert ("the Wordline platform was wanted for a Wordline model; vLLM chose CpuPlatform: unset VLLM_TARGET_DEVICE, "
            "and let VLLM_PLUGINS name 'wordline' or leave it unset") in said


def test_an_image_that_was_compiled_anew_is_refused(folder, image, tmp_path):
    model = write_random_model(tmp_path / "random.gguf", layers=1).path
    save(compile_model(model, preset("tiny"), context=CONTEXT, slots=2, effort=1, checked=False), tmp_path / "other.wl")
    config = json.loads((folder / "config.json").read_text())
    for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_text((folder / name).read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "image": "other.wl"}))
    said = fails({"folder": str(tmp_path), "requests": ASKED})
    assert (f"the image that {tmp_path} was made for was wanted; {tmp_path}/other.wl is another: run `wordline vllm "
            f"{tmp_path}/other.wl --output {tmp_path}`") in said


def test_a_device_that_cannot_be_opened_is_an_error(folder):
    said = fails({"folder": str(folder), "requests": ASKED,
                  "options": {"additional_config": {"wordline": {"device": "model:w16"}}}})
    assert "configuration 'tiny' (" in said and "was wanted; device 'model:w16' is 'w16' (" in said


SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({}, f"{SLOTS} sequences of {CONTEXT} tokens, prefix caching False, runtime.vllm.worker.WordlineWorker"),
    ({"max_num_seqs": 2, "max_model_len": 50, "enable_prefix_caching": True},
     "2 sequences of 50 tokens, prefix caching False, runtime.vllm.worker.WordlineWorker"),
    ({"dtype": "bfloat16"}, "float32 logits was wanted for a Wordline device; got dtype torch.bfloat16: leave that "
                            "setting out"),
    ({"enable_lora": True}, "no LoRA was wanted for a Wordline device; got "),
    ({"tensor_parallel_size": 2}, "must be divisible by tensor parallel size"),  # vLLM's own words
    ({"data_parallel_size": 2}, "one worker was wanted for a Wordline device; got a world of 1 and 2 replicas: leave "
                                "that setting out"),
    ({"distributed_executor_backend": "mp"}, "a worker in the engine's process was wanted for a Wordline device; got "
                                             "executor 'mp': leave that setting out"),
    ({"kv_cache_dtype": "fp8"}, "the image's own KV cache was wanted for a Wordline device; got kv_cache_dtype 'fp8'"),
    ({"logprobs_mode": "processed_logprobs"}, "logprobs_mode 'raw_logprobs' was wanted for a Wordline device; got "
                                              "'processed_logprobs': leave that setting out"),
    ({"additional_config": {"wordline": {"devise": "rtl:"}}},
     "additional_config={'wordline': {'device': URI}} was wanted; got {'wordline': {'devise': 'rtl:'}}: leave the rest "
     "out"),
    ({"max_model_len": CONTEXT + 1}, f"User-specified max_model_len ({CONTEXT + 1}) is greater than the derived"),
    ({"hf_overrides": {"image": "gone.wl"}},
     "the image '{folder}/gone.wl' was wanted, which {folder}/config.json names; there is no such file: make the "
     "folder again with `wordline vllm`"),
    ({"model": "{other}"},
     "a model folder made by `wordline vllm` was wanted, since the Wordline platform is active; got '{other}' of type "
     "'llama': make one, or set VLLM_PLUGINS to the plugins you want ('' for none) to run other models"),
]


@pytest.fixture(scope="module")
def settings(folder, tmp_path_factory) -> list[tuple[str, str]]:
    """What vLLM says to `SETTINGS`, and what is wanted."""
    other = tmp_path_factory.mktemp("other")
    (other / "config.json").write_text(json.dumps({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 413, "hidden_size": 96,
        "num_attention_heads": 3, "num_hidden_layers": 1, "intermediate_size": 160, "max_position_embeddings": 256,
        "dtype": "float32"}))
    places = {"{folder}": str(folder), "{other}": str(other)}
    options = [{key: places.get(value, value) if isinstance(value, str) else value for key, value in given.items()}
               for given, _ in SETTINGS]
    said = vllm_says({"folder": str(folder), "configure": options})
    return [(answer, wanted.replace("{folder}", str(folder)).replace("{other}", str(other)))
            for answer, (_, wanted) in zip(said, SETTINGS, strict=True)]


@pytest.mark.parametrize("number", range(len(SETTINGS)), ids=[str(given) for given, _ in SETTINGS])
def test_settings(settings, number):
    said, wanted = settings[number]
    assert wanted in said


def test_the_probabilities_sum_to_one(said):
    everything = [found["logprobs"] for (found, request) in zip(said[0]["found"], said[2], strict=True)
                  if request["params"].get("logprobs") == -1]
    assert everything
    for place in everything[0]:
        assert math.isclose(sum(math.exp(p) for p, _ in place.values()), 1, rel_tol=1e-4)
