"""cocotb tests of the host port: the real AXI side, and `tests.coredouble` in place of the core."""

import os
import random

import cocotb
from cocotb.triggers import ClockCycles, with_timeout
from cocotbext.axi import AxiBurstType

from hw.config import preset
from hw.memorymap import (
    ARGUMENTS,
    ID,
    PAGE_BYTES,
    SPACE_TABLE,
    VERSION,
    WINDOW_BITS,
    Control,
    Register,
    Space,
    Status,
    line_words,
    pitch,
    window_address,
)
from tests.cocotb.bench import OKAY, SLVERR, Bench
from tests.coredouble import LINES

CONFIG = preset(os.environ.get("PRESET", "tiny"))
STALLS = float(os.environ.get("STALLS", "0"))
RESULT = window_address(Space.SCALARS, CONFIG, 0)
TRESPASS = window_address(Space.SCALARS, CONFIG, 1)
"""Line that the double destroys when it is accessed while it runs."""


test = cocotb.test(timeout_time=500, timeout_unit="us")
"""A test that takes many times as long as it should fails, rather than wait for an answer that never comes."""


async def begin(dut):
    bench = await Bench.start(dut)
    bench.stalls(STALLS)
    await bench.write_words(TRESPASS, [0])
    return bench


async def end(bench):
    assert await bench.words(TRESPASS, 1) == [0], "the window reached the core while a command ran"


@test
async def registers_say_what_the_device_is(dut):
    bench = await begin(dut)
    assert await bench.get(Register.ID) == ID
    assert await bench.get(Register.VERSION) == VERSION
    found = await bench.get(Register.FINGERPRINT_LOW) | await bench.get(Register.FINGERPRINT_HIGH) << 32
    assert f"{found:016x}" == CONFIG.fingerprint
    assert await bench.get(Register.ROOM) == CONFIG.commands
    assert await bench.get(Register.ENGINES) == 0x1234_5678  # what tests.coredouble says


@test
async def registers_keep_bytes(dut):
    bench = await begin(dut)
    generator = random.Random(1)
    kept = {Register.TAG: 32, Register.WINDOW: 28, Register.ENTRY: 8,
            **{Register.ARGUMENT + 4 * n: 32 for n in range(ARGUMENTS)}}
    model = {register: bytearray(4) for register in kept}
    for register, bits in kept.items():
        assert await bench.put(register, 0) == OKAY
        for _ in range(4):
            first = generator.randrange(4)
            data = generator.randbytes(generator.randrange(1, 5 - first))
            if register == Register.ENTRY:
                first, data = 0, data[:1]
            assert (await bench.control.write(register + first, data)).resp == OKAY
            model[register][first:first + len(data)] = data
            model[register] = bytearray((int.from_bytes(model[register], "little") & ((1 << bits) - 1))
                                        .to_bytes(4, "little"))
    for register, wanted in model.items():
        assert await bench.get(register) == int.from_bytes(wanted, "little"), f"register {register:#x}"


@test
async def registers_refuse(dut):
    bench = await begin(dut)
    await bench.put(Register.ENTRY, CONFIG.microcode - 1)
    for register in (Register.ID, Register.VERSION, Register.FINGERPRINT_LOW, Register.ROOM,
    Register.COMPLETION_TAG,
                     Register.POSITION, Register.ENGINES,
                     Register.ARGUMENT + 4 * ARGUMENTS, 0x4C, 0xFC):
        assert await bench.put(register, 0xFFFF_FFFF) == SLVERR, f"{register:#x} took a write"
    for register in (Register.DOORBELL, Register.COMPLETION_POP, 0x4C, 0xFC):
        assert (await bench.control.read(register, 4)).resp == SLVERR, f"{register:#x} answered a read"
    assert await bench.put(Register.ENTRY, CONFIG.microcode) == SLVERR
    assert await bench.get(Register.ENTRY) == CONFIG.microcode - 1
    assert await bench.get(Register.ID) == ID


@test
async def bursts_reach_every_space(dut):
    bench = await begin(dut)
    generator = random.Random(2)
    written = {}
    for space in Space:
        for tile in range(CONFIG.tiles if SPACE_TABLE[space].per_tile else 1):
            address = window_address(space, CONFIG, 2, 0, tile)
            count = 1 if pitch(space) > 1 else generator.randrange(2, 13)
            for line in range(3 if pitch(space) > 1 else 1):
                length = count if pitch(space) == 1 else line_words(space)[line & 1]
                words = [generator.getrandbits(32) for _ in range(length)]
                at = address + 4 * pitch(space) * line
                assert await bench.write_words(at, words) == OKAY
                written[at] = words
    for at, words in written.items():
        assert await bench.words(at, len(words)) == words, f"{at:#x}"
    await end(bench)


