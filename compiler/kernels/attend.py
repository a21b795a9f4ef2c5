"""Attention: scores, softmax and mixture by groups of query heads that share keys and values, quantized."""

from compiler.context import Context
from compiler.ir import Node, Op
from compiler.kernels.registry import kernel
from hw.config import BLOCK
from hw.isa import A, B, C, D, Reduce

__all__: list[str] = []


def _unit(c: Context) -> int:
    """Query heads whose scores are worked on together: as many of a group as leave room for the next ones."""
    group = c.shape.group
    unit = min(group, c.choices.heads or group)
    while unit > 1 and 2 * unit * c.score_words > c.config.accumulators - group * c.g.head_words:
        unit -= 1
    return unit


def _scores(c: Context, node: Node, head: int, n: int) -> int:
    """Scores of `n` heads of one group, in accumulators."""
    blocks = c.g.head_blocks
    acc = c.accumulators.take(n * c.score_words, f"{node.name} scores")
    c.e.multiply("q8", init=1, nj=blocks, nh=n, nr_reg=c.r.key_lines,
                 row=c.keys_row(node.layer, head // c.shape.group), row_reg=c.r.key_base, row_j=c.g.key_plane, row_r=1,
                 block=c.queries + head * blocks, block_h=blocks, acc=acc, acc_h=c.score_words)
    return acc


def _softmax(c: Context, node: Node, head: int, n: int, acc: int, sums: int, weights: int) -> None:
    """Maxima, then numerators times the values' scales as operand blocks at `weights`, and their sums."""
    most = c.scalars.take(n, node.name)
    drain = dict(outer=n, a=A.ACC, z=acc, z_o=c.score_words, z_i=1, b=B.S, p=c.placement.constant("score_scale"),
                 mask=1, length_reg=c.r.length, reduce_init=1, reduce_emit=1, r_dest_o=1)
    c.e.vector(**drain, inner_reg=c.r.key_lines, reduce=Reduce.MAX, r_dest=most)
    c.e.vector(**drain, inner_reg=c.r.score_words, c=C.S, c_negate=1, q=most, q_o=1, function=c.functions["exp2"],
               d=D.X, x=c.value_scales(node.layer, head // c.shape.group), x_reg=c.r.key_base, x_i=1,
               reduce=Reduce.SUM, reduce_early=1, r_dest=sums, quantize=1, block=weights, block_o=c.score_blocks)
    c.scalars.free(most)


@kernel(Op.ATTEND, "by group")
def by_group(c: Context, node: Node) -> None:
    """Scores by as many heads as fit, mixtures by whole groups; each group's output is an operand of its own."""
    g, shape, hw, group = c.g, c.shape, c.g.head_words, c.shape.group
    dim_words, direct = shape.head_dim // g.tiles, shape.head_dim % BLOCK == 0
    total = g.blocks(shape.heads * shape.head_dim)
    out = c.blocks.take(total, f"{node.name} mixed")
    unit = _unit(c)
    for kv in range(shape.kv_heads):
        sums = c.scalars.take(group, node.name)
        weights = c.blocks.take(group * c.score_blocks, f"{node.name} probabilities")
        for first in range(0, group, unit):
            n = min(unit, group - first)
            acc = _scores(c, node, kv * group + first, n)
            _softmax(c, node, kv * group + first, n, acc, sums + first, weights + first * c.score_blocks)
            c.accumulators.free(acc)
        inverse = c.scalars.take(group, node.name)
        c.e.vector(outer=group, inner=1, a=A.S, p=sums, p_o=1, function=c.functions["recip"], reduce=Reduce.TAKE,
                   reduce_init=1, reduce_emit=1, r_dest=inverse, r_dest_o=1)
        acc = c.accumulators.take(group * hw, f"{node.name} mixture")
        c.e.multiply("q8", init=1, nj_reg=c.r.value_blocks, nh=group, nr=hw, row=c.values_row(node.layer, kv),
                     row_reg=c.r.value_base, row_j=1, row_r=g.value_plane, block=weights, block_h=c.score_blocks,
                     acc=acc, acc_h=hw)
        drain = dict(outer=group, inner=dim_words, a=A.ACC, z=acc, z_o=hw, z_i=1, b=B.S, p=inverse, p_o=1)
        if direct:
            blocks = shape.head_dim // BLOCK
            c.e.vector(**drain, quantize=1, block=out + kv * group * blocks, block_o=blocks)
        else:
            c.e.vector(**drain, w=1, w_word=c.words_of("mixed") + kv * group * dim_words, w_o=dim_words, w_i=1)
        c.accumulators.free(acc)
        c.blocks.free(weights)
        c.scalars.free(sums)
        c.scalars.free(inverse)
    c.blocks.free(c.queries)
    c.ready = []
    if direct:
        c.ready = [shape.head_dim // BLOCK * group * (kv + 1) for kv in range(shape.kv_heads - 1)]
    else:
        written = shape.heads * dim_words
        if written < total * g.block_words:     # the last block's padding takes part in its maximum
            c.e.vector(inner=total * g.block_words - written, a=A.S, p=c.placement.constant("zero"), w=1,
                       w_word=c.words_of("mixed") + written, w_i=1)
        c.e.vector(inner=total * g.block_words, a=A.X, x=c.words_of("mixed"), x_i=1, quantize=1, block=out)
    c.operand = out
