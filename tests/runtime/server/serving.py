"""A server of a small random model on a free port, and what tests ask of it."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from openai import OpenAI

from compiler.compile import compile_model
from hw.config import preset
from hw.image import Image
from runtime.device import Device
from runtime.engine import Engine
from runtime.sampling import Sampling
from runtime.server.app import Service
from runtime.server.model import ServedModel
from runtime.server.run import server as make_server
from runtime.server.settings import Settings
from runtime.session import Session
from runtime.transport import Command, DeviceError
from tests.models.random_gguf import write_random_model

__all__ = ["CONTEXT", "ENDLESS", "GREEDY", "HELLO", "SLOTS", "Running", "Valve", "alone", "answer", "compiled",
           "serving", "until"]

CONTEXT, SLOTS = 160, 4


def compiled(folder: Path, seed: int = 0) -> Image:
    path = write_random_model(folder / f"random{seed}.gguf", layers=1, seed=seed).path
    return compile_model(path, preset("tiny"), context=CONTEXT, slots=SLOTS, effort=1, checked=False)


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


def until(condition, seconds: float = 60) -> None:
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


def alone(image: Image, prompt: list[int], count: int, sampling: Sampling | None = None,
          stop: tuple[int, ...] = ()) -> list[int]:
    with Device.open("model:", image.config) as fresh:
        fresh.load(image)
        with Session(fresh, image) as session:
            return list(session.generate(prompt, sampling or Sampling(), count, stop))


HELLO = [{"role": "user", "content": "the rows"}]
GREEDY: dict[str, Any] = {"model": "tiny", "temperature": 0}

ENDLESS = {"prompt": "the", "max_tokens": 150, "ignore_eos": True}