@test
async def long_bursts_cross_lines_and_pages(dut):
    bench = await begin(dut)
    generator = random.Random(3)
    start = window_address(Space.SCRATCH, CONFIG, 0, 0, 1)
    words = [generator.getrandbits(32) for _ in range(LINES)]
    assert await bench.write_words(start, words) == OKAY
    assert await bench.words(start, LINES) == words
    # A read over several rows sees zero between them.
    row = window_address(Space.ARRAY, CONFIG, 8)
    for n in range(2):
        await bench.write_words(row + 64 * n, [100 * n + k for k in range(10)])
    assert await bench.words(row, 26) == [*range(10), *[0] * 6, *range(100, 110)]


@test
async def strobes_write_bytes_of_the_array(dut):
    bench = await begin(dut)
    generator = random.Random(4)
    row = window_address(Space.ARRAY, CONFIG, 5, 0, 1)
    model = bytearray(generator.randbytes(40))
    await bench.window.write(row, bytes(model))
    for _ in range(20):
        first = generator.randrange(40)
        data = generator.randbytes(generator.randrange(1, min(9, 41 - first)))
        size = generator.choice([None, 0, 1, 2])
        assert (await bench.window.write(row + first, data, size=size)).resp == OKAY
        model[first:first + len(data)] = data
    assert (await bench.window.read(row, 40)).data == bytes(model)
    assert (await bench.window.read(row + 3, 9, size=0)).data == bytes(model[3:12])


@test
async def illegal_accesses_change_nothing(dut):
    bench = await begin(dut)
    row = window_address(Space.ARRAY, CONFIG, 4)
    word = window_address(Space.SCRATCH, CONFIG, 9)
    await bench.write_words(row, range(1, 11))
    await bench.write_words(word - 4, [7, 8, 9])
    writes = [
        (row + 40, 4, {}), (word, 3, {}), (word + 2, 2, {}), (row, 16, {"burst": AxiBurstType.WRAP}),
        (row + 36, 8, {}), ((15 << 35), 4, {}), (1 << WINDOW_BITS, 4, {}),
        (row + (CONFIG.tiles << 30), 4, {}), (row + 64 * CONFIG.rows, 4, {}),
        (window_address(Space.SCALARS, CONFIG, 0) + (1 << 30), 4, {}),
        (window_address(Space.OPERANDS, CONFIG, 1) + 28, 4, {}),
        (window_address(Space.TABLES, CONFIG, 0) + 12, 4, {}),
    ]
    for address, count, how in writes:
        response = (await bench.window.write(address, b"\xee" * count, **how)).resp
        assert response == SLVERR, f"{address:#x} was written"
    for address in (15 << 35, 1 << WINDOW_BITS, row + (CONFIG.tiles << 30), row + 64 * CONFIG.rows):
        assert (await bench.window.read(address, 4)).resp == SLVERR, f"{address:#x} was read"
    # The beat that exists is written, the one behind it is not.
    assert await bench.words(row, 12) == [*range(1, 10), 0xEEEE_EEEE, 0, 0]
    assert await bench.words(word - 4, 3) == [7, 8, 9]


