"""The output head: the last product, its logits in scratch and their largest in a scalar."""

from compiler.context import Context
from compiler.ir import Node, Op
from compiler.kernels.registry import kernel
from hw.isa import A, Alu, B, Reduce

__all__: list[str] = []


def _chunks(c: Context, node: Node, argmax: bool) -> None:
    weight = c.placement.weights[node.attributes["weight"]]
    words = -(-c.shape.vocab // c.g.tiles)
    step = c.config.accumulators // 4
    for first in range(0, words, step):
        n = min(step, words - first)
        acc = c.accumulate(weight, first, n, c.x["attention"], c.choices.split if first == 0 else (), node.name)
        largest = dict(reduce=Reduce.ARGMAX, reduce_init=first == 0, reduce_emit=first + n == words, r_dest=c.best,
                       mask=1, length_reg=c.r.length, index=first) if argmax else {}
        c.e.vector(inner=n, a=A.ACC, z=acc.base, z_i=1, b=B.S, p=c.s["attention_rms"], w=1,
                   w_word=c.words_of("logits") + first, w_i=1, **largest)
        c.accumulators.free(acc.base)


@kernel(Op.OUTPUT, "argmax while draining")
def draining(c: Context, node: Node) -> None:
    """Every drain writes logits and carries the running argmax on."""
    c.e.alu(Alu.ADD, c.r.length, 0, c.shape.vocab)
    _chunks(c, node, argmax=True)


@kernel(Op.OUTPUT, "argmax afterwards")
def afterwards(c: Context, node: Node) -> None:
    """Drains write logits; one pass over all of them finds the largest."""
    c.e.alu(Alu.ADD, c.r.length, 0, c.shape.vocab)
    _chunks(c, node, argmax=False)
    words = -(-c.shape.vocab // c.g.tiles)
    c.e.vector(inner=words, a=A.X, x=c.words_of("logits"), x_i=1, reduce=Reduce.ARGMAX, reduce_init=1, reduce_emit=1,
               r_dest=c.best, mask=1, length_reg=c.r.length)
