"""Lowers the fused graph of one entry point: the prologue, then every node by its chosen kernel, a window a layer.

Instructions are emitted in an order in which they could run one after the other; overlap is the scheduler's business.
"""

from compiler.choices import Choices
from compiler.context import Context, R
from compiler.ir import Graph, Op
from compiler.kernels import attend, gate, lookup, output, residual, rotate, store
from compiler.kernels.registry import the_kernel
from compiler.place import Placement
from hw.config import BLOCK
from hw.isa import A, Alu, Opcode

__all__ = ["KERNEL_MODULES", "lower"]

KERNEL_MODULES = (lookup, rotate, store, attend, residual, gate, output)
"""Importing them fills the registry."""


def _prologue(c: Context) -> None:
    """Lengths and offsets from the position and the slot; the rotary table of the position into scratch."""
    g, alu = c.g, c.e.alu
    log_tiles = g.tiles.bit_length() - 1
    alu(Alu.ADD, R.length, R.position, 1)
    alu(Alu.SHR, R.key_row, R.position, log_tiles)
    alu(Alu.ADD, R.key_lines, R.key_row, 1)
    alu(Alu.SHR, R.value_row, R.position, BLOCK.bit_length() - 1)
    alu(Alu.ADD, R.value_blocks, R.value_row, 1)
    alu(Alu.MUL, R.score_words, R.value_blocks, g.block_words)
    alu(Alu.MUL, R.key_base, R.slot, g.context // g.tiles)
    alu(Alu.MUL, R.value_base, R.slot, g.context // BLOCK)
    alu(Alu.ADD, R.key_row, R.key_row, 0, R.key_base)
    alu(Alu.ADD, R.value_row, R.value_row, 0, R.value_base)
    alu(Alu.MUL, R.rope, R.position, g.rope_rows)
    c.e.label = "rotary table"
    top = c.config.row_buffer
    batch = max(1, min(g.rope_rows, top // 2))
    for first in range(0, g.rope_rows, batch):
        n = min(batch, g.rope_rows - first)
        c.e.add(Opcode.FETCH, nj=n, row=c.placement.rope + first, row_reg=R.rope, row_j=1, acc=top - n)
        c.e.vector(outer=n, inner=8, a=A.ROW_WORD, z=top - n, z_o=1, w=1, w_word=c.words_of("rotary") + 8 * first,
                   w_o=8, w_i=1)


def lower(graph: Graph, placement: Placement, functions: dict[str, int], bucket: int, logits: bool,
          choices: Choices) -> Context:
    """Lower `graph` for contexts up to `bucket`, with or without the output head; the context holds the emitter."""
    c = Context(graph, placement, functions, bucket, choices)
    c.begin("prologue")
    _prologue(c)
    layer = -1
    for node in graph:
        if node.op is Op.OUTPUT and not logits:
            continue
        if node.layer != layer:
            layer = node.layer
            c.begin(f"layer {layer}" if layer >= 0 else "epilogue")
        kernel = the_kernel(node.op, choices.kernels.get(node.op))
        c.e.label = node.name
        if kernel is not None:
            kernel.emit(c, node)
    return c
