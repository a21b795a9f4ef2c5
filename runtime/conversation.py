"""A chat: messages through the model's own template, the reply as text while it is made."""

from collections.abc import Iterator
from time import perf_counter

from hw.image import Image
from runtime.chat_template import ChatTemplate
from runtime.sampling import Sampling
from runtime.session import GREEDY, Machine, Session
from runtime.tokenizer import Tokenizer

__all__ = ["Conversation"]


class Conversation:
    """One chat with the model of an image. Use it as a context manager, or `close` it.

    Parameters
    ----------
    device : Machine
        The device, with the image loaded.
    image : Image
        That image.
    system : str or None
        A first message that sets the tone; None leaves it to the template.

    Attributes
    ----------
    messages : list of dict
        What was said so far, `role` and `content`.
    first_token_seconds : float
        From the last question to the first token of its reply.
    """

    def __init__(self, device: Machine, image: Image, system: str | None = None) -> None:
        self.tokenizer = Tokenizer(image.text)
        self.session = Session(device, image)
        self.messages: list[dict[str, str]] = []
        if system is not None:
            self.messages.append({"role": "system", "content": system})
        self.first_token_seconds = 0.0
        self._template = image.text.get("chat_template")

    def prompt(self, text: str) -> list[int]:
        """Token ids of the whole conversation with `text` as the user's next message."""
        t = self.tokenizer
        template = ChatTemplate(self._template, "" if t.bos is None else t.token(t.bos),
                                t.token(t.eos[0]) if t.eos else "")
        return t.encode(template.render([*self.messages, {"role": "user", "content": text}]))

    def ask(self, text: str, sampling: Sampling = GREEDY,
            max_tokens: int | None = None) -> Iterator[str]:
        """Pieces of the reply as they become certain. Only what is new is processed."""
        return self._reply(text, self.prompt(text), sampling, max_tokens)

    def complete(self, text: str, sampling: Sampling = GREEDY,
                 max_tokens: int | None = None) -> Iterator[str]:
        """Pieces of the text that follows `text`, without any template."""
        return self._stream(self.tokenizer.encode(text), sampling, max_tokens)

    def _reply(self, text: str, ids: list[int], sampling: Sampling, max_tokens: int | None) -> Iterator[str]:
        pieces = []
        for piece in self._stream(ids, sampling, max_tokens):
            pieces.append(piece)
            yield piece
        self.messages.append({"role": "user", "content": text})
        self.messages.append({"role": "assistant", "content": "".join(pieces)})

    def _stream(self, ids: list[int], sampling: Sampling, max_tokens: int | None) -> Iterator[str]:
        started = perf_counter()
        stream = self.tokenizer.stream()
        tokens = self.session.generate(ids, sampling, max_tokens, self.tokenizer.eos)
        for n, token in enumerate(tokens):
            if n == 0:
                self.first_token_seconds = perf_counter() - started
            if piece := stream.push(token):
                yield piece
        if rest := stream.finish():
            yield rest

    def close(self) -> None:
        """Give the slot of the KV cache back."""
        self.session.close()

    def __enter__(self) -> "Conversation":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
