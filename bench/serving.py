"""Load test of the server: many streaming clients that leave when they like, and whether anything is lost by it.

A server is started on an image (a small random model unless one is named) in a process of its own. Each client asks
again and again for a stream, and now and then drops the connection in the middle of it. Every stream that was read to
its end must be the text that the same request gets from an idle server, to the last byte. At the end no slot may be
taken and nobody may wait, and the server's memory must not have grown.
"""

import argparse
import asyncio
import json
import random
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from bench.measure import record

COMMON_TOKENS = 16  # with which every prompt begins
OWN_TOKENS = 6
PROMPTS = 24
SPANS = 10


@dataclass
class Tally:
    """What the clients saw."""

    finished: int = 0
    dropped: int = 0
    refused: int = 0
    lost: int = 0
    """Streams that ended without their last event, or with an error."""
    wrong: int = 0
    """Streams whose text was not the one that the request gets alone."""
    tokens: int = 0
    examples: list[str] = field(default_factory=list)


class Stream:
    """One connection and the events on it, by hand, so that the clients cost little beside the server.

    Use `async with`; leaving it early drops the connection without a word.
    """

    def __init__(self, port: int, body: dict[str, Any]) -> None:
        self.port, self.body = port, json.dumps(body).encode()

    async def __aenter__(self) -> "Stream":
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                          b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(self.body) + self.body)
        await self.writer.drain()
        self.status = int((await self.reader.readline() or b"- 0").split()[1])
        while (await self.reader.readline()).strip():
            pass
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()

    async def events(self) -> AsyncIterator[str]:
        """The data of every event; chunk sizes and comments are passed over."""
        while line := await self.reader.readline():
            if line.startswith(b"data: "):
                yield line[6:].decode().strip()


async def text_of(port: int, body: dict[str, Any]) -> str:
    """The text that a request gets, whole."""
    text = []
    async with Stream(port, body) as stream:
        async for data in stream.events():
            if data != "[DONE]":
                text += [choice["text"] for choice in json.loads(data)["choices"]]
    return "".join(text)


async def client(port: int, seed: int, bodies: list[dict[str, Any]], texts: list[str], until: float, drop: float,
                 tally: Tally) -> None:
    """Ask until the time is over."""
    dice = random.Random(seed)
    while monotonic() < until:
        n = dice.randrange(len(bodies))
        leave_after = dice.randrange(0, bodies[n]["max_tokens"]) if dice.random() < drop else None
        try:
            await one(port, bodies[n], texts[n], leave_after, tally)
        except (OSError, ValueError) as error:
            tally.lost += 1
            tally.examples.append(repr(error))


async def one(port: int, body: dict[str, Any], expected: str, leave_after: int | None, tally: Tally) -> None:
    """One request, read to its end or left after some events."""
    text, done, events = "", False, 0
    async with Stream(port, body) as stream:
        if stream.status == 429:
            tally.refused += 1
            await asyncio.sleep(0.1)
            return
        async for data in stream.events():
            if leave_after is not None and events >= leave_after:
                tally.dropped += 1
                return
            events += 1
            if data == "[DONE]":
                done = True
            elif (event := json.loads(data)).get("error"):
                tally.examples.append(event["error"]["message"])
            else:
                text += "".join(choice["text"] for choice in event["choices"])
                tally.tokens += len(event["choices"])
    if not done:
        tally.lost += 1
    elif text != expected:
        tally.wrong += 1
        tally.examples.append(f"{text!r} came, {expected!r} was wanted")
    else:
        tally.finished += 1


async def fetch(port: int, path: str) -> str:
    """The body of a GET."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    data = await reader.read()
    writer.close()
    return data.partition(b"\r\n\r\n")[2].decode()


async def resident(port: int) -> float:
    """Megabytes of the server's memory."""
    for line in (await fetch(port, "/metrics")).splitlines():
        if line.startswith("process_resident_memory_bytes "):
            return float(line.split()[1]) / 2**20
    raise ValueError("the server's metrics do not show its memory")


