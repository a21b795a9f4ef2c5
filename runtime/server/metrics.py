"""Numbers for Prometheus, and those of the last seconds for people."""

from collections import deque
from collections.abc import Iterator
from dataclasses import asdict
from time import monotonic
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from runtime.engine import Engine
from runtime.job import Job

__all__ = ["Metrics", "Rates"]

TIMES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
SHORT_TIMES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)


class _EngineCollector:
    """The engine's sums, read when they are asked for."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def collect(self) -> Iterator[Metric]:
        s, e = self.engine.stats, self.engine
        sums = (
            ("commands", "Commands carried out by the device", s.commands),
            ("device_cycles", "Clock cycles of these commands", s.cycles),
            ("device_busy_seconds", "Seconds in which a command ran", s.busy_seconds),
            ("row_bound_cycles", "Cycles that these commands must take at one row read a cycle", s.bound_cycles),
            ("prompt_tokens", "Tokens of prompts that were run", s.prompt_tokens),
            ("prompt_tokens_reused", "Tokens of prompts that were in the cache", s.reused_tokens),
            ("generated_tokens", "Tokens made", s.generated_tokens),
            ("device_resets", "Times that the device failed and was brought back", s.resets),
        )
        for name, text, value in sums:
            yield CounterMetricFamily(f"wordline_{name}", text, value=value)
        endings = CounterMetricFamily("wordline_sequences", "Sequences that ended, by reason", labels=["reason"])
        for reason, number in sorted(s.endings.copy().items()):
            endings.add_metric([reason], number)
        yield endings
        slots = e.slots()
        gauges = (
            ("slots", "Slots of the KV cache", len(slots)),
            ("slots_active", "Slots with a sequence that runs", sum(slot.job is not None for slot in slots)),
            ("kv_tokens", "Tokens in the KV cache", sum(slot.tokens for slot in slots)),
            ("queue", "Sequences that wait for a slot", e.queued),
            ("up", "Whether the device works", int(e.failure is None)),
        )
        for name, text, value in gauges:
            yield GaugeMetricFamily(f"wordline_{name}", text, value=value)


class Metrics:
    """All metrics of one server, in a registry of its own.

    Parameters
    ----------
    engine : Engine
        Whose sums are shown.
    paths : iterable of str
        Paths that are counted under their own name; requests to others share one.
    """

    def __init__(self, engine: Engine, paths: frozenset[str]) -> None:
        self.paths = paths
        self.registry = registry = CollectorRegistry()
        registry.register(_EngineCollector(engine))
        ProcessCollector(registry=registry)
        self._requests = Counter("wordline_requests", "HTTP requests", ["path", "status"], registry=registry)
        self._request_seconds = Histogram("wordline_request_seconds", "From a request to the end of its answer",
                                          ["path"], buckets=TIMES, registry=registry)
        self._queue_seconds = Histogram("wordline_queue_seconds", "From a sequence's arrival to its slot",
                                        buckets=TIMES, registry=registry)
        self._first_seconds = Histogram("wordline_time_to_first_token_seconds",
                                        "From a sequence's arrival to its first token", buckets=TIMES,
                                        registry=registry)
        self._token_seconds = Histogram("wordline_time_per_output_token_seconds",
                                        "Mean time of a sequence's tokens after the first", buckets=SHORT_TIMES,
                                        registry=registry)

    def request(self, path: str, status: int, seconds: float) -> None:
        """An answer has ended."""
        path = path if path in self.paths else "other"
        self._requests.labels(path, str(status)).inc()
        self._request_seconds.labels(path).observe(seconds)

    def sequence(self, job: Job) -> None:
        """A sequence has ended, or nobody waits for it any more."""
        if job.started:
            self._queue_seconds.observe(job.started - job.submitted)
        if job.first:
            self._first_seconds.observe(job.first - job.submitted)
        if job.finished and len(job.generated) > 1:
            self._token_seconds.observe((job.finished - job.first) / (len(job.generated) - 1))


class Rates:
    """The engine's sums over the last seconds; `tick` is to be called about once a second.

    Parameters
    ----------
    engine : Engine
        Whose sums.
    seconds : int
        How far to look back.
    """

    def __init__(self, engine: Engine, seconds: int = 5) -> None:
        self.engine = engine
        self._past: deque[tuple[float, dict[str, Any]]] = deque(maxlen=seconds + 1)
        self.tick()

    def tick(self) -> None:
        """Note the sums as they are now."""
        self._past.append((monotonic(), asdict(self.engine.stats)))

    def now(self) -> dict[str, float | None]:
        """Tokens a second, and how busy the device was; None for what cannot be said."""
        then, old = self._past[0]
        seconds, new = monotonic() - then, asdict(self.engine.stats)

        def change(name: str) -> float:
            return new[name] - old[name]

        cycles, commands = change("cycles"), change("commands")
        return {
            "generated_per_second": change("generated_tokens") / seconds,
            "prompt_per_second": change("prompt_tokens") / seconds,
            "busy": min(change("busy_seconds") / seconds, 1.0),
            "cycles_per_command": cycles / commands if commands else None,
            "share_of_row_bound": change("bound_cycles") / cycles if cycles else None,
        }


