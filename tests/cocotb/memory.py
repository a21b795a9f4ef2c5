"""cocotb tests of the Verilog memories: every port in every cycle, on the same words and on others."""

import json
import os

import cocotb

from tests.cocotb.wires import Wires

WIDTH, DEPTH, STROBES, READS, COUNT = (int(os.environ[name]) for name in
                                       ("WIDTH", "DEPTH", "STROBES", "READS", "COUNT"))
THROUGH, SHARED = (json.loads(os.environ[name]) for name in ("THROUGH", "SHARED"))
"""A read sees the write of its cycle; one address for reading and writing."""

ADDRESS = (DEPTH - 1).bit_length()
ADDRESSES = ["address"] * READS if SHARED else [f"address_{n}" for n in range(READS)]
WRITE_ADDRESS = "address" if SHARED else "write_address"
INPUTS = {"write": 1, "strobe": STROBES, "data": WIDTH, **dict.fromkeys([WRITE_ADDRESS, *ADDRESSES], ADDRESS),
          **{f"read_{n}": 1 for n in range(READS)}}
OUTPUTS = [f"q_{n}" for n in range(READS)]
GRAIN = WIDTH // STROBES


def access(random):
    """A write of some parts, and reads, often of the same word."""
    place = random.randrange(DEPTH)
    return {"write": random.getrandbits(1), WRITE_ADDRESS: place, "data": random.getrandbits(WIDTH),
            # A word that is written whole has no strobe.
            "strobe": random.choice([(1 << STROBES) - 1, random.getrandbits(STROBES)]) if STROBES > 1 else 1,
            **{name: place if SHARED else random.choice([place, random.randrange(DEPTH)]) for name in ADDRESSES},
            **{f"read_{n}": random.getrandbits(1) for n in range(READS)}}


def expected(samples):
    """What stands on the read ports, by cycle; a word is known once it has been written."""
    content = {}
    outputs = {}
    for cycle, seen in enumerate(samples):
        yield cycle, dict(outputs)
        before = dict(content)
        if seen["write"]:
            mask = sum((1 << GRAIN) - 1 << GRAIN * n for n in range(STROBES) if seen["strobe"] >> n & 1)
            place = seen[WRITE_ADDRESS]
            if place in content or mask == (1 << WIDTH) - 1:
                content[place] = content.get(place, 0) & ~mask | seen["data"] & mask
        for n, address in enumerate(ADDRESSES):
            if seen[f"read_{n}"]:
                word = (content if THROUGH else before).get(seen[address])
                outputs.pop(f"q_{n}", None)
                if word is not None:
                    outputs[f"q_{n}"] = word


@cocotb.test()
@cocotb.parametrize(seed=[1, 2], gaps=[0.0, 0.4])
async def equals_the_model(dut, seed, gaps):
    wires = await Wires.start(dut, seed, inputs=INPUTS, outputs=OUTPUTS)
    pause = lambda: {"write": 0, "data": wires.random.getrandbits(WIDTH),  # noqa: E731
                     **{f"read_{n}": 0 for n in range(READS)}}
    await wires.drive((access(wires.random) for _ in range(COUNT)), gaps=gaps, pause=pause)
    await wires.cycle(2)
    wanted = dict(expected(wires.samples))
    assert sum(len(outputs) for outputs in wanted.values()) >= COUNT // 2
    wires.compare(wanted)