@test
async def the_page_register_moves_the_window(dut):
    bench = await begin(dut)
    address = window_address(Space.SCRATCH, CONFIG, 1027, 0, 1)
    await bench.write_words(address, [0xABCD])
    await bench.put(Register.WINDOW, address // PAGE_BYTES)
    assert await bench.words(address % PAGE_BYTES, 1) == [0xABCD]
    assert await bench.put(Register.WINDOW, 0) == OKAY


@test
async def a_command_gets_its_arguments(dut):
    bench = await begin(dut)
    await bench.command(entry=5, arguments=[30, 2, 4, 8, 16, 32, 64, 128], tag=99)
    assert await bench.completion() == (99, 30, 0)
    assert await bench.words(RESULT, 1) == [5 + 30 + 2 + 4 + 8 + 16 + 32 + 64 + 128]
    await bench.command(arguments=[3, 1], tag=100)
    assert await bench.completion() == (100, 3, 1)
    assert await bench.get(Register.STATUS) >> Status.NONFINITE & 1
    await bench.command(arguments=[3], tag=101)
    assert await bench.completion() == (101, 3, 0)
    assert await bench.get(Register.STATUS) >> Status.NONFINITE & 1, "the flag is sticky"
    await bench.put(Register.STATUS, 1 << Status.NONFINITE)
    assert await bench.get(Register.STATUS) == 0


@test
async def queues_wrap_and_keep_order(dut):
    bench = await begin(dut)
    for turn in range(3):
        tags = [100 * turn + n for n in range(CONFIG.commands - 1)]
        for tag in tags:
            await bench.command(arguments=[5 + tag % 7], tag=tag)
        assert [await bench.completion() for _ in tags] == [(tag, 5 + tag % 7, 0) for tag in tags]
    assert await bench.get(Register.COMPLETIONS) == 0
    assert await bench.get(Register.ROOM) == CONFIG.commands


@test
async def full_queues_lose_nothing(dut):
    bench = await begin(dut)
    # Nobody takes completions: as many as fit are made, then commands wait, then the doorbell is refused.
    depth = CONFIG.commands
    for tag in range(2 * depth):
        await bench.command(arguments=[2], tag=tag)
    await ClockCycles(dut.clk, 50)
    assert await bench.get(Register.COMPLETIONS) == depth
    assert await bench.get(Register.ROOM) == 0
    assert await bench.get(Register.STATUS) == 1 << Status.PENDING
    await bench.command(arguments=[2], tag=999)
    assert await bench.get(Register.STATUS) == 1 << Status.PENDING | 1 << Status.REFUSED
    assert await bench.words(TRESPASS, 1) == [0], "the window is open while commands wait for completions"
    assert [(await bench.completion())[0] for _ in range(2 * depth)] == list(range(2 * depth))
    await bench.put(Register.STATUS, 1 << Status.REFUSED)
    assert await bench.get(Register.STATUS) == 0
    await end(bench)


@test
async def interrupts(dut):
    bench = await begin(dut)
    await bench.command(arguments=[4])
    await ClockCycles(dut.clk, 30)
    assert dut.irq.value == 0, "not enabled"
    assert await bench.get(Register.IRQ) == 1
    await bench.put(Register.CONTROL, 1 << Control.IRQ_ENABLE)
    await ClockCycles(dut.clk, 4)
    assert dut.irq.value == 1
    await bench.put(Register.IRQ, 1)
    await ClockCycles(dut.clk, 4)
    assert dut.irq.value == 0
    await bench.command(arguments=[60])
    await ClockCycles(dut.clk, 10)
    assert dut.irq.value == 0
    await ClockCycles(dut.clk, 80)
    assert dut.irq.value == 1
    await bench.put(Register.CONTROL, 0)
    await ClockCycles(dut.clk, 4)
    assert dut.irq.value == 0


@test
async def the_window_waits_for_the_command(dut):
    bench = await begin(dut)
    word = window_address(Space.SCRATCH, CONFIG, 3)
    for tag in range(3):
        await bench.command(arguments=[150], tag=tag)
    await bench.write_words(word, [5])
    # The access came between two commands, not after all of them.
    assert await bench.get(Register.STATUS) & (1 << Status.BUSY | 1 << Status.PENDING)
    assert await bench.words(word, 1) == [5]
    assert [(await bench.completion())[0] for _ in range(3)] == [0, 1, 2]
    await end(bench)


@test
async def the_host_stops_a_command(dut):
    bench = await begin(dut)
    for tag in range(4):
        await bench.command(arguments=[1_000_000], tag=tag)
    assert await bench.get(Register.STATUS) == 1 << Status.BUSY | 1 << Status.PENDING
    await bench.put(Register.CONTROL, 1 << Control.RESET)
    await ClockCycles(dut.clk, 10)
    assert await bench.get(Register.STATUS) == 0
    assert await bench.get(Register.ROOM) == CONFIG.commands
    assert await bench.get(Register.COMPLETIONS) == 0
    await bench.command(arguments=[7], tag=55)
    assert await bench.completion() == (55, 7, 0)


@test
async def reset_during_traffic(dut):
    bench = await begin(dut)
    word = window_address(Space.SCRATCH, CONFIG, 0)
    generator = random.Random(5)
    for _ in range(8):
        await bench.command(arguments=[20])
        bench.window.init_write(word, generator.randbytes(4 * 40))
        bench.window.init_read(word, 4 * 40)
        await ClockCycles(dut.clk, generator.randrange(1, 120))
        await bench.reset()
        assert await with_timeout(bench.get(Register.STATUS), 10, "us") == 0
        words = [generator.getrandbits(32) for _ in range(20)]
        assert await with_timeout(bench.write_words(word, words), 20, "us") == OKAY
        assert await with_timeout(bench.words(word, 20), 20, "us") == words
        await bench.command(arguments=[9], tag=9)
        assert await with_timeout(bench.completion(), 50, "us") == (9, 9, 0)
