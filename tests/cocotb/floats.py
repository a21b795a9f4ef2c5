"""cocotb tests of the fp32 adder and multiplier; which, and how many vectors, comes in the environment."""

import os

import cocotb
import numpy as np

from hw.fp32 import Adder, Multiplier
from sim import numerics
from tests.cocotb.wires import Wires

UNIT, MODEL = {"Adder": (Adder, numerics.add), "Multiplier": (Multiplier, numerics.multiply)}[os.environ["UNIT"]]
COUNT = int(os.environ["COUNT"])

SPECIAL = [0, 1, 0x7F_FFFF, 0x80_0000, 0x3F80_0000, 0x7F7F_FFFF, 0x7F80_0000, 0x7F80_0001, 0x7FC0_0000, 0x7FFF_FFFF]
"""Zero, the ends of the subnormal and of the normal numbers, one, infinity, and NaNs; also with sign."""


def word(random, other):
    """fp32 bits: anything, a special value, or a neighbour of `other` with any sign and a close exponent."""
    style = random.randrange(4)
    if style == 0:
        return random.getrandbits(32)
    if style == 1:
        return random.choice(SPECIAL) | random.getrandbits(1) << 31
    field = min(254, max(0, (other >> 23 & 255) + random.randrange(-26, 27)))
    fraction = (other + random.randrange(-2, 3)) & 0x7F_FFFF if style == 2 else random.getrandbits(23)
    return random.getrandbits(1) << 31 | field << 23 | fraction


def vectors(random):
    for high in SPECIAL:
        for low in SPECIAL:
            signs = random.getrandbits(2)
            yield {"a": high | (signs & 1) << 31, "b": low | (signs >> 1) << 31}
    for _ in range(COUNT):
        a = word(random, 0x3F80_0000)
        yield {"a": a, "b": word(random, a)}


def expected(samples):
    """Results by cycle, from operands as they were on the wires."""
    for cycle, seen in enumerate(samples[:-UNIT.latency]):
        a, b = (np.uint32(seen[name]).view(np.float32) for name in "ab")
        yield cycle + UNIT.latency, {"o": int(numerics.float_bits(MODEL(a, b)))}


@cocotb.test()
@cocotb.parametrize(seed=[1, 2], gaps=[0.0, 0.4])
async def equals_the_model(dut, seed, gaps):
    wires = await Wires.start(dut, seed, inputs={"a": 32, "b": 32}, outputs=["o"])
    pause = lambda: {"a": wires.random.getrandbits(32)}  # noqa: E731  b stays: one operand may change alone
    await wires.drive(vectors(wires.random), gaps=gaps, pause=pause)
    await wires.cycle(UNIT.latency + 1)
    assert wires.compare(expected(wires.samples)) >= COUNT


@cocotb.test()
async def reset_does_not_disturb_what_follows(dut):
    """Operands given right after a reset come out at the latency, whatever was on its way before."""
    wires = await Wires.start(dut, 3, inputs={"a": 32, "b": 32}, outputs=["o"])
    for _ in range(20):
        await wires.drive(list(vectors(wires.random))[:3], gaps=0, pause=dict)
        dut.rst.value = 1
        await wires.cycle(wires.random.randrange(1, 5))
        dut.rst.value = 0
        first = len(wires.samples)
        await wires.drive(list(vectors(wires.random))[-8:], gaps=0, pause=dict)
        await wires.cycle(UNIT.latency + 1)
        wanted = {cycle: o for cycle, o in expected(wires.samples) if cycle >= first + UNIT.latency}
        wires.compare(wanted)
