"""A core that only counts and remembers (with `hw.ram.VERILOG`): it stands in for the real one in tests of
the host port.
"""

from amaranth import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.config import LINE_WORDS
from hw.memorymap import ARGUMENTS
from hw.ram import Ram
from hw.timing import latencies

__all__ = ["CoreDouble"]

LINES = 64


class CoreDouble(wiring.Component):
    """Runs a command for as many cycles as its first argument says; bit 0 of the second makes it report
    not finite.

    Every tile of every space has `LINES` lines, whose addresses wrap. The sum of all arguments and the
    entry is at line 0 of the scalars after a command, so that a test sees that they arrived. A host access
    while a command runs destroys line 1 of the scalars.
    """

    def __init__(self, config):
        self.config = config
        super().__init__({
            "start": In(1), "entry": In(16), "arguments": In(data.ArrayLayout(32, ARGUMENTS)),
            "busy": Out(1), "done": Out(1), "cycles": Out(32), "nonfinite": Out(1),
            "position": Out(16), "engines": Out(32),
            "host_space": In(4), "host_tile": In(5), "host_address": In(24), "host_read": In(1),
            "host_q": Out(32 * LINE_WORDS), "host_write": In(1), "host_data": In(32 * LINE_WORDS),
            "host_strobe": In(4 * LINE_WORDS),
        })

    def elaborate(self, platform):
        m = Module()
        tile_bits = (self.config.tiles - 1).bit_length()
        depth = 10 * self.config.tiles * LINES
        store = Ram(width=32 * LINE_WORDS, depth=depth, strobes=4 * LINE_WORDS)
        m.submodules.store = store.instance
        line = Cat(self.host_address[:(LINES - 1).bit_length()], self.host_tile[:tile_bits], self.host_space)
        scalars = 5 * self.config.tiles * LINES

        later = [self.host_q, *(Signal(32 * LINE_WORDS, name=f"later_{n}")
                                for n in range(latencies(self.config).host_read - 1))]
        m.d.comb += [store.read_address[0].eq(line), store.read[0].eq(self.host_read), later[-1].eq(store.q[0])]
        m.d.sync += [a.eq(b) for a, b in zip(later, later[1:], strict=False)]

        m.d.comb += [self.position.eq(self.entry), self.engines.eq(0x1234_5678)]
        left = Signal(32)
        m.d.sync += self.done.eq(0)
        m.d.comb += [store.write_address.eq(line), store.data.eq(self.host_data),
                     store.strobe.eq(self.host_strobe), store.write.eq(self.host_write)]
        with m.If(self.start):
            m.d.sync += [self.busy.eq(1), left.eq(self.arguments[0]), self.cycles.eq(self.arguments[0]),
                         self.nonfinite.eq(self.arguments[1][0])]
            m.d.comb += [store.write_address.eq(scalars), store.strobe.eq(-1), store.write.eq(1),
                         store.data.eq(sum((self.arguments[n] for n in range(ARGUMENTS)), self.entry)[:32])]
        with m.If(self.busy):
            m.d.sync += left.eq(left - 1)
            with m.If(left <= 1):
                m.d.sync += [self.busy.eq(0), self.done.eq(1)]
            with m.If(self.host_read | self.host_write):
                m.d.comb += [store.write_address.eq(scalars + 1), store.strobe.eq(-1), store.write.eq(1),
                             store.data.eq(-1)]
        return m
