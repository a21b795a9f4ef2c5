"""Typed access to the keys of a GGUF file, and the tokenizer keys that all architectures share."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from compiler.errors import ModelFileError
from compiler.frontends.gguf import GgufFile, StringArray
from compiler.source import TokenizerSource

__all__ = ["Keys", "read_chat_template", "read_tokenizer"]

REQUIRED = object()

#: `tokenizer.ggml.model` -> kind of tokenizer.
TOKENIZER_KINDS = {"gpt2": "bpe", "llama": "spm"}


class Keys:
    """The keys of one file; each getter names the file, the key and what it found when the value is wrong."""

    def __init__(self, path: Path, metadata: Mapping[str, Any]) -> None:
        self.path = path
        self.metadata = metadata

    def get(self, key: str, wanted: str, fits: type | tuple[type, ...], default: Any) -> Any:
        return self.check(key, self.metadata.get(key, default), wanted, fits, default)

    def check(self, key: str, value: Any, wanted: str, fits: type | tuple[type, ...], default: Any) -> Any:
        if value is REQUIRED:
            raise ModelFileError(
                f"{self.path}: wanted key {key!r} ({wanted}), found none; convert the model again"
            )
        # bool is an int to Python, not to a model file.
        right = isinstance(value, fits) and (fits is bool or not isinstance(value, bool))
        if value is not default and not right:
            raise ModelFileError(
                f"{self.path}: wanted {wanted} as {key!r}, found {value!r}; convert the model again"
            )
        return value

    def integer(self, key: str, default: Any = REQUIRED, least: int = 1) -> Any:
        """A whole number of at least `least`; an array with one equal value a layer counts as that value."""
        value = self.metadata.get(key, default)
        if isinstance(value, np.ndarray):
            if len(np.unique(value)) != 1:
                raise ModelFileError(
                    f"{self.path}: wanted one value of {key!r} for all layers, found {value.tolist()!r}; "
                    "models whose layers differ are not supported"
                )
            value = value[0].item()
        value = self.check(key, value, "a whole number", int, default)
        if value is not default and value < least:
            raise ModelFileError(
                f"{self.path}: wanted at least {least} as {key!r}, found {value}; the file is damaged"
            )
        return value

    def number(self, key: str, default: Any = REQUIRED) -> Any:
        value = self.get(key, "a number", (int, float), default)
        return value if value is default else float(value)

    def flag(self, key: str, default: bool) -> bool:
        return self.get(key, "true or false", bool, default)

    def text(self, key: str, default: Any = REQUIRED) -> Any:
        return self.get(key, "text", str, default)


def read_tokenizer(file: GgufFile, vocab: int) -> TokenizerSource | None:
    """The tokenizer of the file, None when it has none. `vocab` is the number of embedding rows."""
    keys = Keys(file.path, file.metadata)
    model = keys.text("tokenizer.ggml.model", None)
    if model is None or model == "none":
        return None
    if model not in TOKENIZER_KINDS:
        raise ModelFileError(
            f"{file.path}: wanted a tokenizer from {sorted(TOKENIZER_KINDS)} as 'tokenizer.ggml.model', "
            f"found {model!r}; use a model with one of these tokenizers"
        )
    kind = TOKENIZER_KINDS[model]
    tokens = keys.get("tokenizer.ggml.tokens", "an array of texts", StringArray, REQUIRED)
    if len(tokens) > vocab:
        raise ModelFileError(
            f"{file.path}: wanted at most {vocab} tokens, one for each row of the embedding, found "
            f"{len(tokens)}; convert the model again"
        )

    def special(name: str) -> int | None:
        token = keys.integer(f"tokenizer.ggml.{name}_token_id", None, least=0)
        if token is not None and token >= len(tokens):
            raise ModelFileError(
                f"{file.path}: wanted a token id below {len(tokens)} as 'tokenizer.ggml.{name}_token_id', "
                f"found {token}; convert the model again"
            )
        return token

    def numbers(name: str) -> np.ndarray | None:
        values = keys.get(f"tokenizer.ggml.{name}", "an array of numbers", np.ndarray, None)
        if values is not None and len(values) != len(tokens):
            raise ModelFileError(
                f"{file.path}: wanted {len(tokens)} entries in 'tokenizer.ggml.{name}', one for each token, "
                f"found {len(values)}; convert the model again"
            )
        return values

    types = numbers("token_type")
    merges: StringArray | tuple[str, ...] = ()
    scores = None
    if kind == "bpe":
        merges = keys.get("tokenizer.ggml.merges", "an array of texts", StringArray, REQUIRED)
    else:
        scores = numbers("scores")
        if scores is None:
            raise ModelFileError(
                f"{file.path}: wanted key 'tokenizer.ggml.scores' (an array of numbers), found none; "
                "convert the model again"
            )
    eos, eot, eom = special("eos"), special("eot"), special("eom")
    return TokenizerSource(
        kind=kind,
        split=keys.text("tokenizer.ggml.pre", "default"),
        tokens=tokens,
        types=np.ones(len(tokens), np.int32) if types is None else types,
        merges=merges,
        scores=scores,
        bos_id=special("bos"),
        eos_id=eos,
        unknown_id=special("unknown"),
        padding_id=special("padding"),
        end_ids=tuple(sorted({token for token in (eos, eot, eom) if token is not None})),
        # The defaults of a file that does not say are those of the two families.
        add_bos=keys.flag("tokenizer.ggml.add_bos_token", kind == "spm"),
        add_eos=keys.flag("tokenizer.ggml.add_eos_token", False),
        add_space_prefix=keys.flag("tokenizer.ggml.add_space_prefix", kind == "spm"),
    )


def read_chat_template(file: GgufFile) -> str | None:
    """The Jinja text that lays out a conversation, None when the file has none."""
    return Keys(file.path, file.metadata).text("tokenizer.chat_template", None)
