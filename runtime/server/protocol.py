"""Requests of OpenAI's interface: their fields, types and limits, and what they mean to the engine."""

import json
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from hw.errors import WordlineError
from runtime.logits import Adjustment
from runtime.sampling import Sampling
from runtime.server import grammar
from runtime.server.errors import ApiError

__all__ = ["ChatRequest", "CompletionRequest", "DetokenizeRequest", "Generation", "TokenizeRequest", "parse", "read"]

STOPS = 16
TOP_LOGPROBS = 20
SEEDS = 1 << 63

P = TypeVar("P", bound="_Part")
R = TypeVar("R", bound="Generation")


def _stops(value: Any) -> Any:
    stops = [value] if isinstance(value, str) else value
    if stops is not None and not (isinstance(stops, list) and len(stops) <= STOPS
                                  and all(isinstance(s, str) and s for s in stops)):
        raise PydanticCustomError("stop", f"a text, or up to {STOPS} texts, none of them empty, were wanted")
    return stops or []


def _prompts(value: Any) -> Any:
    """One prompt or several, each a text or token ids -> a list of prompts."""
    def is_ids(v: Any) -> bool:
        return isinstance(v, list) and bool(v) and all(type(n) is int for n in v)

    if isinstance(value, str) or is_ids(value):
        return [value]
    if isinstance(value, list) and value and all(isinstance(v, str) or is_ids(v) for v in value):
        return value
    raise PydanticCustomError("prompt", "a text, token ids, or a list of either was wanted")


def _content(value: Any) -> Any:
    """A text, or text parts -> one text."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(part, dict) for part in value):
        kinds = {part.get("type") for part in value}
        if kinds <= {"text"} and all(isinstance(part.get("text"), str) for part in value):
            return "".join(part["text"] for part in value)
        raise PydanticCustomError("content", "parts of type 'text' were wanted; this model reads nothing else")
    raise PydanticCustomError("content", "a text, or a list of text parts, was wanted")


Stops = Annotated[list[str], BeforeValidator(_stops)]
Prompts = Annotated[list[str | list[int]], BeforeValidator(_prompts)]
Content = Annotated[str, BeforeValidator(_content)]


class _Part(BaseModel):
    # Numbers as texts, booleans as numbers: a client that sends those has a fault that it should hear of.
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class StreamOptions(_Part):
    """What a stream should also say."""

    include_usage: bool = False


class JsonSchema(_Part):
    """A named JSON schema."""

    name: str = "schema"
    schema_: dict[str, Any] = Field(default_factory=dict, alias="schema")


class ResponseFormat(_Part):
    """What the reply must look like."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class Structure(_Part):
    """vLLM's `structured_outputs`; one of them."""

    json_: dict[str, Any] | str | None = Field(None, alias="json")
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None


class Generation(_Part):
    """What completions and chats have in common."""

    model: str | None = None
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    n: Annotated[int, Field(ge=1)] | None = None
    stop: Stops = Field(default_factory=list)
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: Structure | None = None
    grammar: str | None = None
    json_schema: dict[str, Any] | None = None

    def sampling(self, index: int) -> Sampling:
        """How the sequence number `index` of this request chooses its tokens; OpenAI's defaults."""
        seed = None if self.seed is None else (self.seed + index) % SEEDS
        return Sampling(temperature=_default(self.temperature, 1.0), top_k=max(_default(self.top_k, 0), 0),
                        top_p=_default(self.top_p, 1.0), min_p=_default(self.min_p, 0.0), seed=seed)

    def adjustment(self) -> Adjustment:
        """What is added to the logits."""
        bias = {}
        for token, value in (self.logit_bias or {}).items():
            if not (token.isascii() and token.isdecimal()):
                raise ApiError(400, f"logit_bias: token ids were wanted as keys; got {token!r}", param="logit_bias")
            bias[int(token)] = value
        return Adjustment(bias, _default(self.presence_penalty, 0.0), _default(self.frequency_penalty, 0.0))

    def grammar_source(self) -> str | None:
        """The grammar that the reply must follow, whichever of the ways to say it was used."""
        found = [g for g in (_from_format(self.response_format), _from_structure(self.structured_outputs),
                             None if self.grammar is None else grammar.from_text(self.grammar),
                             None if self.json_schema is None else grammar.json_schema(self.json_schema))
                 if g is not None]
        if len(found) > 1:
            raise ApiError(400, f"one rule for the reply's form was wanted; got {len(found)}: leave all but one of "
                                "response_format, structured_outputs, grammar and json_schema out",
                           param="response_format")
        return found[0] if found else None

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with the numbers of tokens."""
        return self.stream_options is not None and self.stream_options.include_usage

    def ignored(self) -> list[str]:
        """Names of fields that mean nothing here."""
        return sorted(set(self.model_extra or {}) - set(self._refused()))

    def check(self) -> None:
        """Raises for what cannot be done, rather than leave it out silently."""
        for name, harmless in self._refused().items():
            value = (self.model_extra or {}).get(name)
            if value not in (None, *harmless):
                raise ApiError(400, f"{name} is not supported by this server; got {_short(value)}: leave it out",
                               param=name, code="unsupported_parameter")

    def _refused(self) -> dict[str, tuple[Any, ...]]:
        """Fields that ask for what is not here, and the values with which they ask for nothing."""
        return {"tools": ([],), "functions": ([],), "tool_choice": ("none", "auto"), "audio": (),
                "modalities": (["text"],), "best_of": (1, self.n), "suffix": ("",), "min_tokens": (0,),
                "repetition_penalty": (1.0,), "repeat_penalty": (1.0,), "prompt_logprobs": (0,),
                "use_beam_search": (False,), "web_search_options": ()}


class CompletionRequest(Generation):
    """The body of `/v1/completions`."""

    prompt: Prompts
    logprobs: Annotated[int, Field(ge=0, le=TOP_LOGPROBS)] | None = None
    echo: bool | None = None


class Message(_Part):
    """One message of a conversation."""

    role: str
    content: Content


class ChatRequest(Generation):
    """The body of `/v1/chat/completions`."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=TOP_LOGPROBS)] | None = None

    def conversation(self) -> list[dict[str, str]]:
        """The messages; a developer's is a system's to models that do not know the word."""
        return [{"role": "system" if m.role == "developer" else m.role, "content": m.content} for m in self.messages]


