"""The sequences of one request, from the engine's thread to the event loop that writes the answer."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from runtime.engine import Engine
from runtime.job import Ending, Job, Request, Token
from runtime.server.errors import ApiError, as_api_error
from runtime.server.model import ServedModel
from runtime.server.text import Piece, TextStream

__all__ = ["Part", "Plan", "Reply", "Usage"]


@dataclass(frozen=True)
class Plan:
    """One sequence to run: what the engine is asked, what ends the text, what text and token it begins with."""

    request: Request
    stops: Sequence[str] = ()
    echo: str = ""
    echo_token: Token | None = None


@dataclass(frozen=True)
class Part:
    """More of choice `index`: text that became certain, and the reason with the last part."""

    index: int
    piece: Piece
    finish: str | None = None


@dataclass(frozen=True)
class Usage:
    """Numbers of tokens, as clients are told them."""

    prompt: int
    cached: int
    completion: int

    def body(self) -> dict[str, object]:
        """In OpenAI's form."""
        return {"prompt_tokens": self.prompt, "completion_tokens": self.completion,
                "total_tokens": self.prompt + self.completion, "prompt_tokens_details": {"cached_tokens": self.cached}}


class _Choice:
    """Listens to one sequence, on the engine's thread, and posts what can be said of it."""

    def __init__(self, index: int, plan: Plan, model: ServedModel, reply: "Reply") -> None:
        self.index = index
        self._reply = reply
        self._text = TextStream(model.tokenizer, plan.stops)
        if plan.echo_token is not None:
            self._post(self._text.push(plan.echo_token))
        elif plan.echo:
            self._post(Piece(plan.echo))

    def token(self, token: Token) -> bool:
        self._post(self._text.push(token))
        return not self._text.stopped

    def ended(self, ending: Ending) -> None:
        if ending.error is not None:
            self._reply.post(as_api_error(ending.error))
        elif ending.reason == "cancelled":
            self._reply.post(ApiError(503, "the server is stopping: send the request to another one",
                                      code="unavailable"))
        else:
            self._reply.post(Part(self.index, self._text.finish(), ending.reason))

    def _post(self, piece: Piece) -> None:
        if piece:
            self._reply.post(Part(self.index, piece))


class Reply:
    """What a request will be answered with. Belongs to one event loop.

    `cancel` must be called when nobody waits for it any more; it does no harm otherwise.
    """

    def __init__(self, model: ServedModel, plans: Sequence[Plan], engine: Engine) -> None:
        self.model = model
        self.choices = len(plans)
        self.jobs: list[Job] = []
        self._loop = asyncio.get_running_loop()
        # Bounded by the tokens that the sequences can have, so a slow reader costs memory but no slot.
        self._arrived: asyncio.Queue[Part | ApiError] = asyncio.Queue()
        listeners = [_Choice(n, plan, model, self) for n, plan in enumerate(plans)]
        self.jobs = engine.submit([(p.request, c) for p, c in zip(plans, listeners, strict=True)], model.image)

    def post(self, part: Part | ApiError) -> None:
        """Hand a part to the event loop, from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._arrived.put_nowait, part)
        except RuntimeError:  # the loop is closed: the server has ended, nobody listens
            self.cancel()

    async def parts(self, patience: float | None = None) -> AsyncIterator[list[Part]]:
        """Parts as they arrive, those that came together at once; an empty list after `patience` seconds of silence.

        Raises `ApiError` when a sequence failed.
        """
        missing = self.choices
        while missing:
            try:
                first = await asyncio.wait_for(self._arrived.get(), patience)
            except TimeoutError:
                yield []
                continue
            arrived = [first]
            while not self._arrived.empty():
                arrived.append(self._arrived.get_nowait())
            parts = [part for part in arrived if isinstance(part, Part)]
            missing -= sum(part.finish is not None for part in parts)
            if parts:
                yield parts
            for part in arrived:
                if isinstance(part, ApiError):
                    raise part

    def cancel(self) -> None:
        """Give up the sequences that still run; their slots are free before the next command."""
        for job in self.jobs:
            job.cancel()

    def usage(self, prompts: int = 1) -> Usage:
        """Tokens so far. The sequences are of `prompts` prompts, each counted once."""
        step = self.choices // prompts
        return Usage(sum(len(job.request.prompt) for job in self.jobs[::step]),
                     sum(job.reused for job in self.jobs[::step]), sum(len(job.generated) for job in self.jobs))
