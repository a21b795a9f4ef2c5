"""cocotb tests of what starts commands: a host that queues them, a core that runs them, a window that asks for the
core, completions that are not always taken, and resets.
"""

import os

import cocotb

from hw.hostport import COMMAND, COMPLETION
from tests.cocotb.fronts import field
from tests.cocotb.wires import Wires

COUNT = int(os.environ["COUNT"])
INPUTS = {"commands_payload": COMMAND.size, "commands_valid": 1, "completions_ready": 1, "core_busy": 1, "core_done": 1,
          "core_cycles": 32, "core_nonfinite": 1, "reset": 1, "window_request": 1}
OUTPUTS = ["commands_ready", "completions_payload", "completions_valid", "start", "entry", "arguments", "core_reset",
           "window_grant", "busy"]
HELD = 3
"""Cycles behind a `reset` in which nothing starts: the core is in reset for two, which it sees a cycle later."""


async def host(wires, gaps):
    """Commands that stay until they are taken."""
    for _ in range(COUNT):
        while wires.random.random() < gaps:
            wires.put(commands_valid=0, commands_payload=wires.random.getrandbits(COMMAND.size))
            await wires.cycle()
        wires.put(commands_valid=1, commands_payload=wires.random.getrandbits(COMMAND.size))
        await wires.cycle()
        while not wires.samples[-1]["commands_ready"]:
            await wires.cycle()
    wires.put(commands_valid=0)


async def core(wires):
    """Busy from the cycle after `start` until the one before `done`; a reset ends that."""
    left = 0
    while True:
        seen = wires.samples[-1] if wires.samples else dict.fromkeys(OUTPUTS, 0)
        left = 0 if seen["core_reset"] else wires.random.choice([1, 2, 3, 12]) if seen["start"] else max(0, left - 1)
        wires.put(core_busy=int(left > 1), core_done=int(left == 1), core_cycles=wires.random.getrandbits(32),
                  core_nonfinite=wires.random.getrandbits(1))
        await wires.cycle()


async def completions(wires, stalls):
    """Room, which stays until it is used: a queue gets fuller by completions alone."""
    ready = 0
    while True:
        if not ready or wires.samples[-1]["completions_valid"]:
            ready = int(wires.random.random() >= stalls)
        wires.put(completions_ready=ready)
        await wires.cycle()


async def window(wires, share):
    """Requests, held until they were granted for some cycles."""
    while share:
        while wires.random.random() >= share:
            await wires.cycle()
        wires.put(window_request=1)
        left = wires.random.choice([1, 2, 9])
        while left:
            await wires.cycle()
            left -= wires.samples[-1]["window_grant"]
        wires.put(window_request=0)
        await wires.cycle()


async def resets(wires):
    while True:
        await wires.cycle(wires.random.randrange(40, 120))
        wires.put(reset=1)
        await wires.cycle()
        wires.put(reset=0)


def expected(samples):
    """All outputs by cycle."""
    running, since = None, HELD + 1  # the tag of the command that runs; cycles since a reset
    for cycle, seen in enumerate(samples):
        since = 0 if seen["reset"] else since + 1
        free = running is None and not seen["core_busy"] and since > HELD
        start = free and seen["commands_valid"] and seen["completions_ready"] and not seen["window_request"]
        ends = running is not None and seen["core_done"] and since > HELD
        wanted = {"start": int(start), "commands_ready": int(start), "window_grant": int(free and not start),
                  "busy": int(running is not None), "completions_valid": int(ends)}
        if since:
            wanted["core_reset"] = int(since in (1, 2))
        if start:
            wanted |= {name: field(COMMAND, seen["commands_payload"], name) for name in ("entry", "arguments")}
        if ends:
            wanted["completions_payload"] = sum(value << COMPLETION[name].offset for name, value in (
                ("tag", running), ("cycles", seen["core_cycles"]), ("nonfinite", seen["core_nonfinite"])))
        yield cycle, wanted
        if start:
            running = field(COMMAND, seen["commands_payload"], "tag")
        elif seen["core_done"] or since <= HELD:
            running = None


def check(wires):
    """Starts and completions that there were, all as they should be."""
    wanted = dict(expected(wires.samples))
    wires.compare(wanted)
    granted = False
    for cycle, seen in enumerate(wires.samples):
        asked = seen["window_request"] and not seen["reset"]
        assert seen["window_grant"] or not granted or not asked, f"cycle {cycle}: a grant did not hold"
        granted = seen["window_grant"] and asked
    return [sum(outputs[name] for outputs in wanted.values()) for name in ("start", "completions_valid")]


async def run(dut, seed, gaps, stalls, share):
    wires = await Wires.start(dut, seed, inputs=INPUTS, outputs=OUTPUTS)
    for coroutine in (core(wires), completions(wires, stalls), window(wires, share)):
        cocotb.start_soon(coroutine)
    return wires, host(wires, gaps)


@cocotb.test()
@cocotb.parametrize(gaps=[0.0, 0.8], stalls=[0.0, 0.7], share=[0.0, 0.3])
async def every_command_runs_once(dut, gaps, stalls, share):
    wires, commands = await run(dut, 1, gaps, stalls, share)
    await commands
    await wires.cycle(60)
    assert check(wires) == [COUNT, COUNT]


@cocotb.test()
@cocotb.parametrize(seed=[2, 3], share=[0.0, 0.3])
async def a_reset_ends_a_command_without_completion(dut, seed, share):
    wires, commands = await run(dut, seed, 0.2, 0.3, share)
    cocotb.start_soon(resets(wires))
    await commands
    await wires.cycle(60)
    starts, ends = check(wires)
    assert starts == COUNT and ends < COUNT