class TokenizeRequest(_Part):
    """The body of `/tokenize`, as vLLM (`prompt`) and llama.cpp (`content`) have it."""

    prompt: str | None = None
    content: str | None = None
    add_special_tokens: bool = True


class DetokenizeRequest(_Part):
    """The body of `/detokenize`."""

    tokens: list[Annotated[int, Field(ge=0)]]


def read(kind: type[P], body: bytes) -> P:
    """The fields in a body; raises `ApiError` that names the field, what was wanted and what came."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(error) from error


def parse(kind: type[R], body: bytes) -> R:
    """The request in a body, held to everything that can be said about it without a model; raises `ApiError`."""
    request = read(kind, body)
    request.check()
    try:
        request.sampling(0), request.adjustment()
    except WordlineError as error:
        raise ApiError(400, str(error), param=str(error).split(" ", 1)[0]) from error
    return request


def _refusal(error: ValidationError) -> ApiError:
    first = error.errors(include_url=False)[0]
    if first["type"] == "json_invalid":
        return ApiError(400, f"a JSON object was wanted; the body is no JSON: {first['ctx']['error']}",
                        code="invalid_json")
    if not first["loc"]:
        return ApiError(400, f"a JSON object was wanted; got {_short(first['input'])}", code="invalid_json")
    # Branches of a union are marked by type names in brackets or by 'str', 'int', ...; they are no field names.
    path = ".".join(str(part) for part in first["loc"] if not (isinstance(part, str) and "[" in part))
    got = "it is missing" if first["type"] == "missing" else f"got {_short(first['input'])}"
    return ApiError(400, f"{path}: {first['msg']}; {got}", param=path, code="invalid_value")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _default(value: Any, default: Any) -> Any:
    return default if value is None else value


def _from_format(form: ResponseFormat | None) -> str | None:
    if form is None or form.type == "text":
        return None
    if form.type == "json_object":
        return grammar.any_json()
    if form.json_schema is None:
        raise ApiError(400, "response_format.json_schema: a schema was wanted; it is missing",
                       param="response_format.json_schema")
    return grammar.json_schema(form.json_schema.schema_)


def _from_structure(structure: Structure | None) -> str | None:
    if structure is None:
        return None
    s, made = structure, []
    if s.json_ is not None:
        try:
            schema = json.loads(s.json_) if isinstance(s.json_, str) else s.json_
        except json.JSONDecodeError as error:
            raise ApiError(400, f"structured_outputs.json: a JSON schema was wanted; it is no JSON: {error}",
                           param="structured_outputs.json") from error
        made.append(grammar.json_schema(schema))
    if s.regex is not None:
        made.append(grammar.regex(s.regex))
    if s.choice:
        made.append(grammar.choice(s.choice))
    if s.grammar is not None:
        made.append(grammar.from_text(s.grammar))
    if s.json_object:
        made.append(grammar.any_json())
    if len(made) != 1:
        raise ApiError(400, f"structured_outputs: one of json, regex, choice, grammar and json_object was wanted; got "
                            f"{len(made)}", param="structured_outputs")
    return made[0]
