"""The end of a half layer: the product joins the residual, and the next normed input is quantized."""

from compiler.context import Accumulated, Context
from compiler.expression import Add, Mul, Vector, emit
from compiler.ir import Node, Op
from compiler.kernels.registry import kernel
from hw.isa import A, C, D

__all__: list[str] = []


def _product(c: Context, node: Node) -> tuple[Accumulated, str]:
    """The product that is added, in accumulators, and the norm that follows: "attention" or "ffn"."""
    product = c.graph[node.inputs[0]]
    weight = c.placement.weights[product.attributes["weights"][0]]
    norm = "ffn" if c.graph[product.inputs[0]].op is Op.ATTEND else "attention"
    return c.accumulate(weight, 0, c.g.words(c.shape.hidden), c.operand, c.ready, node.name,
                        last=norm == "attention"), norm


def _finish(c: Context, acc: Accumulated, norm: str) -> None:
    if norm == "ffn":       # what ends a window stays taken: the other sequence's shall lie elsewhere
        c.accumulators.free(acc.base)
    c.blocks.free(c.operand)
    c.norm_scalars(norm)


@kernel(Op.RESIDUAL, "fused")
def fused(c: Context, node: Node) -> None:
    """One pass: accumulators + residual go to the residual, and times the gain to the quantizer, in pieces."""
    acc, norm = _product(c, node)
    residual, gain, bw = c.words_of("residual"), c.placement.gains[node.attributes["gain"]], c.g.block_words
    for low, high in c.pieces(c.choices.split, c.g.blocks(c.shape.hidden)):
        at = low * bw
        c.e.vector(inner=(high - low) * bw, a=A.ACC, z=acc.base + at, z_i=1, c=C.X, x=residual + at, x_i=1, d=D.Y,
                   y=gain + at, y_i=1, w=1, w_early=1, w_word=residual + at, w_i=1, quantize=1,
                   block=c.x[norm] + low)
    _finish(c, acc, norm)


@kernel(Op.RESIDUAL, "generated", "generated")
def generated(c: Context, node: Node) -> None:
    """Two passes from the formulas h = product + h and x = h * gain."""
    acc, norm = _product(c, node)
    words = c.g.words(c.shape.hidden)
    h, gain = Vector("scratch", c.words_of("residual")), Vector("scratch", c.placement.gains[node.attributes["gain"]])
    emit(c.e, c.temporary, Add(Vector("accumulators", acc.base), h), words, {"w": 1, "w_word": h.base, "w_i": 1})
    emit(c.e, c.temporary, Mul(h, gain), words, {"quantize": 1, "block": c.x[norm]})
    _finish(c, acc, norm)
