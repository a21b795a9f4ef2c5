"""cocotb tests of the whole device: a program loaded and run through the two AXI ports alone."""

import json
import os

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles, RisingEdge

from hw.config import HardwareConfig
from hw.memorymap import (
    SPACE_TABLE,
    Control,
    Register,
    Space,
    Status,
    line_words,
    lines,
    pitch,
    window_address,
)
from runtime.conformance.program import WORDS, small_image
from sim.functional import FunctionalDevice
from tests.cocotb.bench import OKAY, Bench

CONFIG = HardwareConfig.from_json(json.loads(os.environ["CONFIG"]))
CHECKED = 40
"""Lines of every space that are compared."""

LOADED = (Space.ARRAY, Space.SCRATCH, Space.SCALARS, Space.MICROCODE, Space.TABLES, Space.FUNCTIONS)


async def write(bench, space, values):
    """Write entries of a space from the first on, a line a burst."""
    tiles = range(CONFIG.tiles) if SPACE_TABLE[space].per_tile else (None,)
    for tile in tiles:
        for line, words in enumerate(values if tile is None else values[..., tile]):
            address = window_address(space, CONFIG, line, 0, tile or 0)
            assert await bench.write_words(address, [int(w) for w in np.atleast_1d(words)]) == OKAY


async def read(bench, space, count):
    """The first `count` lines of a space, one burst after the other, as (count, words, tiles)."""
    tiles = range(CONFIG.tiles) if SPACE_TABLE[space].per_tile else (0,)
    parts = []
    for tile in tiles:
        address = window_address(space, CONFIG, 0, 0, tile)
        parts.append(np.array(await bench.words(address, count * pitch(space)), np.uint32).reshape(count, -1))
    return np.stack(parts, axis=-1)[:, :line_words(space)[0]]


def expected(model, space, count):
    """The same of the functional model."""
    found = model.read(space)
    if space == Space.OPERANDS:  # two lines a block
        found = np.pad(found, ((0, 0), (0, 3))).reshape(-1, 10)
    return found[:count].reshape(count, line_words(space)[0], -1)


async def loaded(dut):
    """A bench and a functional model with the same small image in both."""
    bench, model, image = await Bench.start(dut), FunctionalDevice(CONFIG), small_image(CONFIG)
    for space in LOADED:
        values = getattr(image, space.name.lower())[:4 * WORDS]
        await write(bench, space, values)
        model.write(space, values)
    return bench, model, image


@cocotb.test
async def commands_leave_what_the_model_says(dut):
    bench, model, image = await loaded(dut)
    await bench.put(Register.CONTROL, 1 << Control.IRQ_ENABLE)
    commands = [("copy", (WORDS, 3 * WORDS)), ("infinite", ()), ("loop", (7,)),
                ("copy", (3 * WORDS, 2 * WORDS))]
    for tag, (name, arguments) in enumerate(commands):
        await bench.command(image.entries[name].address, arguments, tag)
    for tag, (name, arguments) in enumerate(commands):
        wanted = model.run(image.entries[name].address, arguments)
        if not dut.irq.value:
            await RisingEdge(dut.irq)
        await bench.put(Register.IRQ, 1)
        assert await bench.completion() == (tag, wanted.cycles, wanted.nonfinite)
    assert await bench.get(Register.STATUS) == 1 << Status.NONFINITE
    for space in Space:
        count = min(lines(space, CONFIG), CHECKED)
        assert np.array_equal(await read(bench, space, count), expected(model, space, count)), space.name


@cocotb.test
async def a_stopped_command_leaves_the_device_usable(dut):
    bench, model, image = await loaded(dut)
    await bench.command(image.entries["loop"].address, (1 << 30,))
    await ClockCycles(dut.clk, 300)
    assert await bench.get(Register.STATUS) == 1 << Status.BUSY
    await bench.put(Register.CONTROL, 1 << Control.RESET)
    await ClockCycles(dut.clk, 10)
    assert await bench.get(Register.STATUS) == 0
    wanted = model.run(image.entries["copy"].address, (0, 2 * WORDS))
    await bench.command(image.entries["copy"].address, (0, 2 * WORDS), 77)
    assert await bench.completion() == (77, wanted.cycles, 0)
    for space in (Space.ARRAY, Space.SCRATCH, Space.MICROCODE, Space.TABLES):
        count = min(lines(space, CONFIG), CHECKED)
        assert np.array_equal(await read(bench, space, count), expected(model, space, count)), space.name
