"""Text that must follow a grammar: JSON, a JSON schema, a regular expression, a choice, or a grammar in Lark or GBNF.

The work is done by `llguidance`, which finds the tokens that may come next in well under a millisecond.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import llguidance
import numpy as np
from llguidance.gbnf_to_lark import any_to_lark

from hw.errors import WordlineError
from runtime.tokenizer import Tokenizer

__all__ = ["Grammar", "GrammarError", "Vocabulary", "any_json", "choice", "from_text", "json_schema", "regex"]

WHITESPACE = r"[ \n\t]{0,16}"
"""Between the parts of a JSON text. Bounded: a model that is unsure would go on with spaces for ever."""


class GrammarError(WordlineError):
    """A grammar that is none, or that uses what is not supported."""


def json_schema(schema: Mapping[str, Any] | bool) -> str:
    """The grammar of JSON texts that a schema describes."""
    return llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema),
                                                         overrides={"whitespace_pattern": WHITESPACE})


def any_json() -> str:
    """The grammar of all JSON objects."""
    return json_schema({"type": "object"})


def regex(pattern: str) -> str:
    """The grammar of texts that a regular expression matches."""
    return llguidance.LLMatcher.grammar_from_regex(pattern)


def choice(texts: Sequence[str]) -> str:
    """The grammar of a few texts."""
    return from_text("start: " + " | ".join(json.dumps(text, ensure_ascii=False) for text in texts))


def from_text(text: str) -> str:
    """A grammar in Lark's notation, or in llama.cpp's (GBNF)."""
    try:
        return llguidance.LLMatcher.grammar_from_lark(any_to_lark(text))
    except Exception as error:  # the translation of GBNF raises the bare class
        raise GrammarError(f"a grammar in Lark or GBNF was wanted; this one is neither: {error}") from error


class _Adapter:
    """The tokenizer in the form that the library asks for."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.eos_token_id = tokenizer.eos[0]
        self.bos_token_id = tokenizer.bos
        self.tokens = [tokenizer.token_bytes(n) for n in range(len(tokenizer))]
        self.special_token_ids = sorted(tokenizer.special_ids)
        self._tokenizer = tokenizer

    def __call__(self, text: bytes | str) -> list[int]:
        return self._tokenizer.encode(text.decode() if isinstance(text, bytes) else text, special=False)


class Vocabulary:
    """The tokens of a model, indexed once for all grammars.

    Parameters
    ----------
    tokenizer : Tokenizer
        The model's. It must have a token that ends a text.
    size : int
        Number of logits.
    """

    def __init__(self, tokenizer: Tokenizer, size: int) -> None:
        if not tokenizer.eos:
            raise GrammarError("a token that ends a text was wanted; this model's tokenizer has none: leave the "
                               "grammar out")
        self.size = size
        self._tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Adapter(tokenizer)), n_vocab=size,
                                                 eos_token=list(tokenizer.eos))

    def compile(self, grammar: str) -> "Grammar":
        """A grammar that sequences can be bound to; raises `GrammarError`."""
        matcher = llguidance.LLMatcher(self._tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise GrammarError(f"a grammar was wanted; this one cannot be used: {matcher.get_error().strip()}")
        return Grammar(matcher, self.size)


class Grammar:
    """A grammar and how far one sequence is in it."""

    def __init__(self, matcher: llguidance.LLMatcher, size: int) -> None:
        self._matcher = matcher
        self._mask = np.zeros(-(-size // 32), np.int32)
        self.size = size

    def copy(self) -> "Grammar":
        """The same grammar at its beginning, for another sequence."""
        matcher = self._matcher.deep_copy()
        matcher.reset()
        return Grammar(matcher, self.size)

    def mask(self, logits: np.ndarray) -> np.ndarray:
        """A copy of logits (vocab,) with minus infinity for every token that may not come next."""
        self._matcher.unsafe_compute_mask_ptr(self._mask.ctypes.data, self._mask.nbytes)
        self._check()
        allowed = np.unpackbits(self._mask.view(np.uint8), bitorder="little")[:self.size]
        return np.where(allowed, logits, -np.inf)

    def accept(self, token: int) -> None:
        """This token came."""
        self._matcher.consume_token(token)
        self._check()

    @property
    def complete(self) -> bool:
        """Whether nothing may follow."""
        return bool(self._matcher.is_stopped())

    def _check(self) -> None:
        if self._matcher.is_error():
            raise GrammarError(f"the grammar could not be followed: {self._matcher.get_error().strip()}")
