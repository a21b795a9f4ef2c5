# amaranth: UnusedElaboratable=no
"""cocotb tests of a whole engine: every step in its cycle, from instructions, tokens and `clear` on the wires.

`tests.cocotb.steps` says what the steps of an instruction are, `tests.cocotb.fronts` when they come.
"""

import json
import os

import cocotb

from hw.config import HardwareConfig
from hw.matrix import Matrix
from hw.timing import latencies
from hw.vector import Vector
from tests.cocotb import steps
from tests.cocotb.fronts import Rules, field, finish, push, tokens
from tests.cocotb.wires import Wires

CONFIG = HardwareConfig.from_json(json.loads(os.environ["CONFIG"]))
COUNT = int(os.environ["COUNT"])
GAPS = latencies(CONFIG)
# Built here only for its layouts.
UNIT, INSTRUCTION, STEPS, SIZES = {
    "Matrix": (Matrix(CONFIG), steps.matrix_instruction, steps.matrix_steps, {
        "fence_gap": GAPS.matrix_done, "done_gap": GAPS.matrix_done, "chain_gap": 0, "scalar_gap": 0}),
    "Vector": (Vector(CONFIG), steps.vector_instruction, steps.vector_steps, {
        "fence_gap": GAPS.vector_write, "done_gap": GAPS.vector_done, "chain_gap": GAPS.vector_write,
        "scalar_gap": GAPS.scalar_write}),
}[os.environ["UNIT"]]
LAYOUT, STEP = UNIT.layout, UNIT.step.shape()
INPUTS = {"push": 1, "payload": LAYOUT.size, "token_i": 1, "clear": 1}
OUTPUTS = ["room", "token_o", "quiet", "state", "step"]
IDLE = {"valid": 0, "write": 0, "quantize": 0, "reduces": 0}
"""What is said of a cycle without a step."""


def instructions(random, count):
    for _ in range(count):
        word = INSTRUCTION(random, CONFIG)
        yield sum((word.get(name, random.getrandbits(LAYOUT[name].width)) & (1 << LAYOUT[name].width) - 1)
                  << LAYOUT[name].offset for name in dict(LAYOUT))


def expected(samples):
    """All outputs by cycle; `step` as the fields that are known of it. And how many steps there were."""
    rules = Rules(LAYOUT, {"depth": CONFIG.queue, **SIZES})
    left, wanted, facts = [], {}, {"emits": 0, "signals": 0}
    for cycle, seen in enumerate(samples):
        outputs = rules.next({**seen, **facts, "active": int(bool(left)), "last": int(len(left) == 1)})
        fields = left.pop(0) if left else IDLE
        start, head = outputs.pop("start"), outputs.pop("head", 0)
        wanted[cycle] = outputs, {name: value & (1 << STEP[name].width) - 1 for name, value in fields.items()
                                  if name in dict(STEP)}
        if start:
            word = {name: field(LAYOUT, head, name) for name in dict(LAYOUT)}
            left, facts = STEPS(word, CONFIG), {"emits": int(bool(word.get("reduce") and word.get("reduce_emit"))),
                                                "signals": word["signal"]}
        if seen["clear"]:
            left = []
    return wanted


def check(wires, wanted):
    """Outputs and steps; how many steps there were."""
    for cycle, (_, fields) in wanted.items():
        seen = {name: field(STEP, wires.samples[cycle]["step"], name) for name in fields}
        assert seen == fields, f"seed {wires.seed}, cycle {cycle}: wanted the step {fields}; got {seen}"
    wires.compare({cycle: outputs for cycle, (outputs, _) in wanted.items()})
    return sum(fields["valid"] for _, fields in wanted.values())


@cocotb.test()
@cocotb.parametrize(seed=[1, 2], gaps=[0.0, 0.7], share=[0.15, 0.9])
async def equals_the_rules(dut, seed, gaps, share):
    wires = await Wires.start(dut, seed, inputs=INPUTS, outputs=OUTPUTS)
    pushed = []
    cocotb.start_soon(tokens(wires, LAYOUT, pushed, share))
    await push(wires, instructions(wires.random, COUNT), LAYOUT, pushed, gaps)
    await finish(wires)
    assert check(wires, expected(wires.samples)) > 4 * COUNT


@cocotb.test()
@cocotb.parametrize(seed=[3, 4])
async def clear_stops_at_once(dut, seed):
    """After `clear`, also in the middle of an instruction, there are no steps but those of later instructions."""
    wires = await Wires.start(dut, seed, inputs=INPUTS, outputs=OUTPUTS)
    pushed = []
    cocotb.start_soon(tokens(wires, LAYOUT, pushed, 0.5))
    for _ in range(12):
        for word in instructions(wires.random, CONFIG.queue):
            wires.put(push=wires.get("room"), payload=word)
            pushed.append(word)
            await wires.cycle()
        wires.put(push=0)
        await wires.cycle(wires.random.randrange(1, 40))
        wires.put(clear=1)
        await wires.cycle()
        wires.put(clear=0)
    await finish(wires)
    assert check(wires, expected(wires.samples)) > 12
