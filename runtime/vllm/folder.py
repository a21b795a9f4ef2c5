"""Writes the model folder that vLLM reads: a description, tokenizer and chat template, all taken from an image."""

import hashlib
import json
from pathlib import Path
from typing import Any

from hw.errors import WordlineError
from hw.image import Image
from runtime.tokenizer import Tokenizer
from runtime.vllm.modeltype import ARCHITECTURE, MODEL_TYPE

__all__ = ["digest", "write_folder"]


def digest(image: Image) -> str:
    """Says which model, vocabulary, slots and context an image has."""
    facts = [image.model, image.text, image.kv.slots, image.kv.context, image.logits[1], image.config.fingerprint]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def write_folder(image: Image, path: Path, folder: Path, device: str = "model:") -> list[Path]:
    """Write what vLLM needs to serve the image at `path` on `device`; the files.

    Raises `WordlineError` for an image without a tokenizer.
    """
    text, tokenizer = image.text, Tokenizer(image.text)
    bos = None if tokenizer.bos is None else tokenizer.token(tokenizer.bos)
    eos = tokenizer.token(tokenizer.eos[0]) if tokenizer.eos else None
    files: dict[str, Any] = {
        "config.json": {
            "architectures": [ARCHITECTURE], "model_type": MODEL_TYPE, "image": str(path.resolve()), "device": device,
            "slots": image.kv.slots, "digest": digest(image), "vocab_size": image.logits[1],
            "max_position_embeddings": image.kv.context, "dtype": "float32",
            "bos_token_id": tokenizer.bos, "eos_token_id": list(tokenizer.eos) or None,
            # Nobody computes with these; vLLM wants to read them.
            "hidden_size": 1, "num_hidden_layers": 1, "num_attention_heads": 1,
        },
        "generation_config.json": {"bos_token_id": tokenizer.bos, "eos_token_id": list(tokenizer.eos) or None},
        "tokenizer.json": _tokenizer(text["tokenizer"], bos if tokenizer.add_bos else None, tokenizer.bos),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": bos, "eos_token": eos,
            "model_max_length": image.kv.context, "clean_up_tokenization_spaces": False,
            "chat_template": _template(text.get("chat_template"), bos if tokenizer.add_bos else None),
        },
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            content = {key: value for key, value in content.items() if value is not None}
            (folder / name).write_text(json.dumps(content, ensure_ascii=False, indent=2), encoding="utf-8")
    except OSError as error:
        raise WordlineError(f"{folder}: the folder could not be written ({error.strerror or error}): name another with "
                            "--output") from error
    return [folder / name for name in files]


def _tokenizer(source: str, bos: str | None, index: int | None) -> dict[str, Any]:
    """The image's tokenizer; a text begins with `bos` if that is given."""
    made = json.loads(source)
    if bos is not None:
        made["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {bos: {"id": bos, "ids": [index], "tokens": [bos]}},
        }
    return made


def _template(source: str | None, bos: str | None) -> str | None:
    """The image's chat template; conversations are tokenized as they are, so that it must begin with `bos` itself."""
    if source and bos is not None and "bos_token" not in source and bos not in source:
        return "{{ bos_token }}" + source
    return source
