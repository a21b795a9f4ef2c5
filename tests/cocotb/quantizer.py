"""cocotb tests of the quantizer: blocks with pauses inside and between them, and blocks begun again."""

import os

import cocotb
import numpy as np

from hw.quantizer import Quantizer
from sim import numerics
from tests.cocotb.wires import Wires

TILES, BITS, COUNT = (int(os.environ[name]) for name in ("TILES", "BITS", "COUNT"))
WORDS = 32 // TILES
INPUTS = {"valid": 1, "first": 1, **{f"x_{lane}": 32 for lane in range(TILES)}, "narrow": 1, "given": 1,
          "scale": 32, "address": 12}
INTEGERS = [f"o_q_{n}" for n in range(32)]
OUTPUTS = ["o_valid", "o_address", "o_e", "o_sum", "nonfinite", *INTEGERS]
STRANGE = [0, 1, 0x7F_FFFF, 0x7F7F_FFFF, 0x7F80_0000, 0x7FC0_0000]


def block(random):
    """32 fp32 words of about one magnitude; or multiples of half a step; or anything at all."""
    style, field = random.randrange(5), random.randrange(30, 220)
    words = []
    for _ in range(32):
        magnitude = (field - random.randrange(0, 14)) << 23 | random.getrandbits(23)
        if style == 0:
            magnitude = field << 23 | random.getrandbits(7) << 16
        elif style == 1:
            magnitude = random.getrandbits(31)
        elif style == 2 and random.randrange(8) == 0:
            magnitude = random.choice(STRANGE)
        words.append(random.getrandbits(1) << 31 | magnitude)
    return [word & 0x8000_0000 for word in words] if random.randrange(12) == 0 else words


def words_of_blocks(random):
    for n in range(COUNT):
        words = block(random)
        top = max(word >> 23 & 255 for word in words)
        facts = {"narrow": random.getrandbits(1), "given": random.getrandbits(1), "address": random.getrandbits(12),
                 "scale": min(254, max(1, top - random.randrange(0, 12))) << 23}
        # Every eighth block is left unfinished, and what follows says that it is a first word.
        broken = n % 8 == 7 and WORDS > 1
        for k in range(random.randrange(1, WORDS) if broken else WORDS):
            lanes = {f"x_{lane}": words[k * TILES + lane] for lane in range(TILES)}
            yield {"valid": 1, "first": int(k == 0), **lanes, **facts}


def expected(samples):
    """Blocks and their absence, by cycle."""
    words = []
    for cycle, seen in enumerate(samples[:-Quantizer.latency]):
        due = cycle + Quantizer.latency
        if seen["valid"]:
            words = ([] if seen["first"] else words) + [seen[f"x_{lane}"] for lane in range(TILES)]
        if not seen["valid"] or len(words) < 32:
            yield due, {"o_valid": 0, "nonfinite": 0}
            continue
        x = np.array(words, np.uint32).view(np.float32)
        words = []
        bits = 8 if seen["narrow"] else BITS
        if seen["given"]:
            e = numerics.power_exponent(np.uint32(seen["scale"]).view(np.float32))
            q, e, total, nonfinite = numerics.quantize_given(x, np.int64(e), bits)
        else:
            q, e, total, nonfinite = (numerics.quantize_kv(x) if seen["narrow"] else
                                      numerics.quantize_operand(x, BITS))
        yield due, {"o_valid": 1, "o_address": seen["address"], "o_e": int(e) & 0xFF, "o_sum": int(total) & 0x3FFF,
                    "nonfinite": int(nonfinite),
                    **{name: int(value) & 0x1FF for name, value in zip(INTEGERS, q, strict=True)}}


@cocotb.test()
@cocotb.parametrize(seed=[1, 2], gaps=[0.0, 0.4])
async def equals_the_model(dut, seed, gaps):
    wires = await Wires.start(dut, seed, inputs=INPUTS, outputs=OUTPUTS)
    pause = lambda: {"valid": 0, "x_0": wires.random.getrandbits(32),  # noqa: E731
                     "first": wires.random.getrandbits(1)}
    await wires.drive(words_of_blocks(wires.random), gaps=gaps, pause=pause)
    await wires.cycle(Quantizer.latency + 1)
    wanted = dict(expected(wires.samples))
    assert sum(outputs["o_valid"] for outputs in wanted.values()) >= COUNT * 7 // 8
    wires.compare(wanted)
