"""cocotb tests of an engine's front: queue, tokens and distances, against rules in absolute cycles.

One coroutine pushes, one gives tokens, one is the engine; the model hears of them from the wires alone.
"""

import json
import os

import cocotb

from tests.cocotb.fronts import Rules, field, finish, push, tokens
from tests.cocotb.layouts import front_layout
from tests.cocotb.wires import Wires

SIZES: dict[str, int] = json.loads(os.environ["SIZES"])
COUNT = int(os.environ["COUNT"])

LAYOUT = front_layout(bool(SIZES["chain_gap"]))

INPUTS = {"push": 1, "payload": LAYOUT.size, "active": 1, "last": 1, "emits": 1, "signals": 1, "token_i": 1, "clear": 1}
OUTPUTS = ["room", "head", "start", "token_o", "quiet", "state"]


def instruction(random, number):
    word = number << LAYOUT["number"].offset
    for name in dict(LAYOUT):
        chance = {"wait": 0.3, "signal": 0.5, "number": 0}.get(name, 0.25)
        if random.random() < chance:
            word |= random.randrange(1, 4 if name == "wait" else 2) << LAYOUT[name].offset
    return word


async def engine(wires, gaps):
    """Steps for every start that was on the wires: the last may meet the next start."""
    left = 0
    while True:
        if wires.samples and wires.samples[-1]["start"]:
            left = wires.random.choice([1, 1, 2, 3, 9])
            wires.put(signals=field(LAYOUT, wires.samples[-1]["head"], "signal"), emits=wires.random.getrandbits(1))
        wires.put(active=int(left > 0), last=int(left == 1))
        left -= left > 0
        await wires.cycle()


def expected(samples):
    """All outputs, by cycle."""
    rules = Rules(LAYOUT, SIZES)
    return {cycle: rules.next(seen) for cycle, seen in enumerate(samples)}


@cocotb.test()
@cocotb.parametrize(seed=[1, 2], gaps=[0.0, 0.7], share=[0.15, 0.9])
async def equals_the_rules(dut, seed, gaps, share):
    wires = await Wires.start(dut, seed, inputs=INPUTS, outputs=OUTPUTS)
    pushed = []
    cocotb.start_soon(engine(wires, gaps))
    cocotb.start_soon(tokens(wires, LAYOUT, pushed, share))
    await push(wires, (instruction(wires.random, number) for number in range(COUNT)), LAYOUT, pushed, gaps)
    await finish(wires)
    await wires.cycle(2)
    wanted = expected(wires.samples)
    wires.compare(wanted)
    started = [field(LAYOUT, outputs["head"], "number") for outputs in wanted.values() if outputs["start"]]
    assert started == list(range(COUNT)), f"seed {seed}: pushed 0 to {COUNT - 1} in order; started {started}"


@cocotb.test()
@cocotb.parametrize(seed=[3, 4])
async def clear_forgets_everything(dut, seed):
    """Instructions and tokens that are there when `clear` comes are never seen again."""
    wires = await Wires.start(dut, seed, inputs=INPUTS, outputs=OUTPUTS)
    for _ in range(30):
        for _ in range(wires.random.randrange(1, SIZES["depth"] + 1)):
            # Nobody gives enough tokens for these.
            wires.put(push=1, payload=instruction(wires.random, 0) | 15 << LAYOUT["wait"].offset,
                      token_i=wires.random.getrandbits(1))
            await wires.cycle()
        wires.put(push=0, token_i=0, clear=1)
        await wires.cycle()
        wires.put(clear=0)
        await wires.cycle(wires.random.randrange(1, 4))
    await finish(wires)
    wanted = expected(wires.samples)
    assert not any(outputs["start"] for outputs in wanted.values())
    wires.compare(wanted)
