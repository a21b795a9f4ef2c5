"""The fp32 forward pass of a plain transformer, by NumPy and BLAS: what the machine's answers are judged by.

It runs a whole text at once (teacher forcing). Its sums are in whatever order BLAS takes, so compare with it
by divergence and perplexity (`sim.metrics`), never bit by bit.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

__all__ = ["Shape", "forward", "hidden_states", "logits"]

#: Rows of logits made at a time; a chunk of 128 for a vocabulary of 50,000 takes 25 MB.
LOGIT_CHUNK = 128


class Shape(Protocol):
    """The numbers of a model that the forward pass needs."""

    @property
    def layers(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def norm_eps(self) -> float: ...
    @property
    def attention_scale(self) -> float: ...
    @property
    def activation(self) -> str: ...
    def rope_frequencies(self) -> np.ndarray: ...


def rms_norm(x: np.ndarray, gain: np.ndarray, eps: float) -> np.ndarray:
    """x (n, hidden) over its root mean square, times the gain (hidden,)."""
    mean = np.mean(np.square(x), axis=-1, keepdims=True)
    return x / np.sqrt(mean + np.float32(eps)) * gain


def rotate(x: np.ndarray, cosine: np.ndarray, sine: np.ndarray) -> np.ndarray:
    """Half-split rotary: x (heads, n, head_dim), cosine and sine (n, head_dim / 2)."""
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate((first * cosine - second * sine, second * cosine + first * sine), axis=-1)


def softmax(x: np.ndarray) -> np.ndarray:
    """Over the last axis, in place."""
    x -= x.max(axis=-1, keepdims=True)
    np.exp(x, out=x)
    x /= x.sum(axis=-1, keepdims=True)
    return x


def silu(x: np.ndarray) -> np.ndarray:
    """x sigmoid(x), without an overflow for large negative x."""
    return x * (np.float32(0.5) + np.float32(0.5) * np.tanh(np.float32(0.5) * x))


ACTIVATIONS = {"silu": silu}


def hidden_states(shape: Shape, weights: Mapping[str, np.ndarray], tokens: Sequence[int]) -> np.ndarray:
    """The state that the output projection reads, after the final norm: float32 (n, hidden).

    `weights`: float32, by the neutral names of the compiler's model source; matrices are (out, in), query and
    key rows in half-split rotary order.
    """
    if shape.activation not in ACTIVATIONS:
        raise ValueError(f"wanted an activation from {sorted(ACTIVATIONS)}, found {shape.activation!r}")
    n, heads, kv_heads, dim = len(tokens), shape.heads, shape.kv_heads, shape.head_dim
    angles = np.arange(n)[:, None] * shape.rope_frequencies()
    cosine, sine = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)  # (n, dim / 2)
    future = np.triu(np.full((n, n), -np.inf, np.float32), 1)
    activation = ACTIVATIONS[shape.activation]

    def split(x: np.ndarray, count: int) -> np.ndarray:
        return x.reshape(n, count, dim).swapaxes(0, 1)  # (count, n, dim)

    x = weights["token_embedding"][np.asarray(tokens)]  # (n, hidden)
    for layer in range(shape.layers):
        w = {kind: weights[f"layers.{layer}.{kind}"] for kind in KINDS}
        y = rms_norm(x, w["attention_norm"], shape.norm_eps)
        q = rotate(split(y @ w["q"].T, heads), cosine, sine)
        k = rotate(split(y @ w["k"].T, kv_heads), cosine, sine)
        v = split(y @ w["v"].T, kv_heads)
        attended = np.empty((heads, n, dim), np.float32)
        for head in range(heads):
            shared = head * kv_heads // heads
            scores = q[head] @ k[shared].T * np.float32(shape.attention_scale) + future  # (n, n)
            attended[head] = softmax(scores) @ v[shared]
        x = x + attended.swapaxes(0, 1).reshape(n, heads * dim) @ w["o"].T
        y = rms_norm(x, w["ffn_norm"], shape.norm_eps)
        x = x + (activation(y @ w["gate"].T) * (y @ w["up"].T)) @ w["down"].T
    return rms_norm(x, weights["final_norm"], shape.norm_eps)


KINDS = ("attention_norm", "q", "k", "v", "o", "ffn_norm", "gate", "up", "down")


def logits(weights: Mapping[str, np.ndarray], states: np.ndarray) -> np.ndarray:
    """Output projection of states (n, hidden): float32 (n, vocab); the embedding serves where it is tied."""
    output = weights["output"] if "output" in weights else weights["token_embedding"]
    return states @ output.T


def forward(
    shape: Shape, weights: Mapping[str, np.ndarray], tokens: Sequence[int], *, chunk: int = LOGIT_CHUNK
) -> Iterator[tuple[int, np.ndarray]]:
    """Logits after each token of a text, in chunks: (position of the first row, float32 (rows, vocab))."""
    states = hidden_states(shape, weights, tokens)
    for start in range(0, len(tokens), chunk):
        yield start, logits(weights, states[start : start + chunk])
