"""The embedding of the token: one tile's rows to all lanes, times the first gain, into the quantizer."""

from compiler.context import Context
from compiler.ir import Node, Op
from compiler.kernels.registry import kernel
from hw.isa import A, Alu, B, C, D, Opcode, RowFormat

__all__: list[str] = []


@kernel(Op.LOOKUP, "fused")
def lookup(c: Context, node: Node) -> None:
    """Elements leave the row buffer as q*d + m, go to the residual and, times the gain, to the quantizer."""
    weight = c.placement.weights[node.attributes["weight"]]
    bw, log_tiles = c.g.block_words, c.g.tiles.bit_length() - 1
    c.e.alu(Alu.SHR, c.r.row, c.r.token, log_tiles + weight.per_line - 1)
    row_format: dict[str, int] = {"row_format": RowFormat[weight.format.upper()]}
    if weight.per_line == 2:
        # The two halves of a row are neighbours in the order of words.
        c.e.alu(Alu.SHR, c.r.half, c.r.token, log_tiles)
        row_format["half_reg"] = c.r.half
    residual, gains = c.words_of("residual"), c.placement.gains[node.attributes["gain"]]
    batch = max(1, min(weight.blocks, c.config.row_buffer // 2))
    for first in range(0, weight.blocks, batch):
        n = min(batch, weight.blocks - first)
        entry = first // batch % 2 * batch if c.config.row_buffer > 1 else 0
        c.e.add(Opcode.FETCH, nj=n, row=weight.base + first * weight.lines, row_reg=c.r.row, row_j=weight.lines,
                acc=entry, all=1, tile_reg=c.r.token)
        c.e.vector(outer=n, inner=bw, a=A.ROW_ELEMENT, z=entry, z_o=1, b=B.ROW_SCALE, c=C.ROW_MINIMUM, **row_format,
                   d=D.Y, y=gains + first * bw, y_o=bw, y_i=1, w=1, w_early=1, w_word=residual + first * bw, w_o=bw,
                   w_i=1, quantize=1, block=c.x["attention"] + first, block_o=1)
    c.norm_scalars("attention")
