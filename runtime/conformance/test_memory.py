"""Memory spaces hold what was written, and buffers over them move it in every way."""

import re
from collections.abc import Callable

import numpy as np
import pytest

from hw.config import HardwareConfig
from hw.memorymap import SPACE_TABLE, Space
from runtime.device import Device
from runtime.transport import DeviceError

PER_TILE = [space for space, info in SPACE_TABLE.items() if info.per_tile]
WORDS_PER_TILE = [space for space in PER_TILE if SPACE_TABLE[space].words == 1]
pytestmark = pytest.mark.capability("memory")


def contents(config: HardwareConfig, space: Space, count: int, seed: int) -> np.ndarray:
    """Random entries that a device of this configuration can hold as they are."""
    random = np.random.default_rng(seed)
    shape = (count, *SPACE_TABLE[space].shape(config)[1:])
    values = random.integers(0, 1 << 32, shape, np.uint32)
    match space:
        case Space.OPERANDS:
            reach = (1 << (config.activation_bits - 1)) - 1
            integers = random.integers(-reach, reach + 1, (count, 32)).astype(np.int16)
            values = np.concatenate([integers.view(np.uint32), values[:, -1:] & 0x00FF_1FFF], axis=1)
        case Space.TABLES:  # c1 has 28 bits, c2 20, both kept with their sign
            values[:, 1:] &= 0x7FFFF
        case Space.FUNCTIONS:
            values &= np.array([(1 << 21) - 1, 0xFFFF_FFFF, 0xFFFF_FFFF, 0], np.uint32)
    return values


@pytest.mark.parametrize("space", Space, ids=lambda s: s.name.lower())
def test_a_whole_space_holds_what_was_written(device: Device, config: HardwareConfig, space: Space) -> None:
    values = contents(config, space, SPACE_TABLE[space].entries(config), 1)
    if space == Space.REGISTERS:
        values[0] = 0
    device.transport.write(space, 0, values)
    found = device.transport.read(space)
    assert found.dtype == np.uint32 and found.shape == SPACE_TABLE[space].shape(config)
    assert np.array_equal(found, values)


@pytest.mark.parametrize("space", Space, ids=lambda s: s.name.lower())
@pytest.mark.parametrize("where", ["first", "odd", "last"])
def test_a_part_is_written_without_its_neighbours(device: Device, config: HardwareConfig, space: Space,
                                                  where: str) -> None:
    depth = SPACE_TABLE[space].entries(config)
    before = contents(config, space, depth, 2)
    device.transport.write(space, 0, before)
    count = 3
    first = {"first": 1 if space == Space.REGISTERS else 0, "odd": 5, "last": depth - count}[where]
    values = contents(config, space, count, 3)
    device.transport.write(space, first, values)
    around = slice(max(0, first - 2), first + count + 2)
    expected = before.copy()
    expected[first:first + count] = values
    if space == Space.REGISTERS:
        expected[0] = 0
    found = device.transport.read(space, around.start, min(depth, around.stop) - around.start)
    assert np.array_equal(found, expected[around])


@pytest.mark.parametrize("space", Space, ids=lambda s: s.name.lower())
def test_spaces_do_not_share_memory(device: Device, config: HardwareConfig, space: Space) -> None:
    others = {s: min(64, SPACE_TABLE[s].entries(config)) for s in Space if s != space}
    before = {s: device.transport.read(s, 0, count) for s, count in others.items()}
    device.transport.write(space, 0, contents(config, space, min(64, SPACE_TABLE[space].entries(config)), 4))
    for other, values in before.items():
        assert np.array_equal(device.transport.read(other, 0, len(values)), values), f"wrote {other.name} too"


@pytest.mark.parametrize("space", Space, ids=lambda s: s.name.lower())
def test_a_read_is_a_copy(device: Device, config: HardwareConfig, space: Space) -> None:
    values = contents(config, space, 2, 5)
    device.transport.write(space, 1, values)
    device.transport.read(space, 1, 2)[:] = 0
    assert np.array_equal(device.transport.read(space, 1, 2), values)


@pytest.mark.parametrize("space", PER_TILE, ids=lambda s: s.name.lower())
def test_broadcast_reaches_every_tile(device: Device, config: HardwareConfig, space: Space) -> None:
    with device.allocate(space, 6) as buffer:
        values = np.random.default_rng(6).integers(0, 1 << 32, buffer.shape[:-1], np.uint32)
        device.wait(device.queue.broadcast(values, buffer))
        found = device.transport.read(space, buffer.first, buffer.count)
        assert all(np.array_equal(found[..., tile], values) for tile in range(config.tiles))


@pytest.mark.parametrize("space", WORDS_PER_TILE, ids=lambda s: s.name.lower())
@pytest.mark.parametrize("length", ["full", "ragged", "one"])
def test_scatter_and_gather(device: Device, config: HardwareConfig, space: Space, length: str) -> None:
    with device.allocate(space, 7) as buffer:
        size = {"full": 7 * config.tiles, "ragged": 6 * config.tiles - 1, "one": 1}[length]
        vector = np.random.default_rng(7).standard_normal(size).astype(np.float32)
        found = np.empty_like(vector)
        device.queue.scatter(vector, buffer)
        device.wait(device.queue.gather(buffer, found))
        assert np.array_equal(found, vector)
        words = device.transport.read(space, buffer.first, 7).view(np.float32)
        for i in (0, size // 2, size - 1):
            assert words[i // config.tiles, i % config.tiles] == vector[i]
        assert not words.reshape(-1)[size:].any()


@pytest.mark.parametrize("space", [s for s in Space if s != Space.REGISTERS], ids=lambda s: s.name.lower())
def test_copies_there_and_back_and_inside(device: Device, config: HardwareConfig, space: Space) -> None:
    with device.allocate(space, 2, "one") as one, device.allocate(space, 2, "two") as two:
        values, found = contents(config, space, 2, 8), np.zeros(one.shape, np.uint32)
        device.queue.copy(values, one)
        device.queue.copy(one, two)
        device.wait(device.queue.copy(two, found))
        assert np.array_equal(found, values)


WRONG: dict[str, tuple[Callable[[Device], object], str]] = {
    "beyond": (lambda d: d.transport.read(Space.SCALARS, 60, 9),
               "space scalars of configuration CONFIG has entries 0 to 63; got 60 to 68"),
    "negative": (lambda d: d.transport.read(Space.SCALARS, -1, 1),
                 "space scalars of configuration CONFIG has entries 0 to 63; got -1 to -1"),
    "shape": (lambda d: d.transport.write(Space.TABLES, 0, np.zeros((3, 2), np.uint32)),
              "space tables of configuration CONFIG takes entries of the shape (n, 3); got (3, 2)"),
    "type": (lambda d: d.transport.write(Space.SCALARS, 0, np.zeros(3, np.float32)),
             "space scalars holds uint32 words; got float32: use .view(np.uint32) on float32"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_exist_is_refused(device: Device, case: str) -> None:
    work, message = WRONG[case]
    with pytest.raises(DeviceError, match=f"^{re.escape(message.replace('CONFIG', repr(device.config.name)))}$"):
        work(device)
