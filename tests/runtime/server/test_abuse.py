"""Clients that leave, stall or come in crowds, and devices that fail: the server lives."""

import json
import socket
import threading

import openai
import pytest

from runtime.transport import DeviceError
from tests.runtime.server.serving import ENDLESS, GREEDY, SLOTS, serving, until


@pytest.mark.parametrize("way", ["closed", "reset", "half closed"])
@pytest.mark.parametrize("streamed", [True, False])
def test_a_client_that_leaves_frees_its_slot(running, way, streamed):
    running.valve.delay = 0.05
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
        until(lambda: not running.server.server_state.connections)
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
        with pytest.raises(openai.APIError, match="the sequence was to end in time"):
            list(running.client.completions.create(prompt="x", max_tokens=100, stream=True,
                                                   extra_body={"ignore_eos": True}, **GREEDY))


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
