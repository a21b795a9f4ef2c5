"""cocotb tests of the scalar registers: four readers and a writer of one or two, every cycle."""

import os

import cocotb

from hw.config import SCALARS
from hw.scalars import READS
from tests.cocotb.wires import Wires

COUNT = int(os.environ["COUNT"])
ADDRESSES = [f"address_{n}" for n in range(READS)]
VALUES = [f"q_{n}" for n in range(READS)]
INPUTS = {**dict.fromkeys(ADDRESSES, 6), "write": 1, "write_address": 6, "data": 32, "both": 1, "index": 32}


def access(random):
    """Reads, often of what is written now, and a write."""
    both = int(random.randrange(3) == 0)
    place = random.randrange(SCALARS) & ~both
    reads = {name: random.choice([place, place ^ 1, random.randrange(SCALARS)]) for name in ADDRESSES}
    return {**reads, "write": random.getrandbits(1), "write_address": place, "both": both,
            "data": random.getrandbits(32), "index": random.getrandbits(32)}


def expected(samples):
    content = {}
    for cycle, seen in enumerate(samples[:-1]):
        known = {value: content[seen[name]] for name, value in zip(ADDRESSES, VALUES, strict=True)
                 if seen[name] in content}
        if known:
            yield cycle + 1, known
        if seen["write"]:
            content[seen["write_address"]] = seen["data"]
            if seen["both"]:
                content[seen["write_address"] + 1] = seen["index"]


@cocotb.test()
@cocotb.parametrize(seed=[1, 2], gaps=[0.0, 0.4])
async def equals_the_model(dut, seed, gaps):
    wires = await Wires.start(dut, seed, inputs=INPUTS, outputs=VALUES)
    await wires.drive((access(wires.random) for _ in range(COUNT)), gaps=gaps,
                      pause=lambda: {"write": 0, "both": wires.random.getrandbits(1)})
    await wires.cycle(2)
    assert wires.compare(expected(wires.samples)) >= COUNT // 2
