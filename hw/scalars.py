"""The scalar registers, in two banks so that a maximum and its index are written at once."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.config import SCALARS

__all__ = ["Scalars"]

READS = 4
"""Read ports: P, Q, R, and the exponent of given blocks."""


class Scalars(wiring.Component):
    """Scalar registers.

    Timing: reads have the clock domain ``lane``. `q[n]` follows `address[n]` by a cycle and does not see a write of
    the same cycle as `address`.

    Members
    -------
    address, q : In, Out
        Four read ports.
    write, write_address, data : In
        A scalar. With `both` (and an even address), `index` goes to the one after it.
    """

    address: In(6).array(READS)
    q: Out(32).array(READS)
    write: In(1)
    write_address: In(6)
    data: In(32)
    both: In(1)
    index: In(32)

    def elaborate(self, platform):
        m = Module()
        odd = self.write_address[0]
        for bank, name in ((0, "even"), (1, "odd")):
            m.submodules[name] = memory = Memory(shape=32, depth=SCALARS // 2, init=[])
            write = memory.write_port()
            m.d.comb += [
                write.en.eq(self.write & ((odd == bank) | self.both)),
                write.addr.eq(self.write_address[1:]),
                write.data.eq(Mux(self.both, self.index, self.data) if bank else self.data),
            ]
            for n in range(READS):
                read = memory.read_port(domain="lane")
                chosen = Signal(name=f"chosen_{name}_{n}")
                m.d.comb += read.addr.eq(self.address[n][1:])
                m.d.lane += chosen.eq(self.address[n][0] == bank)
                with m.If(chosen):
                    m.d.comb += self.q[n].eq(read.data)
        return m
