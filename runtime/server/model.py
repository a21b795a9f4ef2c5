"""A model as the server sees it: an image with its tokenizer, chat template and name."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from time import time

from hw.errors import WordlineError
from hw.image import Image, load
from runtime.chat_template import ChatTemplate
from runtime.server.errors import ApiError
from runtime.server.grammar import Vocabulary
from runtime.tokenizer import Tokenizer

__all__ = ["ServedModel"]


class ServedModel:
    """An image that is served.

    Parameters
    ----------
    image : Image
        The model.
    name : str
        What clients call it.
    """

    def __init__(self, image: Image, name: str) -> None:
        self.image = image
        self.name = name
        self.created = int(time())
        self.tokenizer = Tokenizer(image.text)
        source, t = image.text.get("chat_template"), self.tokenizer
        self._template = ChatTemplate(source, "" if t.bos is None else t.token(t.bos),
                                      t.token(t.eos[0]) if t.eos else "") if source else None
        self._longest = max(len(t.token_bytes(n)) for n in range(len(t)))

    @classmethod
    def load(cls, path: Path, name: str | None = None) -> "ServedModel":
        """The model in a file, under the file's name unless another is given."""
        return cls(load(path), name or path.stem)

    @property
    def context(self) -> int:
        """Tokens of the longest sequence."""
        return self.image.kv.context

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The tokens, indexed for grammars; made when first wanted."""
        return Vocabulary(self.tokenizer, self.image.logits[1])

    def encode(self, text: str) -> list[int]:
        """Token ids of a text; refused without a look at its tokens when no way of cutting it would fit."""
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > self._longest * self.context:
            raise self._too_long(f"at least {size // self._longest + 1}")
        try:
            ids = self.tokenizer.encode(text)
        except UnicodeEncodeError as error:  # half of a pair of UTF-16 surrogates, which JSON can spell
            raise ApiError(400, f"text in Unicode was wanted; it has a lone surrogate at character {error.start}: "
                                "leave it out", code="invalid_text") from error
        return ids

    def conversation(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Token ids of a conversation, up to where the reply begins."""
        if self._template is None:
            raise ApiError(400, f"model {self.name!r} has no chat template: use /v1/completions, or an instruct model",
                           code="no_chat_template")
        try:
            text = self._template.render(messages)
        except WordlineError as error:
            raise ApiError(400, str(error), param="messages", code="invalid_conversation") from error
        return self.encode(text)

    def check_length(self, prompt: Sequence[int], max_tokens: int | None) -> None:
        """Raises for a prompt, or a prompt and its reply, that is longer than the context."""
        if len(prompt) >= self.context and max_tokens != 0 or len(prompt) > self.context:
            raise self._too_long(str(len(prompt)))
        if max_tokens is not None and len(prompt) + max_tokens > self.context:
            raise ApiError(400, f"this model's context is {self.context} tokens; {len(prompt)} of the prompt and "
                                f"{max_tokens} of the reply were asked for: shorten the prompt, or ask for "
                                f"{self.context - len(prompt)} at most", param="max_tokens",
                           code="context_length_exceeded")

    def _too_long(self, count: str) -> ApiError:
        return ApiError(400, f"this model's context is {self.context} tokens; the prompt has {count}: shorten it, "
                             "or compile with a longer --context", code="context_length_exceeded")
