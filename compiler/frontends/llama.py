"""Reads GGUF files of architecture `llama`: Llama, SmolLM2, Mistral and their like.

Keys and tensors that are not listed here are refused rather than ignored: a bias or a window that is left out
gives a model that speaks, and speaks wrongly.
"""

from typing import Any

import numpy as np

from compiler import quant
from compiler.errors import ModelFileError
from compiler.frontends.gguf import GgufFile
from compiler.frontends.keys import Keys, read_chat_template, read_tokenizer
from compiler.source import ModelShape, ModelSource, WeightSource, weight_names

__all__ = ["read"]

ACTIVATION = "silu"

#: Keys that `_shape` reads, without their "llama." prefix.
READ_KEYS = {
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "rope.freq_base",
    "rope.dimension_count",
    "rope.scaling.type",
    "rope.scaling.factor",
    "vocab_size",
}
#: Keys that say nothing about the computation.
IGNORED_KEYS = {"tensor_data_layout", "rope.scaling.original_context_length", "rope.scaling.finetuned"}
#: Keys that change the computation unless they have this value.
NEUTRAL_VALUES: dict[str, Any] = {
    "expert_count": 0,
    "expert_used_count": 0,
    "attention.sliding_window": 0,
    "attention.causal": True,
    "use_parallel_residual": False,
    "rope.scaling.attn_factor": 1.0,
    "attn_logit_softcapping": 0.0,
    "final_logit_softcapping": 0.0,
}

#: Neutral name -> name in the file, `*` standing for the layer.
TENSOR_NAMES = {
    "token_embedding": "token_embd.weight",
    "layers.*.attention_norm": "blk.*.attn_norm.weight",
    "layers.*.q": "blk.*.attn_q.weight",
    "layers.*.k": "blk.*.attn_k.weight",
    "layers.*.v": "blk.*.attn_v.weight",
    "layers.*.o": "blk.*.attn_output.weight",
    "layers.*.ffn_norm": "blk.*.ffn_norm.weight",
    "layers.*.gate": "blk.*.ffn_gate.weight",
    "layers.*.up": "blk.*.ffn_up.weight",
    "layers.*.down": "blk.*.ffn_down.weight",
    "final_norm": "output_norm.weight",
    "output": "output.weight",
}
ROPE_FACTORS = "rope_freqs.weight"


def read(file: GgufFile) -> ModelSource:
    """The model in the file. Raises `ModelFileError` naming what is missing or not supported."""
    keys = Keys(file.path, file.metadata)
    _refuse_foreign_keys(file)
    shape = _shape(file, keys)
    return ModelSource(
        path=file.path,
        name=keys.text("general.name", file.path.stem),
        architecture="llama",
        licence=keys.text("general.license", "unknown"),
        shape=shape,
        weights=_weights(file, shape),
        tokenizer=read_tokenizer(file, shape.vocab),
        chat_template=read_chat_template(file),
    )


def _refuse_foreign_keys(file: GgufFile) -> None:
    if file.metadata.get("split.count", 1) not in (0, 1):
        raise ModelFileError(
            f"{file.path}: wanted a whole model, found one of {file.metadata['split.count']} parts; "
            "merge the parts into one file"
        )
    for key, value in file.metadata.items():
        name = key.removeprefix("llama.")
        if name == key or name in READ_KEYS or name in IGNORED_KEYS:
            continue
        if name not in NEUTRAL_VALUES or value != NEUTRAL_VALUES[name]:
            wanted = f"{NEUTRAL_VALUES[name]!r} or nothing" if name in NEUTRAL_VALUES else "nothing"
            shown = repr(value) if np.ndim(value) == 0 else "an array"
            raise ModelFileError(
                f"{file.path}: wanted {wanted} as {key!r}, found {shown}; "
                "models that need this are not supported"
            )


