"""cocotb tests of the host port's smaller rules, each of which a fault of `tests.mutation.hostfaults` breaks alone."""

import random

from cocotb.triggers import ClockCycles
from cocotbext.axi import AxiBurstType

from hw.memorymap import PAGE_BYTES, Control, Register, Space, Status, lines, pitch, window_address
from tests.cocotb.bench import OKAY, SLVERR
from tests.cocotb.hostport import CONFIG, begin, test


@test
async def flags_are_cleared_one_by_one(dut):
    bench = await begin(dut)
    for tag in range(2 * CONFIG.commands + 1):
        await bench.command(arguments=[2, 1], tag=tag)
    await ClockCycles(dut.clk, 50)
    flags = await bench.get(Register.STATUS)
    assert flags == 1 << Status.PENDING | 1 << Status.NONFINITE | 1 << Status.REFUSED
    for bit in (Status.REFUSED, Status.NONFINITE):
        await bench.put(Register.STATUS, 1 << bit)
        flags &= ~(1 << bit)
        assert await bench.get(Register.STATUS) == flags


@test
async def writing_zero_acknowledges_nothing(dut):
    bench = await begin(dut)
    await bench.put(Register.CONTROL, 1 << Control.IRQ_ENABLE)
    await bench.command(arguments=[2])
    await ClockCycles(dut.clk, 30)
    await bench.put(Register.IRQ, 0)
    await ClockCycles(dut.clk, 4)
    assert dut.irq.value == 1
    assert await bench.get(Register.IRQ) == 1


@test
async def without_the_first_byte_nothing_is_done(dut):
    bench = await begin(dut)
    await bench.command(arguments=[2])
    await ClockCycles(dut.clk, 30)
    for register in (Register.DOORBELL, Register.COMPLETION_POP, Register.CONTROL, Register.IRQ, Register.STATUS):
        assert (await bench.control.write(register + 1, b"\xff\xff\xff")).resp == OKAY
    await ClockCycles(dut.clk, 30)
    assert await bench.get(Register.COMPLETIONS) == 1
    assert await bench.get(Register.IRQ) == 1
    assert await bench.get(Register.CONTROL) == 0
    assert await bench.completion() == (0, 2, 0)


@test
async def every_space_ends(dut):
    bench = await begin(dut)
    for space in Space:
        end = window_address(space, CONFIG, 0) + 4 * pitch(space) * lines(space, CONFIG)
        assert await bench.write_words(end, [1]) == SLVERR, space.name
        assert (await bench.window.read(end, 4)).resp == SLVERR, space.name
        assert (await bench.window.read(end - 64, 4)).resp == OKAY, space.name


@test
async def the_page_behind_a_space_does_not_exist(dut):
    bench = await begin(dut)
    page = window_address(Space.SCALARS, CONFIG, 0) // PAGE_BYTES
    for on, answer in ((0, OKAY), (1, SLVERR), (2, SLVERR), (3, SLVERR)):
        await bench.put(Register.WINDOW, page + on)
        assert (await bench.window.read(0, 4)).resp == answer, f"{on} pages on"
        assert await bench.write_words(4, [3]) == answer, f"{on} pages on"


@test
async def a_fixed_burst_stays(dut):
    bench = await begin(dut)
    word = window_address(Space.SCRATCH, CONFIG, 12)
    await bench.write_words(word, [1, 2, 3])
    data = b"".join(n.to_bytes(4, "little") for n in (7, 8, 9))
    assert (await bench.window.write(word, data, burst=AxiBurstType.FIXED)).resp == OKAY
    assert await bench.words(word, 3) == [9, 2, 3]
    found = await bench.window.read(word, 12, burst=AxiBurstType.FIXED)
    assert found.data == (9).to_bytes(4, "little") * 3


@test
async def one_bad_beat_is_enough(dut):
    bench = await begin(dut)
    generator = random.Random(7)
    row = window_address(Space.ARRAY, CONFIG, 20)
    await bench.write_words(row + 64, [5] * 10)
    for first in (8, 10, 15):
        words = [generator.getrandbits(32) for _ in range(17 - first)]
        assert await bench.write_words(row + 4 * first, words) == SLVERR
        assert await bench.words(row + 64, 2) == [words[-1], 5], "the beat behind a bad one is carried out"
