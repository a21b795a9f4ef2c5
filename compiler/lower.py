"""Lowers the fused graph of one entry point: the prologue, then every node by its chosen kernel, a window a layer.

Instructions are emitted in an order in which they could run one after the other; overlap is the scheduler's business.
"""

from compiler.choices import Choices
from compiler.context import Context
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
    g, r, alu = c.g, c.r, c.e.alu
    log_tiles = g.tiles.bit_length() - 1
    alu(Alu.ADD, r.length, r.position, 1)
    alu(Alu.SHR, r.key_row, r.position, log_tiles)
    alu(Alu.ADD, r.key_lines, r.key_row, 1)
    alu(Alu.SHR, r.value_row, r.position, BLOCK.bit_length() - 1)
    alu(Alu.ADD, r.value_blocks, r.value_row, 1)
    alu(Alu.MUL, r.score_words, r.value_blocks, g.block_words)
    alu(Alu.MUL, r.key_base, r.slot, g.context // g.tiles)
    alu(Alu.MUL, r.value_base, r.slot, g.context // BLOCK)
    alu(Alu.ADD, r.key_row, r.key_row, 0, r.key_base)
    alu(Alu.ADD, r.value_row, r.value_row, 0, r.value_base)
    alu(Alu.MUL, r.rope, r.position, g.rope_rows)
    c.e.label = "rotary table"
    top = c.config.row_buffer
    # With two sequences the row buffer is used twice, one after the other; hazards keep them apart.
    batch = max(1, min(g.rope_rows, top // 2))
    for first in range(0, g.rope_rows, batch):
        n = min(batch, g.rope_rows - first)
        c.e.add(Opcode.FETCH, nj=n, row=c.placement.rope + first, row_reg=r.rope, row_j=1, acc=top - n)
        c.e.vector(outer=n, inner=8, a=A.ROW_WORD, z=top - n, z_o=1, w=1, w_word=c.words_of("rotary") + 8 * first,
                   w_o=8, w_i=1)


def lower(graph: Graph, placement: Placement, functions: dict[str, int], bucket: int, logits: bool,
          choices: Choices, sequences: int = 1) -> list[Context]:
    """Lower `graph` for contexts up to `bucket`, with or without the output head.

    Returns the context of each sequence; they share the emitter, and with it the instructions.
    """
    contexts = [Context(graph, placement, functions, bucket, choices, 0, sequences)]
    contexts += [Context(graph, placement, functions, bucket, choices, k, sequences, contexts[0])
                 for k in range(1, sequences)]
    contexts[0].begin("prologue")
    for c in contexts:
        _prologue(c)
    layer = -1
    for node in graph:
        if node.op is Op.OUTPUT and not logits:
            continue
        if node.layer != layer:
            layer = node.layer
            contexts[0].begin(f"layer {layer}" if layer >= 0 else "epilogue")
        kernel = the_kernel(node.op, choices.kernels.get(node.op))
        for c in contexts:
            c.e.label = node.name
            if kernel is not None:
                kernel.emit(c, node)
    return contexts
