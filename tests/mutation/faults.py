"""Faults that are planted in the hardware description, one at a time, to see whether the tests would notice.

Each is a piece of source text that occurs exactly once, with the right expression between « and », and the wrong one.
"""

from dataclasses import dataclass

__all__ = ["FAULTS", "Fault"]


@dataclass(frozen=True)
class Fault:
    """One wrong expression.

    Parameters
    ----------
    name : str
        What is wrong, in a few words.
    file : str
        Below ``hw/``.
    text : str
        Source text around the expression, which stands between « and ».
    wrong : str
        What stands there instead.
    """

    name: str
    file: str
    text: str
    wrong: str

    @property
    def parts(self) -> tuple[str, str, str]:
        """Text before, the right expression, text behind."""
        before, rest = self.text.split("«")
        right, behind = rest.split("»")
        return before, right, behind


FAULTS: tuple[Fault, ...] = (
    Fault("fp32: ties round up, not to even", "fp32.py",
          "word.eq(exponent + kept + «(tail & (below | kept[0]))»)", "tail"),
    Fault("fp32: sticky bit of the adder's alignment lost", "fp32.py",
          "smaller.eq(Cat(«moved[:24].any()», moved[24:]))", "0"),
    Fault("fp32: adder aligns one place too far", "fp32.py",
          "distance.eq(«(large.exponent | ~hidden_large) - (small.exponent | ~hidden_small)»)",
          "large.exponent - small.exponent"),
    Fault("fp32: x - x is -0", "fp32.py", "sign_r.eq(«sign & ~(subtract & empty)»)", "sign"),
    Fault("fp32: infinity less infinity is not NaN", "fp32.py",
          "large.fraction.any()\n                                                  | «((small.exponent == 255) & "
          "(large.sign ^ small.sign))»", "0"),
    Fault("fp32: the multiplier's second tail bit is ignored", "fp32.py",
          "below | «(above & shifted[top - 1])»", "0"),
    Fault("dot: product rounded without its lowest kept bit", "dot.py", "«(product[:8] & last_place).any()»", "0"),
    Fault("dot: ties of the term round up", "dot.py", "C((1 << 36) - 1) + «moved[37]»", "1"),
    Fault("dot: minimum of a subnormal scale moved", "dot.py",
          "m_up.eq(Mux(«minimum.exponent == 0», 0, minimum.exponent - 1))", "minimum.exponent == 1"),
    Fault("dot: offset of signed bytes", "dot.py", "offset.eq(«self.sum << 7»)", "(self.sum << 7) - 1"),
    Fault("engine: a fence waits a cycle less", "engine.py", "«(fenced & ~self.active)»", "~self.active"),
    Fault("engine: one token less is enough", "engine.py", "allowed = («tokens >= self.head.wait») &",
          "tokens + 1 >= self.head.wait"),
    Fault("engine: tokens are not taken", "engine.py",
          "tokens + self.token_i - «Mux(self.start, self.head.wait, 0)»", "0"),
    Fault("engine: reduce_fence is ignored", "engine.py", "allowed &= «~self.head.reduce_fence» |", "1"),
    Fault("engine: chain is ignored", "engine.py", "allowed &= «~self.head.chain» | chained", "1"),
    Fault("matrix: a pass is not filled up", "matrix.py", "long.eq(«(length == shortest) | ~step.multiply»)", "1"),
    Fault("matrix: the second group begins a row late", "matrix.py", "next_row_h.eq(«row_h + now.row_h»)",
          "step.row + now.row_h"),
    Fault("matrix: accumulators of two-row formats step by one", "matrix.py", "step.acc + «Mux(two, 2, 1)»", "1"),
    Fault("matrix: one row too many in a group after the first", "matrix.py",
          "h.eq(h - 1), r.eq(«now.nr»)", "now.nr + 1"),
    Fault("vector: mask one lane short", "vector.py", "with m.If(~now.mask | («place < bound»))",
          "place <= bound"),
    Fault("vector: a block's end is a word late", "vector.py", "block_end = «step.element == (BLOCK - tiles) % BLOCK»",
          "step.element == 0"),
    Fault("vector: index restarts at zero", "vector.py", "step.index.eq(Mux(end, «now.index», step.index + 1))", "0"),
    Fault("sequencer: a loop runs once more", "sequencer.py", "with m.If(«lefts[0] > 1»)", "lefts[0] > 0"),
    Fault("sequencer: shift by six bits", "sequencer.py", "(Alu.SHR, «alu_a >> alu_b[:5]»)", "alu_a >> alu_b[:6]"),
    Fault("sequencer: MIN is signed", "sequencer.py", "(Alu.MIN, «Mux(alu_a < alu_b, alu_a, alu_b)»)",
          "Mux(alu_a.as_signed() < alu_b.as_signed(), alu_a, alu_b)"),
    Fault("quantizer: ties round up", "quantizer.py", "size.eq((moved + ((1 << 24) - 1) + «moved[25]») >> 25)", "1"),
    Fault("quantizer: the largest integer is one more", "quantizer.py", "Mux(narrow, (1 << (NARROW_BITS - 1)) - 1, "
          "«(1 << (self.bits - 1)) - 1»)", "1 << (self.bits - 1)"),
    Fault("reducer: on a tie the later lane wins", "reducer.py", "Cat(«C(self.tiles - 1 - lane, levels)», key)",
          "C(lane, levels)"),
    Fault("reducer: a later word of the same value wins", "reducer.py", "with m.If((«key > start») &", "key >= start"),
    Fault("reducer: a partial sum of the segment before counts", "reducer.py",
          "running.eq(Mux(«used_before[n]», partial, NEGATIVE_ZERO))", "1"),
    Fault("special: slope rounded down", "special.py", "entry.c1 + ((entry.c2 * t + «half») >> 21)", "0"),
    Fault("special: a table's upper end is inside", "special.py", "«magnitude >= bound»", "magnitude > bound"),
    Fault("rowformat: zero of E2M1 is -0", "rowformat.py", "self.element.eq(Mux(«size == 0», 0,", "0"),
    Fault("lane: the addend's sign is not changed", "lane.py", "^ «(c_negate << 31)»)", "0"),
    Fault("lane: a masked lane writes", "lane.py", "self.write.eq(Mux(«masked», 0,", "0"),
    Fault("operands: fp16 scale of a subnormal power of two", "operands.py", "half.eq(Mux(«clamped < -14»,",
          "clamped < -15"),
    Fault("core: odd accumulator of a two-row format not written", "core.py",
          "first[\"acc_write\"].odd.eq(valid & step.multiply & «(two | step.acc[0])»)", "step.acc[0]"),
    Fault("tile: one tile writes where one is named, and its neighbour too", "tile.py",
          "return ~word.one | «(word.tile == number)»", "(word.tile[1:] == number[1:])"),
)
