"""cocotb tests of an engine's front: queue, tokens and distances, against rules in absolute cycles.

One coroutine pushes, one gives tokens, one is the engine; the model hears of them from the wires alone.
"""

import json
import os
from collections import deque

import cocotb

from tests.cocotb.layouts import front_layout
from tests.cocotb.wires import Wires

SIZES: dict[str, int] = json.loads(os.environ["SIZES"])
COUNT = int(os.environ["COUNT"])
VECTOR = bool(SIZES["chain_gap"])

LAYOUT = front_layout(VECTOR)

INPUTS = {"push": 1, "payload": LAYOUT.size, "active": 1, "last": 1, "emits": 1, "signals": 1, "token_i": 1, "clear": 1}
OUTPUTS = ["room", "head", "start", "token_o", "quiet"]
NEVER = -10_000
"""A cycle before all distances."""


def field(word, name):
    if name not in dict(LAYOUT):
        return 0
    place = LAYOUT[name]
    return word >> place.offset & (1 << place.width) - 1


def instruction(random, number):
    word = number << LAYOUT["number"].offset
    for name in dict(LAYOUT):
        chance = {"wait": 0.3, "signal": 0.5, "number": 0}.get(name, 0.25)
        if random.random() < chance:
            word |= random.randrange(1, 4 if name == "wait" else 2) << LAYOUT[name].offset
    return word


async def push(wires, waits, gaps):
    """Instructions, whenever there is room; `waits` learns what tokens they want."""
    for number in range(COUNT):
        while not wires.get("room") or wires.random.random() < gaps:
            wires.put(push=0, payload=wires.random.getrandbits(LAYOUT.size))
            await wires.cycle()
        word = instruction(wires.random, number)
        waits.append(field(word, "wait"))
        wires.put(push=1, payload=word)
        await wires.cycle()
    wires.put(push=0)


async def tokens(wires, waits, share):
    """Never fewer in the end than are waited for, and never many more."""
    given = 0
    while True:
        give = given < sum(waits) + 3 and wires.random.random() < share
        given += give
        wires.put(token_i=int(give))
        await wires.cycle()


async def engine(wires, gaps):
    """Steps for every start that was on the wires: the last may meet the next start."""
    left = 0
    while True:
        if wires.samples and wires.samples[-1]["start"]:
            left = wires.random.choice([1, 1, 2, 3, 9])
            wires.put(signals=field(wires.samples[-1]["head"], "signal"), emits=wires.random.getrandbits(1))
        wires.put(active=int(left > 0), last=int(left == 1))
        left -= left > 0
        await wires.cycle()


def expected(samples):
    """All outputs, by cycle."""
    queue, tokens_there = deque(), 0
    active = emitted = previous = NEVER  # the latest step, step that emitted, first step
    token_due, quiet = set(), 0
    for cycle, seen in enumerate(samples):
        wanted = {"room": int(len(queue) < SIZES["depth"]), "token_o": int(cycle in token_due), "start": 0}
        if cycle:  # what the registers held before the first sample was not on the wires
            wanted["quiet"] = quiet
        first = cycle + 1  # the first step of what starts now
        if seen["active"]:
            active, emitted = cycle, cycle if seen["emits"] and VECTOR else emitted
        if queue:
            wanted["head"] = head = queue[0]
            wanted["start"] = int(
                (not seen["active"] or seen["last"] == 1)
                and tokens_there >= field(head, "wait")
                and not (field(head, "fence") and first - active < SIZES["fence_gap"])
                and not (field(head, "chain") and first - previous < SIZES["chain_gap"])
                and not (field(head, "reduce_fence") and first - emitted < SIZES["scalar_gap"]))
        yield cycle, wanted
        quiet = int(not queue and not seen["push"] and not seen["active"] and first - active >= SIZES["done_gap"]
                    and first - emitted >= SIZES["scalar_gap"])
        if wanted["start"]:
            tokens_there -= field(queue.popleft(), "wait")
            previous = first
        tokens_there += seen["token_i"]
        if seen["push"]:
            queue.append(seen["payload"])
        if seen["last"] and seen["signals"]:
            # Taken up by the other front's register, so that its first step is `done_gap` after this one.
            token_due.add(cycle + SIZES["done_gap"] - 2)
        if seen["clear"]:
            queue.clear()
            tokens_there, token_due = 0, set()


async def finish(wires):
    for _ in range(2000):
        await wires.cycle()
        if wires.get("quiet"):
            return
    raise AssertionError(f"seed {wires.seed}: instructions are left after 2000 cycles")


@cocotb.test()
@cocotb.parametrize(seed=[1, 2], gaps=[0.0, 0.7], share=[0.15, 0.9])
async def equals_the_rules(dut, seed, gaps, share):
    wires = await Wires.start(dut, seed, inputs=INPUTS, outputs=OUTPUTS)
    waits = []
    cocotb.start_soon(engine(wires, gaps))
    cocotb.start_soon(tokens(wires, waits, share))
    await push(wires, waits, gaps)
    await finish(wires)
    await wires.cycle(2)
    wanted = dict(expected(wires.samples))
    wires.compare(wanted)
    started = [field(outputs["head"], "number") for outputs in wanted.values() if outputs["start"]]
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
    wanted = dict(expected(wires.samples))
    assert not any(outputs["start"] for outputs in wanted.values())
    wires.compare(wanted)
