"""Queries and keys: products, rotary embedding while draining, quantized."""

from compiler.context import Context
from compiler.ir import Node, Op
from compiler.kernels.registry import kernel
from hw.isa import A, B, C, D

__all__: list[str] = []


def _parts(c: Context, node: Node) -> list[tuple[str, int, int, int]]:
    """(weight, heads, first operand block, narrow) of queries and keys."""
    shape, blocks = c.shape, c.g.head_blocks
    c.queries = c.blocks.take(shape.heads * blocks, f"{node.name} queries")
    c.keys = c.blocks.take(shape.kv_heads * blocks, f"{node.name} keys")
    return [("q", shape.heads, c.queries, 0), ("k", shape.kv_heads, c.keys, 1)]


@kernel(Op.ROTATE, "draining")
def draining(c: Context, node: Node) -> None:
    """x*cos + swapped(x)*sin read twice from the accumulators, 1/rms in the last multiplication."""
    g, hw, half = c.g, c.g.head_words, c.g.head_words // 2
    rotary, turned, rms = c.words_of("rotary"), c.words_of("rotated"), c.s["attention_rms"]
    for part, heads, block, narrow in _parts(c, node):
        group = max(1, min(heads, c.config.accumulators // 4 // hw))
        for first in range(0, heads, group):
            n = min(group, heads - first)
            acc = c.accumulate(c.weight(node, part), first * hw, n * hw, c.x["attention"], c.choices.split, node.name)
            for words, shift, table in ((0, half, 2 * half), (half, 0, 3 * half)):
                c.e.vector(outer=n, inner=half, a=A.ACC, z=acc.base + shift, z_o=hw, z_i=1, b=B.X, x=rotary + table,
                           x_i=1, w=1, w_word=turned + words, w_o=hw, w_i=1)
            c.e.vector(outer=n, inner=hw, a=A.ACC, z=acc.base, z_o=hw, z_i=1, b=B.X, x=rotary, x_i=1, c=C.Y, y=turned,
                       y_o=hw, y_i=1, d=D.S, r=rms, quantize=1, narrow=narrow, block=block + first * g.head_blocks,
                       block_o=g.head_blocks)
            c.accumulators.free(acc.base)
            turned += n * hw


@kernel(Op.ROTATE, "from scratch")
def from_scratch(c: Context, node: Node) -> None:
    """The product goes to scratch first, which frees the accumulators one pass earlier."""
    g, hw, half = c.g, c.g.head_words, c.g.head_words // 2
    rotary, turned, rms = c.words_of("rotary"), c.words_of("rotated"), c.s["attention_rms"]
    for part, heads, block, narrow in _parts(c, node):
        plain = c.temporary.take(heads * hw, f"{node.name} {part}")
        group = max(1, min(heads, c.config.accumulators // 4 // hw))
        for first in range(0, heads, group):
            n = min(group, heads - first)
            acc = c.accumulate(c.weight(node, part), first * hw, n * hw, c.x["attention"], c.choices.split, node.name)
            c.e.vector(inner=n * hw, a=A.ACC, z=acc.base, z_i=1, b=B.S, p=rms, w=1, w_word=plain + first * hw, w_i=1)
            c.accumulators.free(acc.base)
        for words, shift, table in ((0, half, 2 * half), (half, 0, 3 * half)):
            c.e.vector(outer=heads, inner=half, a=A.X, x=plain + shift, x_o=hw, x_i=1, b=B.Y, y=rotary + table, y_i=1,
                       w=1, w_word=turned + words, w_o=hw, w_i=1)
        # Three scratch operands would be needed at once: x*cos first, then the sum.
        c.e.vector(outer=heads, inner=hw, a=A.X, x=plain, x_o=hw, x_i=1, b=B.Y, y=rotary, y_i=1, w=1, w_word=plain,
                   w_o=hw, w_i=1)
        c.e.vector(outer=heads, inner=hw, a=A.X, x=plain, x_o=hw, x_i=1, c=C.Y, y=turned, y_o=hw, y_i=1, quantize=1,
                   narrow=narrow, block=block, block_o=g.head_blocks)
        turned += heads * hw
