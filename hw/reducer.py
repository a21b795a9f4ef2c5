"""The reduction tree: sum, maximum, position of the maximum, or lane 0, of a run of words over all lanes."""

from amaranth import C, Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.config import MAX_TILES
from hw.delay import delay
from hw.fp32 import CANONICAL_NAN, NEGATIVE_ZERO, Adder
from hw.isa import Reduce
from hw.latency import ADD, reduce_depth

__all__ = ["Reducer"]

PARTIALS = 4
"""Running sums, one more than the adder is deep: each is written in the cycle before it is read again."""

INFINITY = 0x7F80_0000

MINUS_INFINITY = 0x007F_FFFF
"""The key of -inf, from which a maximum starts; NaN has key 0 below it and never wins."""

WAITING = 32
"""Places for finished segments on their way: more than `reduce_depth` of the largest device."""


_OP = 3  # bits of `Reduce`

_Finished = data.StructLayout({"value": 32, "index": 32, "dest": 6, "op": _OP})


class Reducer(wiring.Component):
    """One scalar of every segment of words, one word of all lanes a cycle, free-running.

    A segment begins with `init` and ends with `emit`; segments may follow each other without a pause and may
    be one word long. A word without `init` after an `emit` continues with the running values.

    * ``SUM``: a balanced tree over the lanes of a word (neighbours first), added to partial sum ``n mod 4``
      for the ``n``-th summed word since `init`; the partials start at -0.0; the result is ``(p0 + p1) + (p2 +
      p3)``. A lane that takes no part presents -0.0.
    * ``MAX``, ``ARGMAX``: the largest value, and ``lane + tiles * word`` of its first place. -0.0 is below
      +0.0. NaN never wins; if nothing is above -inf the result is -inf and index 0. A lane that takes no part
      presents NaN.
    * ``TAKE``: lane 0 of the word with `emit`.

    Timing: the scalar leaves `latency.reduce_depth` cycles after the word with `emit`, whatever the
    operation. Words may pause.

    Parameters
    ----------
    tiles : int
        Lanes; a power of two up to `MAX_TILES`.

    Members
    -------
    valid, x : In
        A word of the lanes.
    op, absolute : In
        What to make of it (`hw.isa.Reduce`; nothing for NONE), of the values or of their absolute values.
    init, emit : In
        First word of a segment (which clears sum and maximum alike), last word of a segment.
    word, dest : In
        Index of the word for ARGMAX; scalar register, taken with `emit`.
    o_valid, o_dest, o_value, o_index, o_argmax : Out
        The scalar, and for ARGMAX its index.
    """

    def __init__(self, *, tiles: int) -> None:
        if not 1 <= tiles <= MAX_TILES or tiles & (tiles - 1):
            raise ValueError(f"tiles must be a power of two from 1 to {MAX_TILES}; got {tiles!r}")
        self.tiles = tiles
        super().__init__({
            "valid":    In(1),
            "x":        In(32).array(tiles),
            "op":       In(_OP),
            "absolute": In(1),
            "init":     In(1),
            "emit":     In(1),
            "word":     In(32),
            "dest":     In(6),
            "o_valid":  Out(1),
            "o_dest":   Out(6),
            "o_value":  Out(32),
            "o_index":  Out(32),
            "o_argmax": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        levels = (self.tiles - 1).bit_length()
        x = [Signal(32, name=f"x_{lane}") for lane in range(self.tiles)]
        m.d.comb += [value.eq(Cat(word[:31], word[31] & ~self.absolute))
                     for value, word in zip(x, self.x, strict=True)]
        taking = Signal()
        m.d.comb += taking.eq(self.valid & (self.op != Reduce.NONE))
        total = self._sum(m, x, levels, taking)
        result = self._finished(m, x, levels, taking)

        ending = _later(m, taking & self.emit, reduce_depth(self.tiles) - 1, "ending")
        taken = Signal(range(WAITING))
        m.d.sync += [taken.eq(taken + ending), self.o_valid.eq(ending)]
        m.d.comb += result.addr.eq(taken)
        finished = result.data
        m.d.comb += [
            self.o_dest.eq(finished.dest),
            self.o_value.eq(Mux(finished.op == Reduce.SUM, total, finished.value)),
            self.o_index.eq(finished.index),
            self.o_argmax.eq(finished.op == Reduce.ARGMAX),
        ]
        return m

    def _sum(self, m: Module, x: list[Signal], levels: int, taking: Signal) -> Signal:
        """The sum of the segment that ended `reduce_depth` cycles ago."""
        values = x
        for level in range(levels):
            values = [_add(m, f"lanes_{level}_{n}", a, b)
                      for n, (a, b) in enumerate(zip(values[::2], values[1::2], strict=True))]
        # Facts of the word that now leaves the tree.
        summed = _later(m, taking & (self.op == Reduce.SUM), ADD * levels, "summed")
        init = _later(m, taking & self.init, ADD * levels, "init")

        partials = [Signal(32, name=f"partial_{k}", init=NEGATIVE_ZERO) for k in range(PARTIALS)]
        following, k = Signal(2), Signal(2)
        used, used_before = Signal(PARTIALS), Signal(PARTIALS)
        running = Signal(32)
        m.d.comb += [
            k.eq(Mux(init, 0, following)),
            used_before.eq(Mux(init, 0, used)),
        ]
        m.d.sync += [
            following.eq(k + summed),
            used.eq(used_before | (summed << k)),
        ]
        with m.Switch(k):
            for n, partial in enumerate(partials):
                with m.Case(n):
                    # A partial may still hold the segment before: it counts as -0.0 until this one has used
                    # it.
                    m.d.comb += running.eq(Mux(used_before[n], partial, NEGATIVE_ZERO))
        new = _add(m, "running", running, values[0])
        # Facts of the word that now leaves the running adder; a first word also makes the other partials
        # neutral.
        summed_new, init_new, k_new = (delay(m, fact, ADD, f"{name}_new")
                                       for name, fact in (("summed", summed), ("init", init), ("k", k)))
        with m.If(init_new):
            m.d.sync += [partial.eq(NEGATIVE_ZERO) for partial in partials]
        with m.If(summed_new):
            with m.Switch(k_new):
                for n, partial in enumerate(partials):
                    with m.Case(n):
                        m.d.sync += partial.eq(new)
        return _add(m, "total", _add(m, "total_01", *partials[:2]), _add(m, "total_23", *partials[2:]))

    def _finished(self, m: Module, x: list[Signal], levels: int, taking: Signal):
        """The read port of the segments under way, oldest first: maximum, index and destination."""
        # A key above the complement of its lane: one comparison finds the largest value and its first place.
        values = []
        for lane, word in enumerate(x):
            value = Signal(32 + levels, name=f"key_{lane}")
            key = Mux(word[:31] > INFINITY, 0, Mux(word[31], ~word, word | (1 << 31)))
            m.d.comb += value.eq(Cat(C(self.tiles - 1 - lane, levels), key))
            values.append(value)
        for level in range(levels):
            values = [_larger(m, f"{level}_{n}", a, b, registered=level % 2 == 1)
                      for n, (a, b) in enumerate(zip(values[::2], values[1::2], strict=True))]
        key, lane = values[0][levels:], ~values[0][:levels]

        # Facts of the word that now leaves the comparators.
        taking, init, emit, op, word, dest, lane_0 = (
            delay(m, fact, levels // 2, f"{name}_max")
            for name, fact in (("taking", taking), ("init", self.init), ("emit", self.emit), ("op", self.op),
                               ("word", self.word), ("dest", self.dest), ("lane_0", x[0])))
        best, best_index = Signal(32, init=MINUS_INFINITY), Signal(32)
        start, start_index = Signal(32), Signal(32)
        new, new_index = Signal(32), Signal(32)
        m.d.comb += [
            start.eq(Mux(init, MINUS_INFINITY, best)),
            start_index.eq(Mux(init, 0, best_index)),
            new.eq(start),
            new_index.eq(start_index),
        ]
        with m.If((key > start) & ((op == Reduce.MAX) | (op == Reduce.ARGMAX))):
            m.d.comb += [new.eq(key), new_index.eq(Cat(lane, word))]
        with m.If(taking):
            m.d.sync += [best.eq(new), best_index.eq(new_index)]

        m.submodules.finished = memory = Memory(shape=_Finished, depth=WAITING, init=[])
        write, read = memory.write_port(), memory.read_port()
        taken = Mux(lane_0[:31] > INFINITY, CANONICAL_NAN, lane_0)
        m.d.comb += [
            write.en.eq(taking & emit),
            write.data.dest.eq(dest),
            write.data.op.eq(op),
            write.data.value.eq(Mux(op == Reduce.TAKE, taken, Mux(new[31], new ^ (1 << 31), ~new))),
            write.data.index.eq(new_index),
        ]
        m.d.sync += write.addr.eq(write.addr + write.en)
        return read


def _add(m: Module, name: str, a, b) -> Signal:
    adder = Adder()
    m.submodules[f"add_{name}"] = adder
    m.d.comb += [adder.a.eq(a), adder.b.eq(b)]
    return adder.o


def _later(m: Module, bit, cycles: int, name: str):
    """A bit some clocks later, from one shift register: the simulator moves it in one piece."""
    if cycles == 0:
        return bit
    line = Signal(cycles, name=name)
    m.d.sync += line.eq(Cat(bit, line)[:cycles])
    return line[-1]


def _larger(m: Module, name: str, a: Signal, b: Signal, *, registered: bool) -> Signal:
    larger = Signal(len(a), name=f"larger_{name}")
    domain = m.d.sync if registered else m.d.comb
    domain += larger.eq(Mux(b > a, b, a))
    return larger
