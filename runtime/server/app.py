"""The application: OpenAI's routes, health, metrics, the state of the device and a page to look at it."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from time import monotonic, time
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException

from hw.errors import WordlineError
from runtime.engine import Engine
from runtime.job import Request as Sequence
from runtime.job import Token
from runtime.server.bodies import ChatForm, CompletionForm, Form
from runtime.server.errors import ApiError, as_api_error
from runtime.server.guard import Guard
from runtime.server.metrics import Metrics, Rates
from runtime.server.model import ServedModel
from runtime.server.protocol import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    Generation,
    TokenizeRequest,
    parse,
    read,
)
from runtime.server.reply import Plan, Reply
from runtime.server.settings import Settings
from runtime.server.stream import EventStream, WholeAnswer

__all__ = ["Service", "application"]

log = logging.getLogger("wordline.server")

PAGE = Path(__file__).parent / "page.html"
POLICY = ("default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
          "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
NEAR_LIMIT = 4096
"""Characters from which a text is cut into tokens beside the event loop, which must not wait."""


class Service:
    """The state behind the routes.

    Parameters
    ----------
    engine : Engine
        Runs the sequences; started and closed with the application.
    model : ServedModel
        What the engine has loaded.
    settings : Settings
        Limits and key.
    path : Path or None
        The image's file, from which it can be loaded again.
    """

    def __init__(self, engine: Engine, model: ServedModel, settings: Settings, path: Path | None = None) -> None:
        self.engine = engine
        self.model = model
        self.settings = settings
        self.path = path
        self.rates = Rates(engine)
        self.started = time()
        self._signature = _signature(path)
        self._reloading = asyncio.Lock()

    @property
    def file_changed(self) -> bool:
        """Whether the image's file is another than the one that was loaded."""
        return self.path is not None and _signature(self.path) != self._signature

    def named(self, name: str | None) -> ServedModel:
        """The model that a request means."""
        if name is not None and name != self.model.name:
            raise ApiError(404, f"model {name[:100]!r} does not exist; this server has {self.model.name!r}",
                           param="model", code="model_not_found")
        return self.model

    async def begin(self, request: Generation, prompts: list[str | list[int]] | list[dict[str, str]],
                    limit: int | None, logprobs: int | None, echo: bool = False) -> tuple[Reply, int]:
        """Queue the sequences of a request; the reply and the number of prompts."""
        model = self.named(request.model)
        count, choices = 1 if isinstance(request, ChatRequest) else len(prompts), request.n or 1
        if count * choices > self.settings.choices:
            raise ApiError(400, f"at most {self.settings.choices} sequences a request were wanted; {count} prompts "
                                f"with n = {choices} came: split the request", param="n")
        make = self._plans(model, request, prompts, limit, logprobs, echo)
        large = len(str(prompts)) > NEAR_LIMIT or request.grammar_source() is not None
        plans = await asyncio.to_thread(make) if large else make()
        return Reply(model, plans, self.engine), count

    def _plans(self, model: ServedModel, request: Generation, prompts: Any, limit: int | None,
               logprobs: int | None, echo: bool) -> Callable[[], list[Plan]]:
        def make() -> list[Plan]:
            if isinstance(request, ChatRequest):
                encoded = [model.conversation(prompts)]
            else:
                encoded = [model.encode(p) if isinstance(p, str) else list(p) for p in prompts]
            source = request.grammar_source()
            grammar = None if source is None else model.vocabulary.compile(source)
            stop = set(request.stop_token_ids or ()) | (set() if request.ignore_eos else set(model.tokenizer.eos))
            plans: list[Plan] = []
            for prompt in encoded:
                model.check_length(prompt, limit)
                text, token = "", None
                if echo and prompt:
                    text = "" if logprobs is not None else model.tokenizer.decode(prompt)
                    token = Token(prompt[0], of_prompt=True) if logprobs is not None else None
                for _ in range(request.n or 1):
                    sequence = Sequence(
                        tuple(prompt), request.sampling(len(plans)), limit, frozenset(stop), logprobs,
                        prompt_logprobs=echo and logprobs is not None, adjustment=request.adjustment(),
                        constraint=None if grammar is None else grammar.copy(),
                        deadline=monotonic() + self.settings.request_seconds)
                    plans.append(Plan(sequence, request.stop, text, token))
            return plans

        return make

    def answer(self, form: type[Form], request: Generation, reply: Reply, prompts: int,
                     metrics: Metrics) -> Response:
        """The response to a request whose sequences are under way."""
        logprobs = getattr(request, "logprobs", None) not in (None, False)
        written = form(reply.model, secrets.token_hex(12), int(time()), logprobs)
        ignored = [name for name in request.ignored() if name.isidentifier() and name.isascii()][:20]
        headers = {"x-wordline-ignored": ", ".join(ignored)[:500]} if ignored else {}

        def done(reply: Reply) -> None:
            for job in reply.jobs:
                metrics.sequence(job)

        if request.stream:
            return EventStream(reply, written, prompts, done, headers, usage=request.include_usage,
                               patience=self.settings.keep_alive_seconds)
        return WholeAnswer(reply, written, prompts, done, headers)

    async def reload(self) -> None:
        """Load the image's file again; what runs ends on the old one, what comes later waits for the new one."""
        if self.path is None:
            raise ApiError(400, "an image in a file was wanted; this one was never in one: restart the server")
        async with self._reloading:
            signature, old = _signature(self.path), self.model
            try:
                model = await asyncio.to_thread(ServedModel.load, self.path, self.settings.name)
                loaded = self.engine.replace(model.image)
                self.model = model
                await asyncio.wrap_future(loaded)
            except WordlineError as error:
                self.model = old
                raise ApiError(409, f"{error}; the model that was loaded before goes on", code="image") from error
            self._signature = signature
            log.info("loaded %s again", self.path)

    def health(self) -> tuple[int, dict[str, Any]]:
        """A status and what can be said about it."""
        if self.engine.failure is not None:
            return 503, {"status": "failed", "reason": str(self.engine.failure)}
        state = {"status": "ok", "active": self.engine.active, "queued": self.engine.queued}
        if self.file_changed:
            state["image"] = "the file has changed; the old image is served until POST /reload or a restart"
        return 200, state

    def device(self) -> dict[str, Any]:
        """What the page shows of the device."""
        identity, image, engine = self.engine.device.identity, self.model.image, self.engine
        return {
            "device": identity.uri, "description": identity.description, "configuration": identity.config.name,
            "tiles": identity.config.tiles, "model": self.model.name, "context": image.kv.context,
            "uptime": time() - self.started, "queued": engine.queued, "rates": self.rates.now(),
            "slots": [asdict(slot) for slot in engine.slots()], "totals": asdict(engine.stats),
        }


