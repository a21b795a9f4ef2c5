"""cocotb tests of the dot unit: rows of every format in turn, ordinary and special scales, extreme blocks."""

import os

import cocotb
import numpy as np

from hw.dot import DotUnit
from hw.isa import RowFormat
from sim import numerics
from tests.cocotb.wires import Wires, signed

COUNT = int(os.environ["COUNT"])
INTEGERS = [f"q_{n}" for n in range(32)]
INPUTS = {"row": 256, "side": 64, "format": 2, **dict.fromkeys(INTEGERS, 9), "e": 8, "sum": 14}
E2M1 = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]
"""OCP Microscaling Formats 1.0, section 5.3.3, doubled."""
HALVES = [0, 0x8000, 1, 0x3FF, 0x400, 0x3C00, 0x7BFF, 0x7C00, 0xFC00, 0x7E01]


def half(random):
    """fp16 bits: a likely scale, anything, or a special value."""
    return random.choice([random.getrandbits(1) << 15 | random.randrange(3, 18) << 10 | random.getrandbits(10),
                          random.getrandbits(16), random.choice(HALVES)])


def operation(random, formats):
    """A row and a block."""
    reach = random.choice([255, 255, 3, 1])
    q = [random.choice([-reach, reach]) if reach == 1 else random.randrange(-reach, reach + 1) for _ in INTEGERS]
    if random.randrange(20) == 0:
        q = [255] * 32
    row = random.choice([random.getrandbits(256), int.from_bytes(bytes([random.choice([0x80, 0x7F, 0xFF, 0])] * 32))])
    side = sum(half(random) << 16 * n for n in range(4))
    e = random.choice([-102, 90, *range(-102, 91)])
    return {"row": row, "side": side, "format": random.choice(formats), "e": e & 0xFF, "sum": sum(q) & 0x3FFF,
            **{name: value & 0x1FF for name, value in zip(INTEGERS, q, strict=True)}}


def weights(row, row_format):
    """Integer elements of a row, 32 of one or of each of two output rows."""
    if row_format == RowFormat.Q8:
        return [[signed(row >> 8 * n & 0xFF, 8) for n in range(32)]]
    nibbles = [[row >> 4 * (n + 32 * k) & 0xF for n in range(32)] for k in (0, 1)]
    return [[E2M1[n] for n in part] for part in nibbles] if row_format == RowFormat.F4 else nibbles


def expected(samples):
    """Terms by cycle; the second of a q8 row has no meaning."""
    for cycle, seen in enumerate(samples[:-DotUnit.latency]):
        q = np.array([signed(seen[name], 9) for name in INTEGERS])
        x, e = signed(seen["sum"], 14), signed(seen["e"], 8)
        terms = {}
        for k, w in enumerate(weights(seen["row"], seen["format"])):
            d, m = (seen["side"] >> 16 * n & 0xFFFF for n in (2 * k, 2 * k + 1))
            terms[f"term{k}"] = int(numerics.float_bits(numerics.dot_term(int((q * w).sum()), x, d, m, e)))
        yield cycle + DotUnit.latency, terms


@cocotb.test()
@cocotb.parametrize(formats=[*([f] for f in RowFormat), list(RowFormat)], gaps=[0.0, 0.3])
async def equals_the_model(dut, formats, gaps):
    wires = await Wires.start(dut, 1 + sum(formats), inputs=INPUTS, outputs=["term0", "term1"])
    # In a pause the row changes and the block stays, as in a pass over rows.
    pause = lambda: {"row": wires.random.getrandbits(256)}  # noqa: E731
    await wires.drive((operation(wires.random, formats) for _ in range(COUNT)), gaps=gaps, pause=pause)
    await wires.cycle(DotUnit.latency + 1)
    assert wires.compare(expected(wires.samples)) >= COUNT
