"""Builds the graph of one decode step from a model's shape, in the model's own vocabulary."""

from compiler.ir import Graph, Op
from compiler.source import ModelShape

__all__ = ["build_graph"]


def build_graph(shape: ModelShape) -> Graph:
    """The operations that turn one token and the cache into logits."""
    g = Graph()
    hidden, ffn = (shape.hidden,), (shape.ffn,)
    queries, keys = (shape.heads, shape.head_dim), (shape.kv_heads, shape.head_dim)
    g.add("token", Op.TOKEN, [], (1,))
    residual = g.add("embedding", Op.EMBED, ["token"], hidden, weight="token_embedding")
    for layer in range(shape.layers):
        def add(name: str, op: Op, inputs: list[str], shape: tuple[int, ...], layer: int = layer,
                **attributes: object) -> str:
            return g.add(f"layers.{layer}.{name}", op, inputs, shape, layer, **attributes)

        def linear(name: str, source: str, shape: tuple[int, ...], layer: int = layer) -> str:
            return g.add(f"layers.{layer}.{name}", Op.LINEAR, [source], shape, layer, weight=f"layers.{layer}.{name}")

        x = add("attention_norm", Op.RMSNORM, [residual], hidden, gain=f"layers.{layer}.attention_norm")
        q, k, v = linear("q", x, queries), linear("k", x, keys), linear("v", x, keys)
        q, k = add("q_rope", Op.ROPE, [q], queries), add("k_rope", Op.ROPE, [k], keys)
        k, v = add("key_cache", Op.CACHE_KEY, [k], keys), add("value_cache", Op.CACHE_VALUE, [v], keys)
        scores = add("scores", Op.SCORES, [q, k], (shape.heads, shape.context))
        weights = add("softmax", Op.SOFTMAX, [scores], (shape.heads, shape.context))
        mixed = add("mix", Op.MIX, [weights, v], queries)
        residual = add("attention_add", Op.ADD, [linear("o", mixed, hidden), residual], hidden)
        x = add("ffn_norm", Op.RMSNORM, [residual], hidden, gain=f"layers.{layer}.ffn_norm")
        gate = add("activation", Op.ACTIVATION, [linear("gate", x, ffn)], ffn, function=shape.activation)
        gated = add("gated", Op.MULTIPLY, [gate, linear("up", x, ffn)], ffn)
        residual = add("ffn_add", Op.ADD, [linear("down", gated, hidden), residual], hidden)
    x = g.add("final_norm", Op.RMSNORM, [residual], hidden, gain="final_norm")
    output = "token_embedding" if shape.tied_embeddings else "output"
    logits = g.add("output", Op.LINEAR, [x], (shape.vocab,), weight=output)
    g.add("next_token", Op.ARGMAX, [logits], (1,))
    return g
