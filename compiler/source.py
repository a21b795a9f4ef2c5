"""A model as every frontend hands it to the compiler: shape, named weights, tokenizer data.

Weights have one set of names whatever the file called them (`weight_names`). Matrices are (out, in); query
and key rows are ordered for half-split rotary: element `i` of a head turns with `i + head_dim / 2`.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from compiler import quant

__all__ = ["ModelShape", "ModelSource", "TokenizerSource", "WeightSource", "weight_names"]

HASH_CHUNK = 1 << 22


@dataclass(frozen=True)
class ModelShape:
    """The numbers of a decoder-only transformer with RMS norms, rotary attention and a gated feed-forward.

    `context` is the longest position the model was trained for. `rope_factors` divide the rotary frequencies,
    one a pair, and are empty when nothing is to be divided. `norm_eps` is added to the mean square.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context: int
    rope_theta: float
    norm_eps: float
    tied_embeddings: bool
    activation: str = "silu"
    rope_factors: tuple[float, ...] = ()

    @property
    def group(self) -> int:
        """Query heads that share one key and value head."""
        return self.heads // self.kv_heads

    @property
    def attention_scale(self) -> float:
        """Factor of the scores before the softmax."""
        return self.head_dim**-0.5

    def rope_frequencies(self) -> np.ndarray:
        """Radians a position, float64 (head_dim / 2)."""
        exponents = np.arange(0, self.head_dim, 2, dtype=np.float64) / self.head_dim
        frequencies = self.rope_theta**-exponents
        return frequencies / np.array(self.rope_factors) if self.rope_factors else frequencies


def weight_names(shape: ModelShape) -> dict[str, tuple[int, ...]]:
    """Every weight that a model of this shape has, with its shape: (out, in), or (length,) for norm gains."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    names: dict[str, tuple[int, ...]] = {"token_embedding": (shape.vocab, shape.hidden)}
    for layer in range(shape.layers):
        names |= {
            f"layers.{layer}.attention_norm": (shape.hidden,),
            f"layers.{layer}.q": (queries, shape.hidden),
            f"layers.{layer}.k": (keys, shape.hidden),
            f"layers.{layer}.v": (keys, shape.hidden),
            f"layers.{layer}.o": (shape.hidden, queries),
            f"layers.{layer}.ffn_norm": (shape.hidden,),
            f"layers.{layer}.gate": (shape.ffn, shape.hidden),
            f"layers.{layer}.up": (shape.ffn, shape.hidden),
            f"layers.{layer}.down": (shape.hidden, shape.ffn),
        }
    names["final_norm"] = (shape.hidden,)
    if not shape.tied_embeddings:
        names["output"] = (shape.vocab, shape.hidden)
    return names


@dataclass(frozen=True)
class WeightSource:
    """One weight, still in the encoding of its file.

    `name` is neutral, `file_name` what the user's file calls it, `type` the encoding (a name that
    `compiler.quant` knows). `raw`: the encoded rows, uint8 (rows, bytes of a row), one row for a vector.
    `order`, when given, lists the file's row for each row of the weight.
    """

    name: str
    file_name: str
    type: str
    shape: tuple[int, ...]
    raw: np.ndarray = field(repr=False)
    order: np.ndarray | None = field(default=None, repr=False)

    @property
    def encoded(self) -> np.ndarray:
        """The encoded rows in the order of the weight."""
        return self.raw if self.order is None else self.raw[self.order]

    def dequantize(self) -> np.ndarray:
        """The values, float32 of `shape`."""
        return quant.dequantize(self.file_name, self.type, self.encoded).reshape(self.shape)

    def blocks(self) -> quant.Blocks:
        """The matrix as blocks that array rows hold, exactly where a row format can."""
        return quant.carry(self.file_name, self.type, self.encoded)


@dataclass(frozen=True)
class TokenizerSource:
    """What a file says about its tokenizer.

    `kind`: "bpe" (byte-level, with `merges`) or "spm" (SentencePiece BPE with byte fallback, with `scores`).
    `split` names the rule that cuts text into words before "bpe" (`compiler.tokenizer_json` knows them).
    `types` are those of SentencePiece: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte.
    Special ids are None where the file gives none. `end_ids` end a reply.
    """

    kind: str
    split: str
    tokens: Sequence[str] = field(repr=False)
    types: np.ndarray = field(repr=False)
    merges: Sequence[str] = field(default=(), repr=False)
    scores: np.ndarray | None = field(default=None, repr=False)
    bos_id: int | None = None
    eos_id: int | None = None
    unknown_id: int | None = None
    padding_id: int | None = None
    end_ids: tuple[int, ...] = ()
    add_bos: bool = False
    add_eos: bool = False
    add_space_prefix: bool = False


@dataclass(frozen=True)
class ModelSource:
    """A model file, read but not yet translated. Make one with `compiler.frontends.load.load_model`."""

    path: Path
    name: str
    architecture: str
    licence: str
    shape: ModelShape
    weights: Mapping[str, WeightSource] = field(repr=False)
    tokenizer: TokenizerSource | None = field(repr=False)
    chat_template: str | None = field(repr=False)

    @cached_property
    def sha256(self) -> str:
        """Hex digest of the file."""
        digest = hashlib.sha256()
        with open(self.path, "rb") as file:
            while chunk := file.read(HASH_CHUNK):
                digest.update(chunk)
        return digest.hexdigest()

    def dequantized(self) -> dict[str, np.ndarray]:
        """Every weight as float32, by neutral name."""
        return {name: weight.dequantize() for name, weight in self.weights.items()}
