"""The gated feed-forward: activation(gate) * up, chunk by chunk, quantized."""

from collections.abc import Callable

from compiler.context import Accumulated, Context
from compiler.expression import Apply, Mul, Scalar, Vector, emit
from compiler.ir import Node, Op
from compiler.kernels.registry import kernel
from hw.isa import A, B, D, Reduce

__all__: list[str] = []

Drain = Callable[[Accumulated, Accumulated, int, int], None]


def _by_chunks(c: Context, node: Node, drain: Drain) -> None:
    """Both products of every chunk, then `drain(gate, up, first word, first block)`."""
    gate, up = c.weight(node, "gate"), c.weight(node, "up")
    words, bw = c.g.words(c.shape.ffn), c.g.block_words
    step = max(2 * bw, c.config.accumulators // c.choices.chunk)
    step -= step % (2 * bw)
    out = c.blocks.take(words // bw, f"{node.name} operand")
    c.ready = []
    for first in range(0, words, step):
        n = min(step, words - first)
        a = c.accumulate(gate, first, n, c.x["ffn"], c.choices.split, node.name)
        b = c.accumulate(up, first, n, c.x["ffn"], c.choices.split, node.name)
        drain(a, b, c.words_of("gated") + first, out + first // bw)
        c.accumulators.free(a.base)
        c.accumulators.free(b.base)
        c.ready.append((first + n) // bw)
    c.operand = out


@kernel(Op.GATE, "squared rms")
def squared(c: Context, node: Node) -> None:
    """Two passes: t = f(g/rms) * g, then (u / rms^2) * t: the factor that t lacks comes with u."""
    function, s = c.functions[node.attributes["function"]], c.s
    c.e.vector(inner=1, a=A.S, p=s["ffn_rms"], b=B.A, reduce=Reduce.TAKE, reduce_init=1, reduce_emit=1,
               r_dest=s["ffn_rms2"])

    def drain(a: Accumulated, b: Accumulated, word: int, block: int) -> None:
        c.e.vector(inner=a.words, a=A.ACC, z=a.base, z_i=1, b=B.S, p=s["ffn_rms"], function=function, d=D.A, w=1,
                   w_word=word, w_i=1)
        c.e.vector(inner=b.words, a=A.ACC, z=b.base, z_i=1, b=B.S, p=s["ffn_rms2"], d=D.X, x=word, x_i=1, quantize=1,
                   block=block)

    _by_chunks(c, node, drain)


@kernel(Op.GATE, "generated", "generated")
def generated(c: Context, node: Node) -> None:
    """The passes that f(g/rms) * (g/rms) * (u/rms) needs as it stands."""
    function, rms = c.functions[node.attributes["function"]], Scalar(c.s["ffn_rms"])

    def drain(a: Accumulated, b: Accumulated, word: int, block: int) -> None:
        g = Vector("scratch", word)
        emit(c.e, c.temporary, Mul(Vector("accumulators", a.base), rms), a.words, {"w": 1, "w_word": word, "w_i": 1})
        emit(c.e, c.temporary, Mul(Mul(Vector("accumulators", b.base), rms), Mul(Apply(function, g), g)), b.words,
             {"quantize": 1, "block": block})

    _by_chunks(c, node, drain)
