"""Keys and values of the token into the cache: keys as rows of its tile, values as a byte column of every tile."""

from compiler.context import Context
from compiler.ir import Node, Op
from compiler.kernels.registry import kernel
from hw.isa import A, B, Opcode, Reduce

__all__: list[str] = []


@kernel(Op.STORE, "columns")
def columns(c: Context, node: Node) -> None:
    """One scale a token and head, found while draining; it stays in scratch beside the softmax that applies it."""
    g, kv, hw = c.g, c.shape.kv_heads, c.g.head_words
    acc = c.accumulate(c.weight(node, "v"), 0, kv * hw, c.x["attention"], c.choices.split, node.name)
    values = c.words_of("values")
    largest, scale = c.scalars.take(kv, node.name), c.scalars.take(kv, node.name)
    c.e.add(Opcode.STORE_ROW, nj=kv * g.head_blocks, row=c.keys_row(node.layer, 0), row_reg=c.r.key_row,
            row_j=g.key_plane, block=c.keys, block_j=1, tile_reg=c.r.position)
    c.blocks.free(c.keys)
    c.e.vector(outer=kv, inner=hw, a=A.ACC, z=acc.base, z_o=hw, z_i=1, b=B.S, p=c.s["attention_rms"], w=1,
               w_word=values, w_o=hw, w_i=1, reduce=Reduce.MAX, absolute=1, reduce_init=1, reduce_emit=1,
               r_dest=largest, r_dest_o=1)
    c.accumulators.free(acc.base)
    c.e.vector(outer=kv, inner=1, a=A.S, p=largest, p_o=1, function=c.functions["scale"], reduce=Reduce.TAKE,
               reduce_init=1, reduce_emit=1, r_dest=scale, r_dest_o=1)
    block = c.blocks.take(kv * g.head_blocks, f"{node.name} values")
    c.e.vector(outer=kv, inner=hw, a=A.X, x=values, x_o=hw, x_i=1, quantize=1, narrow=1, given=1, scale=scale,
               scale_o=1, block=block, block_o=g.head_blocks)
    for head in range(kv):      # a step over planes may exceed its field
        c.e.vector(inner=1, a=A.S, p=scale + head, w=1, w_word=c.value_scales(node.layer, head), w_word_reg=c.r.key_row,
                   w_single=1, w_tile_reg=c.r.position)
    c.e.add(Opcode.STORE_COLUMN, nj=kv * g.head_blocks, row=c.values_row(node.layer, 0), row_reg=c.r.value_row,
            row_j=g.block_words * g.value_plane, row_r=g.value_plane, block=block, block_j=1, column_reg=c.r.position)
    c.blocks.free(block)
    c.scalars.free(largest)
    c.scalars.free(scale)
