"""Writes small random models as GGUF files, with the `gguf` library and so independent of our reader.

The default has odd sizes, mixed weight types, a trained byte-level tokenizer and a chat template, in about
300 kB. The same arguments give the same bytes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import libgguf
import numpy as np

__all__ = ["CHAT_TEMPLATE", "RandomModel", "interleave_rotary", "write_random_model"]

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CORPUS = (
    "the memory holds the rows and the rows hold the weights; a word line opens a row, the row is "
    "read, and the sum of the products is added to the sum that was there before. user assistant "
    "system: what is in the array? nothing is moved that could have stayed where it was, for moving a "
    "number costs more than adding it. every tile does the same thing at the same time with its own "
    "data, and a single block of numbers travels between them while the next one is prepared. "
)

#: Weight kind -> types, one a layer in turn.
MIXED_TYPES: dict[str, tuple[str, ...]] = {
    "token_embedding": ("Q8_0",),
    "q": ("Q4_1", "Q8_0", "Q5_0"),
    "k": ("Q8_0", "Q4_1", "F16"),
    "v": ("Q4_1", "Q5_1", "Q8_0"),
    "o": ("Q4_1", "Q4_0", "Q8_0"),
    "gate": ("Q4_1",),
    "up": ("Q4_1", "Q4_0"),
    "down": ("Q8_0", "Q4_1", "F32"),
    "output": ("F16",),
}
FILE_NAMES = {"q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output"}


@dataclass(frozen=True)
class RandomModel:
    """What `write_random_model` wrote: sizes, the neutral fp32 weights before encoding, the tokens."""

    path: Path
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context: int
    rope_theta: float
    tied: bool
    tokens: list[str] = field(repr=False)
    weights: dict[str, np.ndarray] = field(repr=False)


def byte_symbols() -> list[str]:
    """GPT-2's printable stand-ins of the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [value for value in range(256) if value not in plain]
    table = {value: chr(value) for value in plain} | {v: chr(256 + i) for i, v in enumerate(others)}
    return [table[value] for value in range(256)]


def train_merges(count: int) -> list[tuple[str, str]]:
    """The `count` most frequent pairs of `CORPUS`, merged one after another; ties in alphabetic order."""
    symbols = byte_symbols()
    words = Counter(CORPUS.split(" "))
    split = {word: ["Ġ", *(symbols[byte] for byte in word.encode())] for word in words}
    merges: list[tuple[str, str]] = []
    made = set(symbols)
    while len(merges) < count:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, parts in split.items():
            for pair in zip(parts, parts[1:], strict=False):
                pairs[pair] += words[word]
        pairs = Counter({pair: times for pair, times in pairs.items() if pair[0] + pair[1] not in made})
        if not pairs:
            raise ValueError(
                f"wanted {count} merges, the corpus gives {len(merges)}; ask for a smaller vocab"
            )
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        made.add(best[0] + best[1])
        for parts in split.values():
            index = 0
            while index < len(parts) - 1:
                if (parts[index], parts[index + 1]) == best:
                    parts[index : index + 2] = [best[0] + best[1]]
                index += 1
    return merges


def interleave_rotary(weight: np.ndarray, heads: int) -> np.ndarray:
    """Half-split rows -> the interleaved rows that llama files hold."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def encode(values: np.ndarray, type_name: str) -> tuple[np.ndarray, gguf.GGMLQuantizationType]:
    """float32 rows -> encoded rows and the type's number."""
    kind = gguf.GGMLQuantizationType[type_name]
    if type_name == "F32":
        return values, kind
    if type_name == "F16":
        return values.astype(np.float16), kind
    return np.ascontiguousarray(libgguf.quantize_rows(np.ascontiguousarray(values), kind)).view(
        np.uint8
    ), kind


def write_random_model(
    path: Path,
    *,
    seed: int = 0,
    layers: int = 3,
    hidden: int = 96,
    heads: int = 3,
    kv_heads: int = 1,
    head_dim: int = 32,
    ffn: int = 160,
    vocab: int = 413,
    context: int = 256,
    rope_theta: float = 10000.0,
    tied: bool = False,
    types: Mapping[str, Sequence[str]] | None = None,
    extra_keys: Mapping[str, int | float | bool | str] | None = None,
) -> RandomModel:
    """Write a llama-architecture model with random weights.

    `types` replaces entries of `MIXED_TYPES`. `extra_keys` are written as they are, for tests of refusals.
    """
    rng = np.random.default_rng(seed)
    types = {**MIXED_TYPES, **(types or {})}
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(f"random llama {seed}")
    writer.add_license("CC0-1.0")
    writer.add_block_count(layers)
    writer.add_context_length(context)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(rope_theta)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocab)

    merges = train_merges(vocab - len(SPECIALS) - 256)
    tokens = [*SPECIALS, *byte_symbols(), *(left + right for left, right in merges)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIALS) + [1] * (vocab - len(SPECIALS)))
    writer.add_token_merges([f"{left} {right}" for left, right in merges])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)
    add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    for key, value in (extra_keys or {}).items():
        add[type(value)](key, value)

    weights: dict[str, np.ndarray] = {}

    def matrix(name: str, file_name: str, kind: str, rows: int, columns: int, layer: int = 0) -> None:
        values = rng.standard_normal((rows, columns)).astype(np.float32) / np.float32(np.sqrt(columns))
        if kind in ("token_embedding", "output"):
            values *= np.float32(4)  # well separated logits
        weights[name] = values
        if kind in ("q", "k"):
            values = interleave_rotary(values, rows // head_dim)
        data, number = encode(values, types[kind][layer % len(types[kind])])
        writer.add_tensor(f"{file_name}.weight", data, raw_dtype=number)

    def gain(name: str, file_name: str) -> None:
        weights[name] = (1 + 0.2 * rng.standard_normal(hidden)).astype(np.float32)
        writer.add_tensor(f"{file_name}.weight", weights[name])

    matrix("token_embedding", "token_embd", "token_embedding", vocab, hidden)
    for layer in range(layers):
        shapes = {
            "q": (heads * head_dim, hidden),
            "k": (kv_heads * head_dim, hidden),
            "v": (kv_heads * head_dim, hidden),
            "o": (hidden, heads * head_dim),
            "gate": (ffn, hidden),
            "up": (ffn, hidden),
            "down": (hidden, ffn),
        }
        gain(f"layers.{layer}.attention_norm", f"blk.{layer}.attn_norm")
        gain(f"layers.{layer}.ffn_norm", f"blk.{layer}.ffn_norm")
        for kind, (rows, columns) in shapes.items():
            file_name = f"blk.{layer}.{FILE_NAMES.get(kind, f'ffn_{kind}')}"
            matrix(f"layers.{layer}.{kind}", file_name, kind, rows, columns, layer)
    gain("final_norm", "output_norm")
    if not tied:
        matrix("output", "output", "output", vocab, hidden)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    sizes = (layers, hidden, heads, kv_heads, head_dim, ffn, vocab, context)
    return RandomModel(Path(path), *sizes, rope_theta, tied, tokens, weights)
