"""Text to token ids and back, from the tokenizer that travels in an image."""

import codecs
import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import tokenizers

from hw.errors import WordlineError

__all__ = ["StreamDecoder", "Tokenizer", "TokenizerError"]

SPACE = "▁"  # SentencePiece's stand-in of the space


class TokenizerError(WordlineError):
    """An image without a usable tokenizer, or an id that is no token."""


class Tokenizer:
    """The tokenizer of an image.

    Parameters
    ----------
    text : mapping
        An image's text section: `tokenizer` (`tokenizers` JSON), `bos` (id or None), `eos` (list of ids that
        end a reply), `add_bos` (whether a text begins with `bos`).
    """

    def __init__(self, text: Mapping[str, Any]) -> None:
        source = text.get("tokenizer")
        if not source:
            raise TokenizerError(
                "a tokenizer was wanted; this image has none: give token ids, or compile a model file "
                "that has one"
            )
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(source)
            self._source = json.loads(source)
        except Exception as error:  # the library raises the bare class
            raise TokenizerError(
                f"a tokenizer was wanted; the image's does not load ({error}): compile it again"
            ) from error
        self.bos: int | None = text.get("bos")
        self.eos: tuple[int, ...] = tuple(text.get("eos", ()))
        self.add_bos = bool(text.get("add_bos", False))

    def __len__(self) -> int:
        """Number of tokens."""
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    @cached_property
    def _plain(self) -> tokenizers.Tokenizer:
        """The same tokenizer, blind to control tokens in the text."""
        plain = tokenizers.Tokenizer.from_str(self._tokenizer.to_str())
        plain.encode_special_tokens = True
        return plain

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids of the control tokens, which decoding leaves out."""
        return frozenset(token["id"] for token in self._source["added_tokens"] if token["special"])

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Token ids of a text.

        With `special`, control tokens written out in the text (as chat templates do) become single ids, and a
        text begins with `bos` when the model wants it (once, also when the text names it itself). Without,
        the text is taken as mere characters: for what a user typed.
        """
        ids = (self._tokenizer if special else self._plain).encode(text, add_special_tokens=False).ids
        if special and self.add_bos and self.bos is not None and ids[:1] != [self.bos]:
            ids = [self.bos, *ids]
        return ids

    def decode(self, ids: Iterable[int], special: bool = False) -> str:
        """The text of some tokens; control tokens are left out unless `special`."""
        stream = StreamDecoder(self, special)
        return "".join([stream.push(index) for index in ids]) + stream.finish()

    def token(self, index: int) -> str:
        """The token's own spelling, as the model file has it."""
        spelling = self._tokenizer.id_to_token(index)
        if spelling is None:
            raise TokenizerError(f"a token id from 0 to {len(self) - 1} was wanted, {index!r} came")
        return spelling

    def stream(self, special: bool = False) -> "StreamDecoder":
        """A decoder for tokens that arrive one by one."""
        return StreamDecoder(self, special)

    @cached_property
    def _byte_level(self) -> bool:
        return (self._source.get("decoder") or {}).get("type") == "ByteLevel"

    @cached_property
    def _strips_first_space(self) -> bool:
        steps = (self._source.get("decoder") or {}).get("decoders", [])
        return any(step["type"] == "Strip" for step in steps)

    @cached_property
    def _byte_of(self) -> dict[str, int]:
        """GPT-2's stand-ins -> bytes: printable Latin-1 stands for itself, the rest follow from 256."""
        plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
        table = {chr(value): value for value in plain}
        for shift, value in enumerate(sorted(set(range(256)) - plain)):
            table[chr(256 + shift)] = value
        return table

    def token_bytes(self, index: int) -> bytes:
        """The bytes that a token stands for in the text."""
        spelling = self.token(index)
        if self._byte_level:
            try:
                return bytes([self._byte_of[char] for char in spelling])
            except KeyError:  # an added token, spelled as itself
                return spelling.encode()
        if len(spelling) == 6 and spelling.startswith("<0x") and spelling.endswith(">"):
            return bytes.fromhex(spelling[3:5])
        return spelling.replace(SPACE, " ").encode()


class StreamDecoder:
    """Turns tokens into text as they arrive, and holds back the bytes of an unfinished character.

    Bytes that can no longer become a character are given as U+FFFD.
    """

    def __init__(self, tokenizer: Tokenizer, special: bool = False) -> None:
        self._tokenizer = tokenizer
        self._hidden: frozenset[int] = frozenset() if special else tokenizer.special_ids
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._at_start = tokenizer._strips_first_space

    def push(self, index: int) -> str:
        """The text that became certain with this token, often empty."""
        if index in self._hidden:
            return ""
        text = self._decoder.decode(self._tokenizer.token_bytes(index))
        if self._at_start and text:
            self._at_start = False
            text = text.removeprefix(" ")
        return text

    def finish(self) -> str:
        """What is left when no more tokens come: U+FFFD for an unfinished character, else nothing."""
        return self._decoder.decode(b"", final=True)