def application(service: Service) -> Guard:
    """The ASGI application of a service."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.engine.start()
        clock = asyncio.create_task(_every_second(service))
        try:
            yield
        finally:
            clock.cancel()
            await asyncio.to_thread(service.engine.close)

    app = FastAPI(title="Wordline", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    metrics = Metrics(service.engine, frozenset(
        ("/", "/health", "/metrics", "/device", "/reload", "/tokenize", "/detokenize", "/v1/models", "/v1/completions",
         "/v1/chat/completions")))

    @app.exception_handler(ApiError)
    async def refused(_: Request, error: ApiError) -> Response:
        return JSONResponse(error.body(), error.status, error.headers)

    @app.exception_handler(WordlineError)
    async def failed(request: Request, error: WordlineError) -> Response:
        return await refused(request, as_api_error(error))

    @app.exception_handler(HTTPException)
    async def unrouted(request: Request, error: HTTPException) -> Response:
        what = {404: "does not exist", 405: f"does not take {request.method}"}.get(error.status_code, error.detail)
        routes = ", ".join(sorted(metrics.paths))
        return await refused(request, ApiError(error.status_code, f"{request.url.path[:100]!r} {what}; there are "
                                                                  f"{routes}", code="route"))

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [_described(service.model)]}

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        return _described(service.named(name))

    @app.post("/v1/completions")
    async def completions(request: Request) -> Response:
        asked = parse(CompletionRequest, await request.body())
        limit = 16 if asked.max_tokens is None else asked.max_tokens  # OpenAI's default
        reply, prompts = await service.begin(asked, asked.prompt, limit, asked.logprobs, bool(asked.echo))
        return service.answer(CompletionForm, asked, reply, prompts, metrics)

    @app.post("/v1/chat/completions")
    async def chat_completions(request: Request) -> Response:
        asked = parse(ChatRequest, await request.body())
        limit = asked.max_tokens if asked.max_completion_tokens is None else asked.max_completion_tokens
        logprobs = (asked.top_logprobs or 0) if asked.logprobs else None
        reply, _ = await service.begin(asked, asked.conversation(), limit, logprobs)
        return service.answer(ChatForm, asked, reply, 1, metrics)

    @app.post("/tokenize")
    async def tokenize(request: Request) -> dict[str, Any]:
        asked = read(TokenizeRequest, await request.body())
        text = asked.content if asked.prompt is None else asked.prompt
        if text is None:
            raise ApiError(400, "prompt: a text was wanted; it is missing", param="prompt")
        tokens = await asyncio.to_thread(service.model.tokenizer.encode, text, asked.add_special_tokens)
        return {"tokens": tokens, "count": len(tokens), "max_model_len": service.model.context}

    @app.post("/detokenize")
    async def detokenize(request: Request) -> dict[str, Any]:
        asked = read(DetokenizeRequest, await request.body())
        text = service.model.tokenizer.decode(asked.tokens, special=True)
        return {"prompt": text, "content": text}

    @app.get("/health")
    async def health() -> Response:
        status, body = service.health()
        return JSONResponse(body, status)

    @app.get("/metrics")
    async def prometheus() -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/device")
    async def device() -> dict[str, Any]:
        return service.device()

    @app.post("/reload")
    async def reload() -> dict[str, Any]:
        await service.reload()
        return _described(service.model)

    @app.get("/")
    async def page() -> Response:
        return HTMLResponse(PAGE.read_text(encoding="utf-8"), headers={"content-security-policy": POLICY})

    return Guard(app, service.settings, metrics.request)


async def _every_second(service: Service) -> None:
    told = False
    while True:
        service.rates.tick()
        changed = service.file_changed
        if changed and not told:
            log.warning("%s has changed; the old image is served until POST /reload or a restart", service.path)
        told = changed
        await asyncio.sleep(1)


def _described(model: ServedModel) -> dict[str, Any]:
    return {"id": model.name, "object": "model", "created": model.created, "owned_by": "wordline",
            "max_model_len": model.context}


def _signature(path: Path | None) -> tuple[int, int, int] | None:
    """Changes when a file is replaced or written to."""
    try:
        stat = path.stat() if path is not None else None
    except OSError:
        return None
    return None if stat is None else (stat.st_ino, stat.st_size, stat.st_mtime_ns)


