"""The parts of the host port one by one, in Amaranth's simulator; the AXI side as a whole is in
tests/cocotb.
"""

import random

import pytest
from amaranth.lib import data
from amaranth.sim import Simulator

from hw.axi import Slice
from hw.config import preset
from hw.hostport import COMMAND, Dispatcher, Queue
from hw.hostwindow import Decoder
from hw.memorymap import (
    ARGUMENTS,
    CONTROL_BITS,
    REGISTER_TABLE,
    SPACE_TABLE,
    MemoryMapError,
    Register,
    Space,
    line_words,
    lines,
    pitch,
    window_address,
)

TINY = preset("tiny")


def simulate(component, *benches, clocked=True):
    """Run test benches on a component, each a coroutine function of the simulation context."""
    simulator = Simulator(component)
    if clocked:
        simulator.add_clock(1e-6)
    for bench in benches:
        simulator.add_testbench(bench)
    simulator.run()


def stream_benches(component, items, share, seed, got):
    """Put items into ``i`` and take them from ``o``, each side pausing in this share of cycles."""
    async def put(ctx):
        generator = random.Random(seed)
        for item in items:
            while generator.random() < share:
                await ctx.tick()
            ctx.set(component.i.payload, item)
            ctx.set(component.i.valid, 1)
            await ctx.tick().until(component.i.ready)
            ctx.set(component.i.valid, 0)

    async def get(ctx):
        generator = random.Random(seed + 1)
        held = None
        while len(got) < len(items):
            ready = generator.random() >= share
            ctx.set(component.o.ready, ready)
            _, _, valid, payload = await ctx.tick().sample(component.o.valid, component.o.payload)
            assert held is None or (valid and payload == held), "what is valid must hold until it is taken"
            held = payload if valid and not ready else None
            if valid and ready:
                got.append(payload)

    return put, get


@pytest.mark.parametrize("share", [0, 0.3, 0.7])
@pytest.mark.parametrize("make", [lambda: Slice(8), lambda: Queue(data.StructLayout({"a": 8}), depth=3)],
                         ids=["slice", "queue"])
def test_streams_lose_and_change_nothing(make, share):
    component, got = make(), []
    items = [{"a": n % 251} if isinstance(component, Queue) else n % 251 for n in range(300)]
    simulate(component, *stream_benches(component, items, share, 3, got))
    assert [g.a if isinstance(component, Queue) else g for g in got] == [n % 251 for n in range(300)]


def test_a_slice_passes_one_a_cycle():
    slice_, times = Slice(8), []

    async def put(ctx):
        ctx.set(slice_.i.valid, 1)
        ctx.set(slice_.o.ready, 1)
        for n in range(10):
            _, _, valid, payload = await ctx.tick().sample(slice_.o.valid, slice_.o.payload)
            if valid:
                times.append((n, payload))
            ctx.set(slice_.i.payload, n + 1)

    simulate(slice_, put)
    assert times == [(n, n - 1) for n in range(1, 10)]


@pytest.mark.parametrize("depth", [1, 2, 3, 8])
def test_a_queue_holds_its_depth_and_counts(depth):
    queue = Queue(data.StructLayout({"a": 8}), depth=depth)

    async def bench(ctx):
        ctx.set(queue.i.valid, 1)
        for _ in range(depth + 4):
            await ctx.tick()
        assert ctx.get(queue.count) == depth and not ctx.get(queue.i.ready)
        ctx.set(queue.i.valid, 0)
        ctx.set(queue.o.ready, 1)
        await ctx.tick().until(queue.o.valid)
        ctx.set(queue.o.ready, 0)
        await ctx.tick()
        assert ctx.get(queue.count) == depth - 1 and ctx.get(queue.i.ready)
        ctx.set(queue.clear, 1)
        await ctx.tick()
        ctx.set(queue.clear, 0)
        assert ctx.get(queue.count) == 0 and not ctx.get(queue.o.valid)

    simulate(queue, bench)


@pytest.mark.parametrize("name", ["tiny", "w16", "ecp5"])
def test_the_decoder_undoes_window_addresses(name):
    config = preset(name)
    decoder = Decoder(config)
    generator = random.Random(5)

    async def bench(ctx):
        for space, info in SPACE_TABLE.items():
            last, tiles = lines(space, config) - 1, config.tiles if info.per_tile else 1
            for line in (0, 1, last - 1, last, *(generator.randrange(last) for _ in range(10))):
                word, tile = generator.randrange(line_words(space)[line & 1]), generator.randrange(tiles)
                ctx.set(decoder.address, window_address(space, config, line, word, tile))
                found = [ctx.get(s) for s in (decoder.space, decoder.tile, decoder.line, decoder.word)]
                assert found == [space, tile, line, word]
                assert ctx.get(decoder.exists) and not ctx.get(decoder.padding)
                assert ctx.get(decoder.bytewise) == info.bytewise and ctx.get(decoder.whole) == info.whole
            end = window_address(space, config, last) + 4 * pitch(space)
            for address in (end, window_address(space, config, 0) + (tiles << 30)):
                ctx.set(decoder.address, address)
                assert not ctx.get(decoder.exists), f"{space.name} {address:#x}"
            for line in (0, 1):
                for word in range(line_words(space)[line], pitch(space)):
                    ctx.set(decoder.address, window_address(space, config, line) + 4 * word)
                    assert ctx.get(decoder.padding)
        for beyond in (10 << 35, 15 << 35, 1 << 39):
            ctx.set(decoder.address, beyond)
            assert not ctx.get(decoder.exists)

    simulate(decoder, bench, clocked=False)


