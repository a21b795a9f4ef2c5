"""Lowers the fused graph to machine instructions: one method a kernel, each a few passes of the two engines.

Registers of every entry: 1 token, 2 position, 3 slot; the prologue sets the others (`_R`). Instructions are emitted in
an order in which they could run one after the other; overlap is the scheduler's business.
"""

from dataclasses import dataclass

from compiler.emitter import Emitter, Pool
from compiler.geometry import Geometry
from compiler.ir import Graph, Node, Op
from compiler.place import Placement, Weight
from hw.config import BLOCK, SCALARS
from hw.isa import A, Alu, B, C, D, Opcode, Reduce, RowFormat

__all__ = ["ARGUMENTS", "Lowering", "lower"]

ARGUMENTS = ("token", "position", "slot")


@dataclass(frozen=True)
class _R:
    """Integer registers."""

    token: int = 1
    position: int = 2
    slot: int = 3
    length: int = 4         # position + 1, then in the epilogue the vocabulary
    key_lines: int = 5      # rows of keys a tile and head
    value_blocks: int = 6   # blocks of 32 tokens
    score_words: int = 7    # words of a lane in those blocks
    key_row: int = 8        # of this token, in a plane of keys (and in the value scales)
    value_row: int = 9      # of this token, in a plane of values
    key_base: int = 10      # of the slot, in a plane of keys (and in the value scales)
    value_base: int = 11    # of the slot, in a plane of values
    row: int = 12           # of the embedding; free after the prologue
    half: int = 13          # which half of that row; free after the prologue
    rope: int = 14          # row of the rotary table; free after the prologue


R = _R()
FREE_REGISTERS = (12, 13, 14, 15, 3, 1)
"""Registers that nothing uses between the prologue and the epilogue."""


@dataclass
class _Accumulated:
    """A product that waits in accumulators: `words` of every lane from `base`."""

    base: int
    words: int


