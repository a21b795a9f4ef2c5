"""cocotb tests of the reduction tree: segments with and without beginnings, of all operations, with pauses."""

import os

import cocotb
import numpy as np

from hw.isa import Reduce
from hw.latency import reduce_depth
from sim import numerics
from tests.cocotb.wires import Wires

TILES, COUNT = int(os.environ["TILES"]), int(os.environ["COUNT"])
DEPTH = reduce_depth(TILES)
LANES = [f"x_{lane}" for lane in range(TILES)]
INPUTS = {"valid": 1, **dict.fromkeys(LANES, 32), "op": 3, "absolute": 1, "init": 1, "emit": 1, "word": 32, "dest": 6}
OUTPUTS = ["o_valid", "o_dest", "o_value", "o_index", "o_argmax"]
STRANGE = [0, 1, 0x7F80_0000, 0x7FC0_0000, 0x7FFF_FFFF]


def lanes(random):
    """A word: ordinary values, small integers that tie, and strange ones; sometimes nothing but NaN."""
    if random.randrange(10) == 0:
        return dict.fromkeys(LANES, 0xFFC0_0000)
    near = random.randrange(110, 145)
    word = {}
    for lane in LANES:
        style = random.randrange(12)
        magnitude = (near + random.randrange(-9, 9)) << 23 | random.getrandbits(23)
        if style == 0:
            magnitude = random.choice(STRANGE)
        elif style < 3:
            magnitude = int(np.float32(random.randrange(4)).view(np.uint32))
        word[lane] = random.getrandbits(1) << 31 | magnitude
    return word


def words(random):
    for n in range(COUNT):
        yield {"valid": 1, **lanes(random), "op": random.choice([Reduce.SUM] * 4 + list(Reduce)),
               "absolute": int(random.randrange(4) == 0), "init": int(n == 0 or random.randrange(9) == 0),
               "emit": int(random.randrange(3) == 0), "word": random.getrandbits(32), "dest": random.getrandbits(6)}


def expected(samples):
    """Scalars and their absence, by cycle, from the words since the latest `init`."""
    summed, compared, places = [], [], []
    for cycle, seen in enumerate(samples[:-DEPTH]):
        op, due = seen["op"], cycle + DEPTH
        taking = seen["valid"] and op != Reduce.NONE
        if taking:
            x = np.array([seen[lane] for lane in LANES], np.uint32)
            x = (x & np.uint32(0x7FFF_FFFF) if seen["absolute"] else x).view(np.float32)
            if seen["init"]:
                summed, compared, places = [], [], []
            if op == Reduce.SUM:
                summed.append(x)
            elif op != Reduce.TAKE:
                compared.append(x)
                places.append(seen["word"])
        if not (taking and seen["emit"]):
            yield due, {"o_valid": 0}
            continue
        facts = {"o_valid": 1, "o_dest": seen["dest"], "o_argmax": int(op == Reduce.ARGMAX)}
        if op == Reduce.SUM:
            value = numerics.reduce_sum(np.array(summed))
        elif op == Reduce.TAKE:
            value = numerics.canonical(x[0])
        else:
            value, where = numerics.reduce_argmax(np.array(compared))
            if op == Reduce.ARGMAX:
                found = value != -np.inf
                index = places[where // TILES] * TILES + int(where) % TILES
                facts["o_index"] = index & 0xFFFF_FFFF if found else 0
        yield due, facts | {"o_value": int(numerics.float_bits(value))}


@cocotb.test()
@cocotb.parametrize(seed=[1, 2], gaps=[0.0, 0.4])
async def equals_the_model(dut, seed, gaps):
    wires = await Wires.start(dut, seed, inputs=INPUTS, outputs=OUTPUTS)
    pause = lambda: {"valid": 0, "x_0": wires.random.getrandbits(32),  # noqa: E731
                     "init": wires.random.getrandbits(1), "emit": 1}
    await wires.drive(words(wires.random), gaps=gaps, pause=pause)
    await wires.cycle(DEPTH + 1)
    wanted = dict(expected(wires.samples))
    assert sum(outputs["o_valid"] for outputs in wanted.values()) >= COUNT // 6
    wires.compare(wanted)
