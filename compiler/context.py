"""The state of lowering one entry point: what kernels share, and the pieces that they build passes from."""

from dataclasses import dataclass

from compiler.choices import Choices
from compiler.emitter import Emitter, Pool
from compiler.geometry import Geometry
from compiler.ir import Graph, Node
from compiler.place import Placement, Weight
from hw.config import BLOCK, SCALARS
from hw.isa import A, B, C, D, Reduce

__all__ = ["ARGUMENTS", "FREE_REGISTERS", "Accumulated", "Context", "R"]

ARGUMENTS = ("token", "position", "slot")
"""Arguments of every entry point: registers 1, 2 and 3."""


class R:
    """Integer registers. The prologue sets those beyond the arguments."""

    token = 1
    position = 2
    slot = 3
    length = 4          # position + 1, then in the epilogue the vocabulary
    key_lines = 5       # rows of keys a tile and head
    value_blocks = 6    # blocks of 32 tokens
    score_words = 7     # words of a lane in those blocks
    key_row = 8         # of this token, in a plane of keys (and in the value scales)
    value_row = 9       # of this token, in a plane of values
    key_base = 10       # of the slot, in a plane of keys (and in the value scales)
    value_base = 11     # of the slot, in a plane of values
    row = 12            # of the embedding; free after the prologue
    half = 13           # which half of that row; free after the prologue
    rope = 14           # row of the rotary table; free after the prologue


FREE_REGISTERS = (12, 13, 14, 15, 3, 1)
"""Registers that nothing uses between the prologue and the epilogue."""


@dataclass(frozen=True)
class Accumulated:
    """A product that waits in accumulators: `words` of every lane from `base`."""

    base: int
    words: int


class Context:
    """One entry point for contexts up to `bucket`: emitter, places and pools.

    Kernels hand operands on through `operand` (its first block) and `ready` (block counts that become complete one
    after the other); `x` holds the two normed inputs of a layer, `queries` and `keys` the rotated ones.
    """

    def __init__(self, graph: Graph, placement: Placement, functions: dict[str, int], bucket: int,
                 choices: Choices) -> None:
        self.graph, self.placement, self.functions, self.choices = graph, placement, functions, choices
        self.g: Geometry = placement.geometry
        self.shape, self.config = self.g.shape, self.g.config
        self.bucket = bucket
        slots, context, tiles = self.g.slots, self.g.context, self.g.tiles
        self.score_words = bucket // tiles
        self.score_blocks = bucket // BLOCK
        keys, values = slots * context // tiles - 1, slots * context // BLOCK - 1
        self.e = Emitter(self.config, {
            R.token: (0, self.shape.vocab - 1), R.position: (0, bucket - 1), R.slot: (0, slots - 1),
            R.length: (1, bucket), R.key_lines: (1, self.score_words), R.value_blocks: (1, self.score_blocks),
            R.score_words: (self.g.block_words, self.score_words), R.key_row: (0, keys), R.value_row: (0, values),
            R.key_base: (0, (slots - 1) * context // tiles), R.value_base: (0, (slots - 1) * context // BLOCK),
        })
        hidden = self.g.blocks(self.shape.hidden)
        self.x = {"attention": 0, "ffn": hidden}
        self.blocks = Pool("operands", 2 * hidden, self.config.operands)
        self.accumulators = Pool("accumulators", 0, self.config.accumulators)
        self.temporary = Pool("words of scratch", placement.scratch.used, self.config.scratch)
        used = placement.scalars.used
        names = ("squares", "attention_rms", "ffn_rms", "ffn_rms2")
        self.s = {name: used + k for k, name in enumerate(names)}
        self.best = (used + len(names) + 1) & ~1          # argmax wants an even register
        self.scalars = Pool("scalars", self.best + 2, SCALARS)
        self.operand = 0
        self.ready: list[int] = []
        self.queries = self.keys = 0

    def begin(self, window: str) -> None:
        """A new window: everything that pools gave out is free again."""
        self.e.window(window)
        for pool in (self.blocks, self.accumulators, self.scalars, self.temporary):
            pool.reset()

    def weight(self, node: Node, part: str) -> Weight:
        """A matrix of the node's layer."""
        return self.placement.weights[f"layers.{node.layer}.{part}"]

    def words_of(self, purpose: str) -> int:
        """First scratch word of a buffer."""
        return self.placement.words[purpose].base

    def pieces(self, ready: list[int] | tuple[int, ...], blocks: int) -> list[tuple[int, int]]:
        """Ranges of blocks that become ready together."""
        edges = [0, *[e for e in ready if e < blocks], blocks]
        return [(a, b) for a, b in zip(edges, edges[1:], strict=False) if b > a]

    def accumulate(self, weight: Weight, first: int, words: int, block: int, ready: list[int] | tuple[int, ...],
                   label: str) -> Accumulated:
        """Words `first` to `first + words` of a matrix times the operand at `block`, into fresh accumulators."""
        lines = -(-words // weight.per_line)
        base = self.accumulators.take(lines * weight.per_line, label)
        for low, high in self.pieces(ready, weight.blocks):
            self.e.multiply(weight.format, init=low == 0, nj=high - low, nr=lines,
                            row=weight.base + first // weight.per_line + low * weight.lines, row_j=weight.lines,
                            row_r=1, block=block + low, acc=base)
        return Accumulated(base, words)

    def norm_scalars(self, norm: str) -> None:
        """1 / rms of the residual as a scalar."""
        s, p = self.s, self.placement
        emit = dict(reduce_init=1, reduce_emit=1)
        self.e.vector(inner=self.g.words(self.shape.hidden), a=A.X, x=self.words_of("residual"), x_i=1, b=B.A,
                      reduce=Reduce.SUM, r_dest=s["squares"], **emit)
        self.e.vector(inner=1, a=A.S, p=s["squares"], c=C.S, q=p.constant("norm_epsilon"),
                      function=self.functions["rsqrt"], d=D.S, r=p.constant("norm_width"), reduce=Reduce.TAKE,
                      r_dest=s[f"{norm}_rms"], **emit)

    def values_row(self, layer: int, kv_head: int) -> int:
        """First row of the cached values of a kv head."""
        g = self.g
        first = self.placement.cache[layer] + self.shape.kv_heads * g.head_blocks * g.key_plane
        return first + kv_head * g.head_words * g.value_plane

    def keys_row(self, layer: int, kv_head: int) -> int:
        """First row of the cached keys of a kv head."""
        return self.placement.cache[layer] + kv_head * self.g.head_blocks * self.g.key_plane

    def value_scales(self, layer: int, kv_head: int) -> int:
        """First scratch word of the scales of the cached values of a kv head."""
        return self.words_of("value_scales") + (layer * self.shape.kv_heads + kv_head) * self.g.key_plane
