"""The state of lowering one entry point: what kernels share, and the pieces that they build passes from."""

from dataclasses import dataclass

from compiler.choices import Choices
from compiler.emitter import Emitter, Pool
from compiler.geometry import Geometry
from compiler.ir import Graph, Node
from compiler.place import Placement, Weight
from hw.config import BLOCK, REGISTERS, SCALARS
from hw.isa import A, B, C, D, Reduce

__all__ = ["ARGUMENTS", "FREE_REGISTERS", "MOST_SEQUENCES", "Accumulated", "Context", "Registers"]

ARGUMENTS = ("token", "position", "slot")
"""What every entry point is told of each of its sequences, in registers 1, 2, 3 and, for a second one, 4, 5, 6."""

MOST_SEQUENCES = 2


@dataclass(frozen=True)
class Registers:
    """The integer registers of one sequence. The prologue sets those beyond the arguments."""

    token: int
    position: int
    slot: int
    length: int         # position + 1, then in the epilogue the vocabulary
    key_lines: int      # rows of keys a tile and head
    value_blocks: int   # blocks of 32 tokens
    score_words: int    # words of a lane in those blocks
    key_row: int        # of this token, in a plane of keys (and in the value scales)
    value_row: int      # of this token, in a plane of values
    key_base: int       # of the slot, in a plane of keys (and in the value scales)
    value_base: int     # of the slot, in a plane of values
    row: int            # of the embedding; free after the prologue
    half: int           # which half of that row; free after the prologue
    rope: int           # row of the rotary table; free after the prologue

    @classmethod
    def of(cls, sequence: int) -> "Registers":
        """Arguments, then eight derived registers of each sequence, then three passing ones."""
        arguments = range(1 + 3 * sequence, 4 + 3 * sequence)
        derived = range(7 + 8 * sequence, 15 + 8 * sequence)
        return cls(*arguments, *derived, *range(23 + 3 * sequence, 26 + 3 * sequence))


FREE_REGISTERS = tuple(range(23, REGISTERS))
"""Registers that nothing uses between the prologue and the epilogue."""


@dataclass(frozen=True)
class Accumulated:
    """A product that waits in accumulators: `words` of every lane from `base`."""

    base: int
    words: int


class Context:
    """One sequence of an entry point for contexts up to `bucket`: emitter, places and pools.

    The contexts of an entry point share emitter and pools; each sequence has its own registers, scalars, operands and
    buffers (those of the second are called ``residual.1`` and so on in the placement). Kernels hand operands on
    through `operand` (its first block) and `ready` (block counts that become complete one after the other); `x` holds
    the two normed inputs of a layer, `queries` and `keys` the rotated ones.
    """

    def __init__(self, graph: Graph, placement: Placement, functions: dict[str, int], bucket: int,
                 choices: Choices, sequence: int = 0, sequences: int = 1, shared: "Context | None" = None) -> None:
        self.graph, self.placement, self.functions, self.choices = graph, placement, functions, choices
        self.g: Geometry = placement.geometry
        self.shape, self.config = self.g.shape, self.g.config
        self.bucket, self.sequence = bucket, sequence
        self.r = Registers.of(sequence)
        self.score_words = bucket // self.g.tiles
        self.score_blocks = bucket // BLOCK
        hidden = self.g.blocks(self.shape.hidden)
        self.x = {"attention": 2 * hidden * sequence, "ffn": 2 * hidden * sequence + hidden}
        used = placement.scalars.used
        names = ("squares", "attention_rms", "ffn_rms", "ffn_rms2")
        self.s = {name: used + len(names) * sequence + k for k, name in enumerate(names)}
        # Every entry point of an image leaves its results in the same scalars.
        sequences = MOST_SEQUENCES if self.g.pairs else 1
        used = (used + len(names) * sequences + 1) & ~1     # argmax wants an even register
        self.best = used + 2 * sequence
        if shared is None:
            self.e = Emitter(self.config, {})
            self.blocks = Pool("operands", 2 * hidden * sequences, self.config.operands)
            self.accumulators = Pool("accumulators", 0, self.config.accumulators)
            self.temporary = Pool("words of scratch", placement.scratch.used, self.config.scratch)
            self.scalars = Pool("scalars", used + 2 * sequences, SCALARS)
        else:
            self.e, self.blocks, self.accumulators = shared.e, shared.blocks, shared.accumulators
            self.temporary, self.scalars = shared.temporary, shared.scalars
        self.e.bounds.update(self._bounds())
        self.operand = 0
        self.ready: list[int] = []
        self.queries = self.keys = 0

    def _bounds(self) -> dict[int, tuple[int, int]]:
        r, g = self.r, self.g
        slots, context, tiles = g.slots, g.context, g.tiles
        keys, values = slots * context // tiles - 1, slots * context // BLOCK - 1
        return {
            r.token: (0, self.shape.vocab - 1), r.position: (0, self.bucket - 1), r.slot: (0, slots - 1),
            r.length: (1, self.bucket), r.key_lines: (1, self.score_words), r.value_blocks: (1, self.score_blocks),
            r.score_words: (g.block_words, self.score_words), r.key_row: (0, keys), r.value_row: (0, values),
            r.key_base: (0, (slots - 1) * context // tiles), r.value_base: (0, (slots - 1) * context // BLOCK),
        }

    def begin(self, window: str) -> None:
        """A new window: everything that pools gave out is free again."""
        self.e.window(window)
        for pool in (self.blocks, self.accumulators, self.scalars, self.temporary):
            pool.reset()

    def weight(self, node: Node, part: str) -> Weight:
        """A matrix of the node's layer."""
        return self.placement.weights[f"layers.{node.layer}.{part}"]

    def words_of(self, purpose: str) -> int:
        """First scratch word of a buffer of this sequence."""
        return self.placement.words[purpose + (f".{self.sequence}" if self.sequence else "")].base

    def pieces(self, ready: list[int] | tuple[int, ...], blocks: int) -> list[tuple[int, int]]:
        """Ranges of blocks that become ready together."""
        edges = [0, *[e for e in ready if e < blocks], blocks]
        return [(a, b) for a, b in zip(edges, edges[1:], strict=False) if b > a]

    def accumulate(self, weight: Weight, first: int, words: int, block: int, ready: list[int] | tuple[int, ...],
                   label: str, last: bool = False) -> Accumulated:
        """Words `first` to `first + words` of a matrix times the operand at `block`, into fresh accumulators.

        `last`: the product that ends a window.
        """
        lines = -(-words // weight.per_line)
        base = self.accumulators.take(lines * weight.per_line, label, last)
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
        return self.placement.words["value_scales"].base + (layer * self.shape.kv_heads + kv_head) * self.g.key_plane
