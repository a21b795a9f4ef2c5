"""Replacing the image, stopping, the command, metrics and the page."""

import os
import re
import signal
import subprocess
import sys

import pytest
from openai import OpenAI
from typer.testing import CliRunner

import wordline
from hw.image import save
from runtime.server.settings import Settings
from runtime.tokenizer import Tokenizer
from tests.runtime.server.serving import (
    CONTEXT,
    ENDLESS,
    HELLO,
    SLOTS,
    Running,
    alone,
    compiled,
    serving,
    until,
)


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


def test_the_command(image, tmp_path, interruptible):
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
    (["x.wl", "--request-seconds", "0"], "request_seconds above 0 was wanted; got 0.0: leave it out, or raise it\n"),
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