def test_a_command_starts_when_everything_is_ready():
    dispatcher = Dispatcher()

    async def bench(ctx):
        def starts():
            return ctx.get(dispatcher.start)

        ctx.set(dispatcher.commands.payload, {"entry": 7, "tag": 70, "arguments": list(range(ARGUMENTS))})
        ctx.set(dispatcher.commands.valid, 1)
        assert not starts(), "no room for the completion"
        ctx.set(dispatcher.completions.ready, 1)
        assert starts() and ctx.get(dispatcher.entry) == 7 and not ctx.get(dispatcher.window_grant)
        ctx.set(dispatcher.window_request, 1)
        assert not starts() and ctx.get(dispatcher.window_grant), "the window asked first"
        await ctx.tick()
        ctx.set(dispatcher.window_request, 0)
        assert starts()
        await ctx.tick()
        ctx.set(dispatcher.commands.payload, {"entry": 8, "tag": 80, "arguments": [0] * ARGUMENTS})
        ctx.set(dispatcher.core_busy, 1)
        ctx.set(dispatcher.window_request, 1)
        for _ in range(3):
            assert not starts() and ctx.get(dispatcher.busy) and not ctx.get(dispatcher.window_grant)
            await ctx.tick()
        ctx.set(dispatcher.core_busy, 0)
        ctx.set(dispatcher.core_done, 1)
        ctx.set(dispatcher.core_cycles, 123)
        ctx.set(dispatcher.core_nonfinite, 1)
        assert ctx.get(dispatcher.completions.valid)
        done = ctx.get(dispatcher.completions.payload)
        assert (done.tag, done.cycles, done.nonfinite) == (70, 123, 1)
        await ctx.tick()
        ctx.set(dispatcher.core_done, 0)
        assert not starts() and ctx.get(dispatcher.window_grant), "the window goes before the next command"
        ctx.set(dispatcher.window_request, 0)
        assert starts()

    simulate(dispatcher, bench)


def test_a_reset_ends_before_the_next_start():
    dispatcher = Dispatcher()
    assert COMMAND.size == 16 + 32 + 32 * ARGUMENTS

    async def bench(ctx):
        ctx.set(dispatcher.commands.valid, 1)
        ctx.set(dispatcher.completions.ready, 1)
        await ctx.tick()
        ctx.set(dispatcher.core_busy, 1)
        await ctx.tick()
        ctx.set(dispatcher.reset, 1)
        ctx.set(dispatcher.core_done, 1)
        assert not ctx.get(dispatcher.completions.valid), "a stopped command leaves no completion"
        await ctx.tick()
        ctx.set(dispatcher.reset, 0)
        ctx.set(dispatcher.core_done, 0)
        ctx.set(dispatcher.core_busy, 0)
        held = []
        while not ctx.get(dispatcher.start):
            held.append(ctx.get(dispatcher.core_reset))
            await ctx.tick()
        # One cycle more than the reset, for the core's comes a cycle later.
        assert held == [1, 1, 0]

    simulate(dispatcher, bench)


def test_registers_are_described_once_and_fit():
    offsets = [*Register, *(Register.ARGUMENT + 4 * n for n in range(1, ARGUMENTS))]
    assert len(set(offsets)) == len(offsets)
    assert all(offset % 4 == 0 and offset < 1 << CONTROL_BITS for offset in offsets)
    assert set(REGISTER_TABLE) == set(Register)


@pytest.mark.parametrize("arguments, message", [
    ((Space.SCRATCH, TINY, 4096), "line 4096 of space scratch does not exist; configuration 'tiny' has 0 "
                                  "to 4095"),
    ((Space.ARRAY, TINY, 0, 10), "word 10 of space array does not exist; configuration 'tiny' has 0 to 9"),
    ((Space.OPERANDS, TINY, 1, 7), "word 7 of space operands does not exist; configuration 'tiny' has 0 to "
                                   "6"),
    ((Space.SCALARS, TINY, 0, 0, 1), "tile 1 of space scalars does not exist; configuration 'tiny' has 0 "
                                     "to 0"),
])
def test_addresses_that_do_not_exist(arguments, message):
    with pytest.raises(MemoryMapError, match=f"^{message}$"):
        window_address(*arguments)