def _shape(file: GgufFile, keys: Keys) -> ModelShape:
    hidden = keys.integer("llama.embedding_length")
    heads = keys.integer("llama.attention.head_count")
    kv_heads = keys.integer("llama.attention.head_count_kv", heads)
    head_dim = keys.integer("llama.attention.key_length", hidden // heads)
    tied = TENSOR_NAMES["output"] not in file.tensors
    embedding = file.tensors.get(TENSOR_NAMES["token_embedding"])
    if embedding is None:
        raise ModelFileError(
            f"{file.path}: wanted tensor {TENSOR_NAMES['token_embedding']!r}, found none; "
            "convert the model again"
        )
    for key in ("llama.rope.dimension_count", "llama.attention.value_length"):
        if (found := keys.integer(key, head_dim)) != head_dim:
            raise ModelFileError(
                f"{file.path}: wanted the head size {head_dim} as {key!r}, found {found}; "
                "heads of mixed size or with partial rotary are not supported"
            )
    if heads % kv_heads or head_dim % 2:
        raise ModelFileError(
            f"{file.path}: wanted an even head size and a multiple of {kv_heads} key heads, found "
            f"{heads} heads of {head_dim}; the file is damaged"
        )
    return ModelShape(
        layers=keys.integer("llama.block_count"),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=keys.integer("llama.feed_forward_length"),
        vocab=embedding.shape[0],
        context=keys.integer("llama.context_length"),
        rope_theta=keys.number("llama.rope.freq_base", 10000.0),
        norm_eps=keys.number("llama.attention.layer_norm_rms_epsilon"),
        tied_embeddings=tied,
        activation=ACTIVATION,
        rope_factors=_rope_factors(file, keys, head_dim // 2),
    )


def _rope_factors(file: GgufFile, keys: Keys, pairs: int) -> tuple[float, ...]:
    # A factor without a type is linear, as llama.cpp reads it.
    scaling = keys.text("llama.rope.scaling.type", "linear")
    if scaling not in ("none", "linear"):
        raise ModelFileError(
            f"{file.path}: wanted 'none' or 'linear' as 'llama.rope.scaling.type', found {scaling!r}; "
            "other rotary scalings are not supported"
        )
    linear = keys.number("llama.rope.scaling.factor", 0.0) if scaling == "linear" else 0.0
    factors = np.full(pairs, linear or 1.0)
    if (tensor := file.tensors.get(ROPE_FACTORS)) is not None:
        if tensor.shape != (pairs,):
            raise ModelFileError(
                f"{file.path}: wanted shape {(pairs,)} of tensor {ROPE_FACTORS!r}, found {tensor.shape}; "
                "convert the model again"
            )
        factors = factors * quant.dequantize(ROPE_FACTORS, tensor.type, tensor.view)[0]
    return () if np.all(factors == 1) else tuple(factors.tolist())


def _rotary_order(heads: int, head_dim: int) -> np.ndarray:
    """The file's row of each row: files of this architecture interleave the two halves of a rotary pair."""
    rows = np.arange(heads * head_dim).reshape(heads, head_dim // 2, 2)
    return np.ascontiguousarray(rows.swapaxes(1, 2)).reshape(-1)


def _weights(file: GgufFile, shape: ModelShape) -> dict[str, WeightSource]:
    weights: dict[str, WeightSource] = {}
    for name, wanted in weight_names(shape).items():
        layer = name.split(".")[1] if name.startswith("layers.") else "*"
        kind = name.rsplit(".", 1)[-1]
        pattern = f"layers.*.{kind}" if layer != "*" else name
        file_name = TENSOR_NAMES[pattern].replace("*", layer)
        tensor = file.tensors.get(file_name)
        if tensor is None or tensor.shape != wanted:
            found = "none" if tensor is None else f"shape {tensor.shape}"
            raise ModelFileError(
                f"{file.path}: wanted tensor {file_name!r} of shape {wanted}, found {found}; "
                "the file is damaged or not the architecture it claims"
            )
        if tensor.type not in quant.supported_types():
            raise ModelFileError(
                f"{file.path}: wanted one of the types {', '.join(quant.supported_types())} for tensor "
                f"{file_name!r}, found {tensor.type}; convert the model to one of these types"
            )
        heads = {"q": shape.heads, "k": shape.kv_heads}.get(kind)
        order = _rotary_order(heads, shape.head_dim) if heads else None
        weights[name] = WeightSource(name, file_name, tensor.type, wanted, tensor.view, order)
    extra = set(file.tensors) - {weight.file_name for weight in weights.values()} - {ROPE_FACTORS}
    if extra:
        raise ModelFileError(
            f"{file.path}: wanted no tensor but those of a plain llama model, found {sorted(extra)[0]!r}; "
            "biases, experts and other additions are not supported"
        )
    return weights
