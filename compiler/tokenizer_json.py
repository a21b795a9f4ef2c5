"""Builds the text of a Hugging Face `tokenizers` file from a model file's tokenizer data, for the image.

Two kinds: byte-level BPE (GPT-2 and its descendants, which differ in how they cut text into words), and
SentencePiece BPE with byte fallback (Llama 2), whose merges follow from the scores of its pieces.
"""

import json
from typing import Any

import numpy as np

from compiler.errors import ModelFileError
from compiler.source import TokenizerSource

__all__ = ["SPLITS", "build", "image_text"]

UNKNOWN, CONTROL, USER_DEFINED, BYTE = 2, 3, 4, 6
SPACE = "▁"  # SentencePiece's stand-in of the space

#: Contractions, words, digits, punctuation and spaces as Llama 3 and Qwen 2 cut them; they differ in digits.
MODERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


def _byte_level(use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _cut_by(pattern: str) -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, _byte_level(False)]}


#: `_byte_level(True)` cuts by GPT-2's own pattern.
GPT2 = _byte_level(True)
SINGLE_DIGITS = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, GPT2]}
LLAMA3 = _cut_by(MODERN.replace("DIGITS", r"\p{N}{1,3}"))
QWEN2 = _cut_by(MODERN.replace("DIGITS", r"\p{N}"))

#: Name of a splitting rule in model files -> its pre-tokenizer.
SPLITS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("default", "gpt-2", "phi-2", "mpt", "olmo", "jais"), GPT2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"), SINGLE_DIGITS),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3"), LLAMA3),
    **dict.fromkeys(("qwen2", "stablelm2", "deepseek-r1-qwen"), QWEN2),
}
#: Rules whose tokenizers take a whole word that is a token before they try merges.
WHOLE_WORDS_FIRST = {"llama-bpe", "llama3", "llama-v3", "falcon3"}
#: Rules whose tokenizers compose characters first.
COMPOSED = {"qwen2", "deepseek-r1-qwen"}


def _added(source: TokenizerSource, tokens: list[str]) -> list[dict[str, Any]]:
    """Control tokens, which text may name but plain text does not contain, and user-defined ones."""
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    kinds = np.asarray(source.types)
    return [
        {"id": int(i), "content": tokens[i], **plain, "special": bool(kinds[i] != USER_DEFINED)}
        for i in np.flatnonzero(np.isin(kinds, (UNKNOWN, CONTROL, USER_DEFINED)))
    ]


def _merges_from_scores(tokens: list[str], scores: np.ndarray, types: np.ndarray) -> list[tuple[str, str]]:
    """All ways to make a piece of two pieces, best piece first: what SentencePiece does at every step."""
    ids = {token: index for index, token in enumerate(tokens)}
    found: list[tuple[float, int, int, str, str]] = []
    for index, token in enumerate(tokens):
        if types[index] in (UNKNOWN, CONTROL, BYTE):
            continue
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ids and right in ids:
                found.append((-float(scores[index]), ids[left], ids[right], left, right))
    found.sort()
    return [(left, right) for *_, left, right in found]


def _byte_level_parts(source: TokenizerSource) -> dict[str, Any]:
    if source.split not in SPLITS:
        raise ModelFileError(
            f"wanted a tokenizer that cuts words by one of the rules {', '.join(sorted(SPLITS))}, found "
            f"{source.split!r}; use a model with one of these tokenizers"
        )
    merges = [tuple(merge.split(" ")) for merge in source.merges]
    if (bad := next((i for i, merge in enumerate(merges) if len(merge) != 2), None)) is not None:
        raise ModelFileError(
            f"wanted two tokens in every merge, found {source.merges[bad]!r} as merge {bad}; "
            "convert the model again"
        )
    return {
        "normalizer": {"type": "NFC"} if source.split in COMPOSED else None,
        "pre_tokenizer": SPLITS[source.split],
        "decoder": _byte_level(True),
        "merges": merges,
    }


def _sentencepiece_parts(source: TokenizerSource, tokens: list[str]) -> dict[str, Any]:
    if source.scores is None:
        raise ModelFileError(
            "wanted the scores of a SentencePiece tokenizer, found none; convert the model again"
        )
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    prepend = {"type": "Prepend", "prepend": SPACE}
    steps = [prepend, replace] if source.add_space_prefix else [replace]
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if source.add_space_prefix else []
    back = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip],
        },
        "merges": _merges_from_scores(tokens, source.scores, source.types),
    }


def build(source: TokenizerSource) -> str:
    """The `tokenizers` JSON text. Raises `ModelFileError` for data that no such tokenizer can be made of."""
    tokens = list(source.tokens)
    vocabulary = {token: index for index, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        twice = next(i for i, token in enumerate(tokens) if vocabulary[token] != i)
        raise ModelFileError(
            f"wanted every token once, found {tokens[twice]!r} as {twice} and {vocabulary[tokens[twice]]}; "
            "convert the model again"
        )
    spm = source.kind == "spm"
    parts = _sentencepiece_parts(source, tokens) if spm else _byte_level_parts(source)
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": tokens[source.unknown_id] if spm and source.unknown_id is not None else None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": spm,
        "byte_fallback": spm,
        "ignore_merges": source.split in WHOLE_WORDS_FIRST and not spm,
        "vocab": vocabulary,
        "merges": parts.pop("merges"),
    }
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added(source, tokens),
        **parts,
        "post_processor": None,
        "model": model,
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def image_text(source: TokenizerSource | None, chat_template: str | None) -> dict[str, Any]:
    """What an image says about text; empty for a model without a tokenizer, which takes token ids only."""
    if source is None:
        return {}
    return {
        "tokenizer": build(source),
        "chat_template": chat_template,
        "bos": source.bos_id,
        "eos": list(source.end_ids),
        "add_bos": source.add_bos,
    }