class Lowering:
    """The kernels of one entry point, for contexts up to `bucket`."""

    def __init__(self, graph: Graph, placement: Placement, functions: dict[str, int], bucket: int,
                 logits: bool) -> None:
        self.graph, self.placement, self.functions = graph, placement, functions
        self.g: Geometry = placement.geometry
        self.shape, self.config = self.g.shape, self.g.config
        self.bucket, self.with_logits = bucket, logits
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
        self.x = {"attention": 0, "ffn": hidden}          # operand blocks of the two normed inputs
        self.blocks = Pool("operands", 2 * hidden, self.config.operands)
        self.accumulators = Pool("accumulators", 0, self.config.accumulators)
        used = placement.scalars.used
        names = ("squares", "attention_rms", "ffn_rms", "ffn_rms2")
        self.s = {name: used + k for k, name in enumerate(names)}
        self.best = (used + len(names) + 1) & ~1          # argmax wants an even register
        self.scalars = Pool("scalars", self.best + 2, SCALARS)
        self.chunk = max(2 * self.g.block_words, self.config.accumulators // 16)
        self.chunk -= self.chunk % (2 * self.g.block_words)

    # Entry point

    def run(self) -> Emitter:
        """Lower every node of the graph, a window a layer."""
        self.e.window("prologue")
        self._prologue()
        self.next_norm = "attention"
        layer = -1
        for node in self.graph:
            if node.layer != layer:
                layer = node.layer
                self.e.window(f"layer {layer}" if layer >= 0 else "epilogue")
                for pool in (self.blocks, self.accumulators, self.scalars):
                    pool.reset()
            self.e.label = node.name
            kernel = getattr(self, f"_{node.op.value}", None)
            if kernel is not None:
                kernel(node)
        return self.e

    def _prologue(self) -> None:
        g, alu = self.g, self.e.alu
        log_tiles = g.tiles.bit_length() - 1
        alu(Alu.ADD, R.length, R.position, 1)
        alu(Alu.SHR, R.key_row, R.position, log_tiles)
        alu(Alu.ADD, R.key_lines, R.key_row, 1)
        alu(Alu.SHR, R.value_row, R.position, 5)
        alu(Alu.ADD, R.value_blocks, R.value_row, 1)
        alu(Alu.MUL, R.score_words, R.value_blocks, g.block_words)
        alu(Alu.MUL, R.key_base, R.slot, g.context // g.tiles)
        alu(Alu.MUL, R.value_base, R.slot, g.context // BLOCK)
        alu(Alu.ADD, R.key_row, R.key_row, 0, R.key_base)
        alu(Alu.ADD, R.value_row, R.value_row, 0, R.value_base)
        self.e.label = "rotary table"
        alu(Alu.MUL, R.rope, R.position, g.rope_rows)
        top = self.config.row_buffer - 1
        batch = min(g.rope_rows, self.config.row_buffer // 2)
        for first in range(0, g.rope_rows, batch):
            n = min(batch, g.rope_rows - first)
            self.e.add(Opcode.FETCH, nj=n, row=self.placement.rope + first, row_reg=R.rope, row_j=1, acc=top + 1 - n)
            self.e.vector(outer=n, inner=8, a=A.ROW_WORD, z=top + 1 - n, z_o=1, w=1,
                          w_word=self.placement.words["rotary"].base + 8 * first, w_o=8, w_i=1)

    # Products

    def _pieces(self, ready: list[int], blocks: int) -> list[tuple[int, int]]:
        """Ranges of blocks that become ready together."""
        edges = [0, *[e for e in ready if e < blocks], blocks]
        return [(a, b) for a, b in zip(edges, edges[1:], strict=False) if b > a]

    def _accumulate(self, weight: Weight, first: int, words: int, block: int, ready: list[int],
                 label: str) -> _Accumulated:
        """Words `first` to `first + words` of a matrix times the operand at `block`, into fresh accumulators."""
        lines = -(-words // weight.per_line)
        base = self.accumulators.take(lines * weight.per_line, label)
        for low, high in self._pieces(ready, weight.blocks):
            self.e.multiply(weight.format, init=low == 0, nj=high - low, nr=lines,
                            row=weight.base + first // weight.per_line + low * weight.lines, row_j=weight.lines,
                            row_r=1, block=block + low, acc=base)
        return _Accumulated(base, words)

    def _weight(self, node: Node, part: str) -> Weight:
        return self.placement.weights[f"layers.{node.layer}.{part}"]

    @property
    def _split(self) -> list[int]:
        """Where a quantizing pass is cut so that the product that waits for it starts early."""
        return [1, 3, 7]

    # Kernels

    def _norm_pass(self, gain: str, words: int, norm: str, acc: _Accumulated) -> None:
        """E = accumulators + residual goes to the residual, E * gain is quantized, in pieces."""
        residual = self.placement.words["residual"].base
        gains, bw = self.placement.gains[gain], self.g.block_words
        blocks = words // bw
        for low, high in self._pieces(self._split, blocks):
            self.e.vector(inner=(high - low) * bw, a=A.ACC, z=acc.base + low * bw, z_i=1, c=C.X, x=residual + low * bw,
                          x_i=1, d=D.Y, y=gains + low * bw, y_i=1, w=1, w_early=1, w_word=residual + low * bw, w_i=1,
                          quantize=1, block=self.x[norm] + low)

    def _norm_scalars(self, words: int, norm: str) -> None:
        s, p = self.s, self.placement
        self.e.vector(inner=words, a=A.X, x=p.words["residual"].base, x_i=1, b=B.A, reduce=Reduce.SUM, reduce_init=1,
                      reduce_emit=1, r_dest=s["squares"])
        rms = s[f"{norm}_rms"]
        self.e.vector(inner=1, a=A.S, p=s["squares"], c=C.S, q=p.constant("norm_epsilon"),
                      function=self.functions["rsqrt"], d=D.S, r=p.constant("norm_width"), reduce=Reduce.TAKE,
                      reduce_init=1, reduce_emit=1, r_dest=rms)
        if norm == "ffn":
            self.e.vector(inner=1, a=A.S, p=rms, b=B.A, reduce=Reduce.TAKE, reduce_init=1, reduce_emit=1,
                          r_dest=s["ffn_rms2"])

    def _lookup(self, node: Node) -> None:
        weight = self.placement.weights[node.attributes["weight"]]
        g, words = self.g, self.g.words(self.shape.hidden)
        log_tiles = g.tiles.bit_length() - 1
        self.e.alu(Alu.SHR, R.row, R.token, log_tiles + weight.per_line - 1)
        row_format: dict[str, int] = {"row_format": RowFormat[weight.format.upper()]}
        if weight.per_line == 2:
            # The two halves of a row are neighbours in the order of words.
            self.e.alu(Alu.SHR, R.half, R.token, log_tiles)
            row_format["half_reg"] = R.half
        batch = min(weight.blocks, self.config.row_buffer // 2)
        for first in range(0, weight.blocks, batch):
            n = min(batch, weight.blocks - first)
            entry = (first // batch % 2) * batch
            self.e.add(Opcode.FETCH, nj=n, row=weight.base + first * weight.lines, row_reg=R.row, row_j=weight.lines,
                       acc=entry, all=1, tile_reg=R.token)
            residual = self.placement.words["residual"].base + first * g.block_words
            gains = self.placement.gains[node.attributes["gain"]] + first * g.block_words
            self.e.vector(outer=n, inner=g.block_words, a=A.ROW_ELEMENT, z=entry, z_o=1, b=B.ROW_SCALE,
                          c=C.ROW_MINIMUM, **row_format, d=D.Y, y=gains, y_o=g.block_words, y_i=1, w=1, w_early=1,
                          w_word=residual, w_o=g.block_words, w_i=1, quantize=1, block=self.x["attention"] + first,
                          block_o=1)
        self._norm_scalars(words, "attention")

    def _residual(self, node: Node) -> None:
        product = self.graph[node.inputs[0]]
        weight = self.placement.weights[product.attributes["weights"][0]]
        words = self.g.words(self.shape.hidden)
        source = self.graph[product.inputs[0]]
        acc = self._accumulate(weight, 0, words, self.operand, self.ready, node.name)
        norm = "ffn" if source.op is Op.ATTEND else "attention"
        self._norm_pass(node.attributes["gain"], words, norm, acc)
        self.accumulators.free(acc.base)
        self.blocks.free(self.operand)
        self._norm_scalars(words, norm)

    def _rotate(self, node: Node) -> None:
        """Queries and keys: products, then x*cos + swapped(x)*sin, times 1/rms, quantized."""
        g, shape = self.g, self.shape
        rotary, turned = self.placement.words["rotary"].base, self.placement.words["rotated"].base
        hw, half = g.head_words, g.head_words // 2
        rms = self.s["attention_rms"]
        self.queries = self.blocks.take(shape.heads * g.head_blocks, f"{node.name} queries")
        self.keys = self.blocks.take(shape.kv_heads * g.head_blocks, f"{node.name} keys")
        for part, heads, block, narrow in (("q", shape.heads, self.queries, 0), ("k", shape.kv_heads, self.keys, 1)):
            weight = self._weight(node, part)
            group = max(1, min(heads, self.config.accumulators // 4 // hw))
            for first in range(0, heads, group):
                n = min(group, heads - first)
                acc = self._accumulate(weight, first * hw, n * hw, self.x["attention"], self._split, node.name)
                for words, shift, table in ((0, half, 2 * half), (half, 0, 3 * half)):
                    self.e.vector(outer=n, inner=half, a=A.ACC, z=acc.base + shift, z_o=hw, z_i=1, b=B.X,
                                  x=rotary + table, x_i=1, w=1, w_word=turned + words, w_o=hw, w_i=1)
                self.e.vector(outer=n, inner=hw, a=A.ACC, z=acc.base, z_o=hw, z_i=1, b=B.X, x=rotary, x_i=1, c=C.Y,
                              y=turned, y_o=hw, y_i=1, d=D.S, r=rms, quantize=1, narrow=narrow,
                              block=block + first * g.head_blocks, block_o=g.head_blocks)
                self.accumulators.free(acc.base)
                turned += n * hw

    def _store(self, node: Node) -> None:
        """Keys as rows of this token's tile; values as a byte column, with their scale beside them in scratch."""
        g, kv = self.g, self.shape.kv_heads
        hw, cache = g.head_words, self.placement.cache[node.layer]
        acc = self._accumulate(self._weight(node, "v"), 0, kv * hw, self.x["attention"], self._split, node.name)
        values = self.placement.words["values"].base
        largest, scale = self.scalars.take(kv, node.name), self.scalars.take(kv, node.name)
        self.e.add(Opcode.STORE_ROW, nj=kv * g.head_blocks, row=cache, row_reg=R.key_row, row_j=g.key_plane,
                   block=self.keys, block_j=1, tile_reg=R.position)
        self.blocks.free(self.keys)
        self.e.vector(outer=kv, inner=hw, a=A.ACC, z=acc.base, z_o=hw, z_i=1, b=B.S, p=self.s["attention_rms"], w=1,
                      w_word=values, w_o=hw, w_i=1, reduce=Reduce.MAX, absolute=1, reduce_init=1, reduce_emit=1,
                      r_dest=largest, r_dest_o=1)
        self.accumulators.free(acc.base)
        self.e.vector(outer=kv, inner=1, a=A.S, p=largest, p_o=1, function=self.functions["scale"],
                      reduce=Reduce.TAKE, reduce_init=1, reduce_emit=1, r_dest=scale, r_dest_o=1)
        block = self.blocks.take(kv * g.head_blocks, f"{node.name} values")
        self.e.vector(outer=kv, inner=hw, a=A.X, x=values, x_o=hw, x_i=1, quantize=1, narrow=1, given=1, scale=scale,
                      scale_o=1, block=block, block_o=g.head_blocks)
        for head in range(kv):      # a step over planes may exceed its field
            self.e.vector(inner=1, a=A.S, p=scale + head, w=1, w_word=self._value_scales(node.layer, head),
                          w_word_reg=R.key_row, w_single=1, w_tile_reg=R.position)
        self.e.add(Opcode.STORE_COLUMN, nj=kv * g.head_blocks, row=self._values(node.layer, 0),
                   row_reg=R.value_row, row_j=g.block_words * g.value_plane, row_r=g.value_plane, block=block,
                   block_j=1, column_reg=R.position)
        self.blocks.free(block)

    def _values(self, layer: int, kv_head: int) -> int:
        g = self.g
        first = self.placement.cache[layer] + self.shape.kv_heads * g.head_blocks * g.key_plane
        return first + kv_head * g.head_words * g.value_plane

    def _value_scales(self, layer: int, kv_head: int) -> int:
        return (self.placement.words["value_scales"].base
                + (layer * self.shape.kv_heads + kv_head) * self.g.key_plane)

    def _attend(self, node: Node) -> None:
        """Scores, softmax and mixture, by groups of query heads that share keys and values."""
        g, shape, f = self.g, self.shape, self.functions
        hw, dim_words, group = g.head_words, shape.head_dim // g.tiles, shape.group
        direct = shape.head_dim % BLOCK == 0
        scale = self.placement.constant("score_scale")
        out = self.blocks.take(g.blocks(shape.heads * shape.head_dim), f"{node.name} mixed")
        unit = group
        while unit > 1 and 2 * unit * self.score_words > self.config.accumulators - group * hw:
            unit -= 1
        for kv in range(shape.kv_heads):
            keys = self.placement.cache[node.layer] + kv * g.head_blocks * g.key_plane
            sums = self.scalars.take(group, node.name)
            weights = self.blocks.take(group * self.score_blocks, f"{node.name} probabilities")
            for first in range(0, group, unit):
                n = min(unit, group - first)
                head = kv * group + first
                acc = self.accumulators.take(n * self.score_words, f"{node.name} scores")
                most = self.scalars.take(n, node.name)
                self.e.multiply("q8", init=1, nj=g.head_blocks, nh=n, nr=0, nr_reg=R.key_lines, row=keys,
                                row_reg=R.key_base, row_j=g.key_plane, row_r=1,
                                block=self.queries + head * g.head_blocks, block_h=g.head_blocks, acc=acc,
                                acc_h=self.score_words)
                scores = dict(outer=n, a=A.ACC, z=acc, z_o=self.score_words, z_i=1, b=B.S, p=scale, mask=1,
                              length_reg=R.length, reduce_init=1, reduce_emit=1, r_dest_o=1)
                self.e.vector(**scores, inner_reg=R.key_lines, reduce=Reduce.MAX, r_dest=most)
                self.e.vector(**scores, inner_reg=R.score_words, c=C.S, c_negate=1, q=most, q_o=1, function=f["exp2"],
                              d=D.X, x=self._value_scales(node.layer, kv), x_reg=R.key_base, x_i=1,
                              reduce=Reduce.SUM, reduce_early=1, r_dest=sums + first, quantize=1,
                              block=weights + first * self.score_blocks, block_o=self.score_blocks)
                self.accumulators.free(acc)
                self.scalars.free(most)
            inverse = self.scalars.take(group, node.name)
            self.e.vector(outer=group, inner=1, a=A.S, p=sums, p_o=1, function=f["recip"], reduce=Reduce.TAKE,
                          reduce_init=1, reduce_emit=1, r_dest=inverse, r_dest_o=1)
            acc = self.accumulators.take(group * hw, f"{node.name} mixture")
            self.e.multiply("q8", init=1, nj=0, nj_reg=R.value_blocks, nh=group, nr=hw,
                            row=self._values(node.layer, kv), row_reg=R.value_base, row_j=1, row_r=g.value_plane,
                            block=weights, block_h=self.score_blocks, acc=acc, acc_h=hw)
            drain = dict(outer=group, inner=dim_words, a=A.ACC, z=acc, z_o=hw, z_i=1, b=B.S, p=inverse, p_o=1)
            if direct:
                blocks = shape.head_dim // BLOCK
                self.e.vector(**drain, quantize=1, block=out + kv * group * blocks, block_o=blocks)
            else:
                self.e.vector(**drain, w=1, w_word=self.placement.words["mixed"].base + kv * group * dim_words,
                              w_o=dim_words, w_i=1)
            self.accumulators.free(acc)
            self.blocks.free(weights)
            self.scalars.free(sums)
            self.scalars.free(inverse)
        self.blocks.free(self.queries)
        total = g.blocks(shape.heads * shape.head_dim)
        if direct:
            per = shape.head_dim // BLOCK * group
            self.ready = [per * (kv + 1) for kv in range(shape.kv_heads - 1)]
        else:
            self.e.vector(inner=total * g.block_words, a=A.X, x=self.placement.words["mixed"].base, x_i=1, quantize=1,
                          block=out)
            self.ready = []
        self.operand = out

    def _gate(self, node: Node) -> None:
        """activation(gate) * up, by chunks: t = f(g/rms) * g, then (u / rms^2) * t, quantized."""
        g, s = self.g, self.s
        gate, up = self._weight(node, "gate"), self._weight(node, "up")
        words, bw = g.words(self.shape.ffn), g.block_words
        out = self.blocks.take(words // bw, f"{node.name} operand")
        function = self.functions[node.attributes["function"]]
        gated = self.placement.words["gated"].base
        self.ready = []
        for first in range(0, words, self.chunk):
            n = min(self.chunk, words - first)
            a = self._accumulate(gate, first, n, self.x["ffn"], self._split, node.name)
            b = self._accumulate(up, first, n, self.x["ffn"], self._split, node.name)
            self.e.vector(inner=n, a=A.ACC, z=a.base, z_i=1, b=B.S, p=s["ffn_rms"], function=function, d=D.A, w=1,
                          w_word=gated + first, w_i=1)
            self.e.vector(inner=n, a=A.ACC, z=b.base, z_i=1, b=B.S, p=s["ffn_rms2"], d=D.X, x=gated + first, x_i=1,
                          quantize=1, block=out + first // bw)
            self.accumulators.free(a.base)
            self.accumulators.free(b.base)
            self.ready.append((first + n) // bw)
        self.operand = out

    def _output(self, node: Node) -> None:
        """The last product by chunks; each drain writes logits and carries the argmax on."""
        if not self.with_logits:
            return
        weight = self.placement.weights[node.attributes["weight"]]
        words = -(-self.shape.vocab // self.g.tiles)
        self.e.alu(Alu.ADD, R.length, 0, self.shape.vocab)
        chunk = self.config.accumulators // 4
        for first in range(0, words, chunk):
            n = min(chunk, words - first)
            ready = self._split if first == 0 else []
            acc = self._accumulate(weight, first, n, self.x["attention"], ready, node.name)
            self.e.vector(inner=n, a=A.ACC, z=acc.base, z_i=1, b=B.S, p=self.s["attention_rms"], w=1,
                          w_word=self.placement.words["logits"].base + first, w_i=1, reduce=Reduce.ARGMAX,
                          reduce_init=first == 0, reduce_emit=first + n == words, r_dest=self.best, mask=1,
                          length_reg=R.length, index=first)
            self.accumulators.free(acc.base)


def lower(graph: Graph, placement: Placement, functions: dict[str, int], bucket: int, logits: bool) -> Lowering:
    """Lower `graph` for contexts up to `bucket`, with or without the output head; the result holds the emitter."""
    lowering = Lowering(graph, placement, functions, bucket, logits)
    lowering.run()
    return lowering
