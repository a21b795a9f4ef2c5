"""The operand buffer: blocks from the quantizer, broadcast to the tiles, and stored into array rows."""

from amaranth import C, Cat, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.config import BLOCK, LINE_WORDS, HardwareConfig
from hw.ram import Ram

__all__ = ["Operands"]

HALF_WORDS = 10
"""Words of a block at the host's even address: 20 elements. The odd address has the other 12, sum and exponent."""

KV_LOWEST, KV_HIGHEST = -24, 15
"""Exponents of a stored row: powers of two that fp16 holds."""


class Operands(wiring.Component):
    """Blocks of 32 integers with sum and exponent.

    Timing: `line` and the words of `host_q` stand in the cycle after `read`, the block in the cycle after that.

    Parameters
    ----------
    config : HardwareConfig
        The device.

    Members
    -------
    read, address : In
        Block to read.
    integers, sum, exponent : Out
        That block.
    line : Out(320)
        The same as an array row: the low bytes, and 2^e as fp16 in the lowest side bits (1.0 if `column`, given in the
        cycle after `read`).
    write, write_address, q, write_sum, write_exponent : In
        A block from the quantizer.
    host_write, host_read, host_address, host_data, host_strobe : In
        Half blocks for the host, by words; `host_q` follows the read by a cycle.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        self.ram = Ram(width=BLOCK * config.activation_bits, depth=config.operands, strobes=BLOCK // 2, name="integers")
        address = len(self.ram.write_address)
        super().__init__({
            "read": In(1), "address": In(address),
            "integers": Out(signed(config.activation_bits)).array(BLOCK),
            "sum": Out(signed(14)), "exponent": Out(signed(8)),
            "line": Out(32 * LINE_WORDS), "column": In(1),
            "write": In(1), "write_address": In(address), "q": In(signed(9)).array(BLOCK),
            "write_sum": In(signed(14)), "write_exponent": In(signed(8)),
            "host_write": In(1), "host_read": In(1), "host_address": In(24),
            "host_data": In(32 * LINE_WORDS), "host_strobe": In(LINE_WORDS), "host_q": Out(32 * LINE_WORDS),
        })

    def elaborate(self, platform):
        m = Module()
        bits = self.config.activation_bits
        integers = self.ram
        facts = Ram(width=24, depth=self.config.operands, name="facts")  # sum (16), exponent (8)
        m.submodules.integers = integers.instance
        m.submodules.facts = facts.instance

        odd, block = self.host_address[0], self.host_address[1:]
        # A pair of integers a word. The odd half's word 6 holds the facts.
        data, pairs = self.host_data, []
        for pair in range(BLOCK // 2):
            word = data.word_select(pair if pair < HALF_WORDS else pair - HALF_WORDS, 32)
            pairs.append(Cat(word[:bits], word[16:16 + bits]))
        strobes = Cat(*(self.host_strobe[n] & ~odd for n in range(HALF_WORDS)),
                      *(self.host_strobe[n] & odd for n in range(BLOCK // 2 - HALF_WORDS)))
        facts_word = BLOCK // 2 - HALF_WORDS
        m.d.comb += [
            integers.read[0].eq(self.read | self.host_read),
            integers.read_address[0].eq(Mux(self.host_read, block, self.address)),
            integers.write.eq(self.write | self.host_write),
            integers.strobe.eq(Mux(self.host_write, strobes, -1)),
            integers.write_address.eq(Mux(self.host_write, block, self.write_address)),
            integers.data.eq(Mux(self.host_write, Cat(*pairs), Cat(*(q[:bits] for q in self.q)))),
            facts.read[0].eq(self.read | self.host_read),
            facts.read_address[0].eq(integers.read_address[0]),
            facts.write.eq(self.write | (self.host_write & odd & self.host_strobe[facts_word])),
            facts.write_address.eq(integers.write_address),
            facts.data.eq(Mux(self.host_write, data.word_select(facts_word, 32)[:24],
                              Cat(self.write_sum.as_signed()[:14], self.write_sum[13].replicate(2),
                                  self.write_exponent))),
        ]

        q, fact = integers.q[0], facts.q[0]
        elements = [q[bits * n:bits * (n + 1)] for n in range(BLOCK)]
        exponent = fact[16:].as_signed()
        m.d.sync += [
            *(out.eq(element) for out, element in zip(self.integers, elements, strict=True)),
            self.sum.eq(fact[:14]),
            self.exponent.eq(exponent),
        ]

        clamped, half = Signal(signed(6)), Signal(16)
        m.d.comb += [
            clamped.eq(Mux(exponent < KV_LOWEST, KV_LOWEST, Mux(exponent > KV_HIGHEST, KV_HIGHEST, exponent))),
            # 2^-24 is the smallest subnormal, 2^-14 the smallest normal number.
            half.eq(Mux(clamped < -14, 1 << (clamped + 24)[:4], (clamped + 15)[:5] << 10)),
            self.line.eq(Cat(*(e[:8] for e in elements), Mux(self.column, 0x3C00, half), C(0, 48))),
        ]

        words = [Cat(e[:bits], e[-1].replicate(16 - bits)) for e in elements]
        second = Signal()
        m.d.sync += second.eq(odd)
        m.d.comb += self.host_q.eq(Mux(
            second, Cat(*words[2 * HALF_WORDS:], fact, C(0, 8)), Cat(*words[:2 * HALF_WORDS])))
        return m
