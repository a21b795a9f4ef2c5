"""The simulated device: its memories in place against its window, its errors, its waveforms."""

import re

import numpy as np
import pytest

from hw.config import preset
from hw.memorymap import SPACE_TABLE, Space, lines, pitch, window_address
from runtime.conformance.program import small_image
from sim import rtl, verilator
from sim.rtl import RtlDevice, RtlError

pytestmark = pytest.mark.rtl

TINY = preset("tiny")


@pytest.fixture(scope="module")
def device():
    device = RtlDevice(TINY)
    yield device
    device.close()


@pytest.fixture
def program(device):
    """The device with `runtime.conformance.program` in it, at rest."""
    device.reset()
    image = small_image(TINY)
    for space in (Space.SCRATCH, Space.SCALARS, Space.MICROCODE):
        device.write(space, 0, getattr(image, space.name.lower()))
    return {name: entry.address for name, entry in image.entries.items()}


IN_PLACE = (Space.ARRAY, Space.SCRATCH, Space.ACCUMULATORS, Space.ROW_BUFFER, Space.OPERANDS, Space.MICROCODE)


@pytest.mark.parametrize("space", IN_PLACE, ids=lambda space: space.name.lower())
def test_memories_in_place_are_those_of_the_window(device, space):
    """Written in place and read through the port, and the other way round, at both ends of the space."""
    device.reset()
    info = SPACE_TABLE[space]
    depth = info.entries(TINY)
    random = np.random.default_rng(int(space))
    first, count = depth - 5, 5
    values = random.integers(0, 1 << 32, (count, *info.shape(TINY)[1:]), np.uint32)
    if space == Space.OPERANDS:
        pairs = random.integers(-256, 256, (count, 32)).astype(np.int16)
        values = np.concatenate([pairs.view(np.uint32), values[:, -1:] & 0xFF_1FFF], axis=1)
    device.write(space, first, values)
    words = _through_window(device, space, first, count)
    assert np.array_equal(words, _as_lines(space, values))

    for tile in range(TINY.tiles if info.per_tile else 1):
        for line, row in enumerate(np.roll(_as_lines(space, values), 1, axis=0)[..., tile]):
            device.write_window(window_address(space, TINY, line, 0, tile), row[:line_size(space, line)])
    found = _as_lines(space, device.read(space, 0, count))
    assert np.array_equal(found, _masked(space, np.roll(_as_lines(space, values), 1, axis=0)))


def line_size(space, line):
    """Words of a line."""
    return (10, 7)[line & 1] if space == Space.OPERANDS else SPACE_TABLE[space].words


def _as_lines(space, values):
    """Entries as the lines of the host port: (lines, words, tiles)."""
    if space == Space.OPERANDS:
        return np.pad(values, ((0, 0), (0, 3))).reshape(-1, 10, 1)
    return values.reshape(len(values), SPACE_TABLE[space].words, -1)


def _masked(space, values):
    """What a memory keeps of lines that were rolled by one: even and odd lines of operands hold other fields."""
    if space != Space.OPERANDS:
        return values
    out = values.copy()
    out[1::2, 7:] = 0
    out[1::2, 6] &= 0xFF_FFFF
    kept = out.copy()
    for rows, words in ((slice(0, None, 2), 10), (slice(1, None, 2), 6)):
        pairs = np.ascontiguousarray(out[rows, :words, 0]).view(np.int16)
        kept[rows, :words, 0] = ((pairs << 7) >> 7).view(np.uint32)
    return kept


def _through_window(device, space, first, count):
    size = lines(space, TINY) // SPACE_TABLE[space].entries(TINY)
    out = []
    for tile in range(TINY.tiles if SPACE_TABLE[space].per_tile else 1):
        rows = []
        for line in range(first * size, (first + count) * size):
            row = np.zeros(pitch(space), np.uint32)
            device.read_window(window_address(space, TINY, line, 0, tile), row)
            rows.append(row[:10 if space == Space.OPERANDS else SPACE_TABLE[space].words])
        out.append(np.array(rows))
    return np.stack(out, axis=-1)


def test_the_window_refuses_what_does_not_exist(device):
    with pytest.raises(RtlError, match=r"^write of window 0x8000000000: the device answered with AXI response 2$"):
        device.write_window(1 << 39, np.zeros(1, np.uint32))
    with pytest.raises(RtlError, match=r"^write of 5 to 0x0: the device answered with AXI response 2$"):
        device.put(0, 5)


def test_a_command_that_runs_on(device, program):
    with pytest.raises(RtlError, match=r"(?s)^the command at 5 was to end within 2000 cycles; it runs on\n"
                                       r"after \d+ cycles: STATUS 0x1, .*; last arguments 1000000000, 0.*$"):
        device.run(program["loop"], (1_000_000_000,), timeout_cycles=2000)
    device.reset()
    assert device.run(program["loop"], (3,)).cycles < 100


def test_progress_is_told(device, program):
    told = []
    done = device.run(program["loop"], (40_000,), progress=told.append)
    assert len(told) == -(-done.cycles // rtl.CHUNK_CYCLES) and told == sorted(told)


def test_reading_waits_for_the_command(device, program):
    device.submit(program["loop"], (5_000,))
    device.submit(program["copy"], (0, 40))
    before = device.read(Space.SCRATCH, 0, 16)
    device.advance(100_000)
    while device.poll() is None:
        device.advance(100_000)
    after = device.read(Space.SCRATCH, 40, 16)
    assert np.array_equal(before.view(np.float32) + np.float32(0.5), after.view(np.float32))


def test_two_devices_do_not_share_state(device):
    other = RtlDevice(TINY)
    try:
        other.write(Space.SCRATCH, 0, np.full((4, TINY.tiles), 7, np.uint32))
        device.write(Space.SCRATCH, 0, np.full((4, TINY.tiles), 9, np.uint32))
        assert (other.read(Space.SCRATCH, 0, 4) == 7).all() and (device.read(Space.SCRATCH, 0, 4) == 9).all()
    finally:
        other.close()


def test_a_missing_compiler_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("WORDLINE_CACHE", str(tmp_path))
    monkeypatch.setattr(verilator.shutil, "which", lambda tool: None)
    monkeypatch.setattr(rtl, "sources", lambda config: {"wordline.v": "module wordline; endmodule"})
    with pytest.raises(verilator.ToolMissing, match=r"^simulation needs 'g\+\+' on the path, .*apt install g\+\+\)$"):
        RtlDevice(TINY)


def test_verilog_comes_from_the_cache(monkeypatch):
    first = rtl.sources(TINY)
    monkeypatch.setattr(rtl.top, "sources", lambda *_: pytest.fail("written again"))
    assert rtl.sources(TINY) == first
    assert re.search(r"^module wordline\(", first["wordline.v"], re.MULTILINE)


@pytest.mark.parametrize("move", ("read_window", "write_window"))
def test_bursts_move_a_word_a_cycle(device, move):
    device.reset()
    words, before = np.zeros(512, np.uint32), device.cycles
    getattr(device, move)(window_address(Space.SCRATCH, TINY, 0), words)
    assert 512 <= device.cycles - before < 512 + 2 * 16   # two bursts, each with a beginning and an end