async def watch_memory(port: int, samples: list[float]) -> None:
    """A sample a second, until cancelled."""
    while True:
        samples.append(await resident(port))
        await asyncio.sleep(1)


async def load(port: int, clients: int, seconds: float, drop: float, tokens: int) -> dict[str, Any]:
    """Run the clients; what they and the server's own numbers say."""
    dice = random.Random(0)
    vocabulary = 256  # below every model's

    def drawn(count: int) -> list[int]:
        return [dice.randrange(3, vocabulary) for _ in range(count)]

    common = drawn(COMMON_TOKENS)
    bodies: list[dict[str, Any]] = [
        {"prompt": [*common, *drawn(OWN_TOKENS)], "max_tokens": tokens, "stream": True, "temperature": n % 2, "seed": n,
         "ignore_eos": True} for n in range(PROMPTS)]
    texts = [await text_of(port, body) for body in bodies]
    tally, samples = Tally(), list[float]()
    until = monotonic() + seconds
    memory = asyncio.create_task(watch_memory(port, samples))
    await asyncio.gather(*(client(port, seed, bodies, texts, until, drop, tally) for seed in range(clients)))
    memory.cancel()
    await asyncio.sleep(1)
    device = json.loads(await fetch(port, "/device"))
    spans = [samples[n * len(samples) // SPANS:(n + 1) * len(samples) // SPANS] for n in range(SPANS)]
    return {
        "clients": clients, "seconds": seconds, "drop_probability": drop, "tokens_per_stream": tokens,
        **{k: v for k, v in asdict(tally).items() if k != "examples"}, "examples": tally.examples[:5],
        "tokens_per_second": round(tally.tokens / seconds, 1),
        "slots": len(device["slots"]), "slots_leaked": sum(slot["job"] is not None for slot in device["slots"]),
        "queue_left": device["queued"], "prompt_tokens_reused": device["totals"]["reused_tokens"],
        "endings": device["totals"]["endings"],
        # The most of each tenth of the time, in order: growth shows, and so does its end.
        "memory_megabytes": [round(max(span), 1) for span in spans if span],
    }


def small_image(folder: Path, slots: int) -> Path:
    """A random model's image, for which the tests' libraries are needed."""
    from compiler.compile import compile_model  # noqa: PLC0415  only without --image
    from hw.config import preset  # noqa: PLC0415
    from hw.image import save  # noqa: PLC0415
    from tests.models.random_gguf import write_random_model  # noqa: PLC0415

    model = write_random_model(folder / "random.gguf", layers=1)
    save(compile_model(model.path, preset("tiny"), context=64, slots=slots), folder / "random.wl")
    return folder / "random.wl"


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def measured(image: Path, device: str, options: argparse.Namespace) -> dict[str, Any]:
    """Start a server, load it, stop it."""
    port = free_port()
    words = [sys.executable, "-m", "wordline", "serve", str(image), "--device", device, "--port", str(port)]
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    try:
        for _ in range(1800):
            if process.poll() is not None:
                raise SystemExit(f"the server ended with {process.returncode}; to see why, run: {' '.join(words)}")
            try:
                await fetch(port, "/health")
                break
            except OSError:
                await asyncio.sleep(0.1)
        return await load(port, options.clients, options.seconds, options.drop, options.tokens)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def main() -> None:
    """Measure, report, and fail when something was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image", type=Path, help="image to serve; a small random model's if not given")
    parser.add_argument("--device", default="model:", help="device to serve it on")
    parser.add_argument("--slots", type=int, default=8, help="slots of the small model's image")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--drop", type=float, default=0.3, help="share of streams that are left in the middle")
    parser.add_argument("--tokens", type=int, default=32, help="tokens of a stream")
    parser.add_argument("--output", type=Path, help="write the JSON here too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        image = options.image or small_image(Path(folder), options.slots)
        measurements = asyncio.run(measured(image, options.device, options))
    facts = {"benchmark": "serving", "model": options.image and options.image.stem, **measurements}
    record(facts, options.output)
    if facts["lost"] or facts["wrong"] or facts["slots_leaked"] or facts["queue_left"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
