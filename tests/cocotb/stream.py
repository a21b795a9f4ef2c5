"""cocotb tests of what holds the transfers of a stream: the register slice and the host port's queues."""

import os
from collections import deque

import cocotb

from tests.cocotb.wires import Wires

DEPTH, LATENCY, BITS, COUNT = (int(os.environ[name]) for name in ("DEPTH", "LATENCY", "BITS", "COUNT"))
COUNTS = os.environ["COUNTS"] == "true"
"""Whether it counts its entries and can forget them."""

INPUTS = {"i_payload": BITS, "i_valid": 1, "o_ready": 1, **({"clear": 1} if COUNTS else {})}
OUTPUTS = ["i_ready", "o_payload", "o_valid", *(["count"] if COUNTS else [])]


async def put(wires, count, gaps):
    """Transfers that stay until they are taken."""
    for _ in range(count):
        while wires.random.random() < gaps:
            wires.put(i_valid=0, i_payload=wires.random.getrandbits(BITS))
            await wires.cycle()
        wires.put(i_valid=1, i_payload=wires.random.getrandbits(BITS))
        await wires.cycle()
        while not taken(wires.samples[-1], "i"):
            await wires.cycle()
    wires.put(i_valid=0)


async def get(wires, stalls):
    while True:
        wires.put(o_ready=int(wires.random.random() >= stalls))
        await wires.cycle()


def taken(seen, side):
    return seen[f"{side}_valid"] and seen[f"{side}_ready"]


def expected(samples):
    """Outputs by cycle; the payload is only known while it is valid, room only where it is promised."""
    entries = deque()  # payload, cycle of its transfer
    for cycle, seen in enumerate(samples):
        valid = bool(entries) and entries[0][1] <= cycle - LATENCY
        wanted = {"o_valid": int(valid)}
        if valid:
            wanted["o_payload"] = entries[0][0]
        if COUNTS:
            wanted["count"] = len(entries)
        if len(entries) in (0, DEPTH) or valid:
            wanted["i_ready"] = int(len(entries) < DEPTH)
        yield cycle, wanted
        if taken(seen, "o"):
            entries.popleft()
        if taken(seen, "i"):
            entries.append((seen["i_payload"], cycle))
        if seen.get("clear"):
            entries.clear()


@cocotb.test()
@cocotb.parametrize(seed=[1], gaps=[0.0, 0.6], stalls=[0.0, 0.3, 0.8])
async def equals_the_model(dut, seed, gaps, stalls):
    wires = await Wires.start(dut, seed, inputs=INPUTS, outputs=OUTPUTS)
    cocotb.start_soon(get(wires, stalls))
    await put(wires, COUNT, gaps)
    await wires.cycle(20 * DEPTH)
    wires.compare(expected(wires.samples))
    for side in "io":
        assert sum(taken(seen, side) for seen in wires.samples) == COUNT
    if not gaps and not stalls:
        assert len(wires.samples) <= COUNT + 20 * DEPTH + LATENCY, "not a transfer a cycle"


@cocotb.test(skip=not COUNTS)
@cocotb.parametrize(seed=[2, 3])
async def clear_forgets_everything(dut, seed):
    wires = await Wires.start(dut, seed, inputs=INPUTS, outputs=OUTPUTS)
    cocotb.start_soon(get(wires, 0.6))
    for _ in range(30):
        await put(wires, wires.random.randrange(1, 2 * DEPTH), 0.2)
        wires.put(clear=1)
        await wires.cycle()
        wires.put(clear=0)
        await wires.cycle(wires.random.randrange(3))
    await wires.cycle(LATENCY)
    wires.compare(expected(wires.samples))
    assert sum(taken(seen, "o") for seen in wires.samples) < sum(taken(seen, "i") for seen in wires.samples)
