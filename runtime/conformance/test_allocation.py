"""Buffers have their memory to themselves, for as long as they live; models and slots of the KV cache too."""

import re

import numpy as np
import pytest

from hw.config import HardwareConfig, preset
from hw.image import Image
from hw.memorymap import SPACE_TABLE, Space
from runtime.buffer import OutOfMemory
from runtime.conformance.program import PLANES, WORDS, small_image
from runtime.device import Device
from runtime.transport import DeviceError

pytestmark = pytest.mark.capability("allocation")


@pytest.mark.parametrize("space", Space, ids=lambda s: s.name.lower())
def test_all_of_a_space_can_be_had_and_no_more(device: Device, config: HardwareConfig, space: Space) -> None:
    entries = SPACE_TABLE[space].entries(config)
    with device.allocate(space, entries - 1, "most"):
        with pytest.raises(OutOfMemory, match=(
                f"^2 entries of space {space.name.lower()} were wanted for 'rest'; 1 of {entries} are free, 1 in one "
                rf"piece \(held by 'most' {entries - 1}\): free a buffer, or take a configuration with more$")):
            device.allocate(space, 2, "rest")
        with device.allocate(space, 1) as last:
            assert last.first == entries - 1
    assert device.memory.gaps(space) == [(0, entries)]


def test_what_is_freed_is_given_out_again(device: Device) -> None:
    buffers = [device.allocate(Space.ARRAY, 10, str(n)) for n in range(4)]
    buffers[1].free()
    buffers[2].free()
    assert device.allocate(Space.ARRAY, 20).first == 10


def test_holes_are_named(device: Device, config: HardwareConfig) -> None:
    rows = config.rows
    device.allocate(Space.ARRAY, 10, "low")
    middle = device.allocate(Space.ARRAY, rows - 20, "middle")
    device.allocate(Space.ARRAY, 10, "high")
    middle.free()
    device.allocate(Space.ARRAY, 5, "piece")
    with pytest.raises(OutOfMemory, match=rf"{rows - 25} of {rows} are free, {rows - 25} in one piece \(held by 'low' "
                                          r"10, 'piece' 5, 'high' 10\)"):
        device.allocate(Space.ARRAY, rows)


@pytest.mark.parametrize("how", ["free", "with", "reset"])
def test_a_dead_buffer_says_so(device: Device, how: str) -> None:
    buffer = device.allocate(Space.ARRAY, 1, "mine")
    match how:
        case "free":
            buffer.free()
        case "with":
            with buffer:
                pass
        case "reset":
            device.reset()
    for use in (buffer.free, lambda: buffer.part(0, 1), lambda: device.queue.copy(np.zeros(buffer.shape, np.uint32),
                                                                                  buffer)):
        with pytest.raises(DeviceError, match="^buffer 'mine' was freed, or its device was reset: allocate it again$"):
            use()


def test_parts_live_as_long_as_the_whole(device: Device) -> None:
    whole = device.allocate(Space.ARRAY, 8, "whole")
    part = whole.part(2, 3)
    assert (part.first, part.count) == (whole.first + 2, 3)
    with pytest.raises(DeviceError, match="^buffer 'whole' has entries 0 to 7; got 6 to 8$"):
        whole.part(6, 3)
    with pytest.raises(DeviceError, match="^a part of buffer 'whole' cannot be freed alone: free the buffer$"):
        part.free()
    whole.free()
    with pytest.raises(DeviceError, match="^buffer 'whole' was freed"):
        part.check()


def test_nothing_is_no_buffer(device: Device) -> None:
    with pytest.raises(DeviceError, match="^a buffer has at least one entry; got 0$"):
        device.allocate(Space.ARRAY, 0)


def test_a_model_and_buffers_do_not_meet(loaded: Device, image: Image) -> None:
    assert loaded.allocate(Space.ARRAY, 1).first == image.report["rows"]
    with pytest.raises(OutOfMemory, match="were wanted for 'mine'; 0 of .*held by 'program of small'"):
        loaded.allocate(Space.SCRATCH, 1, "mine")


def test_a_buffer_in_the_way_of_a_model_is_named(device: Device, image: Image) -> None:
    mine = device.allocate(Space.ARRAY, 3, "mine")
    with pytest.raises(OutOfMemory, match="^entries 0 to 87 of space array were wanted for 'weights of small'; 'mine' "
                                          "holds 0 to 2: free it first$"):
        device.load(image)
    mine.free()
    device.load(image)


def test_loading_twice_writes_once(loaded: Device, image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    model = loaded.model
    monkeypatch.setattr(type(loaded.transport), "write", lambda *_: pytest.fail("written again"))
    assert loaded.load(image) is model


def test_another_model_takes_the_place_of_the_first(loaded: Device, config: HardwareConfig) -> None:
    first, commands = loaded.model, loaded.command_buffer().dispatch("loop", turns=1)
    loaded.load(small_image(config, seed=2))
    assert loaded.model is not first
    with pytest.raises(DeviceError, match="^this executable is no longer in its device: load it again$"):
        loaded.queue.submit(commands)
    loaded.submit("loop", turns=1)


def test_an_image_for_another_configuration_is_refused(loaded: Device, config: HardwareConfig) -> None:
    other = preset("ecp5" if config.name == "tiny" else "tiny")
    before = loaded.model
    message = (f"an image for configuration '{config.name}' ({config.fingerprint}) was wanted by device "
               f"'{loaded.identity.uri}'; this one is for '{other.name}' ({other.fingerprint}): compile it with "
               f"--config {config.name}, or open a device of configuration '{other.name}'")
    with pytest.raises(DeviceError, match=f"^{re.escape(message)}$"):
        loaded.load(small_image(other))
    assert loaded.model is before


@pytest.mark.capability("model")
def test_a_loaded_model_is_proven(loaded: Device) -> None:
    loaded.submit("copy", source=0, target=5 * WORDS)
    loaded.model.prove()


@pytest.mark.capability("model")
@pytest.mark.parametrize("space, entry", [(Space.ARRAY, 7), (Space.SCRATCH, 3), (Space.MICROCODE, 2), (Space.TABLES, 9),
                                          (Space.SCALARS, 1)], ids=lambda x: getattr(x, "name", str(x)).lower())
def test_a_damaged_model_is_noticed(loaded: Device, space: Space, entry: int) -> None:
    words = loaded.transport.read(space, entry, 1)
    words.reshape(-1)[0] ^= 1 << 9
    loaded.transport.write(space, entry, words)
    with pytest.raises(DeviceError, match=rf"^space {space.name.lower()} must hold the image; 1 words differ, the "
                                          rf"first at \({entry},.*\): 0x\w+ was written, 0x\w+ read: load again$"):
        loaded.model.prove()


@pytest.mark.capability("model")
@pytest.mark.parametrize("tokens", [0, 1, 4, 5, 16])
def test_a_forked_slot_has_the_same_beginning(loaded: Device, tokens: int) -> None:
    kv, random = loaded.kv, np.random.default_rng(tokens)
    source = kv.take()
    kv.grow(source, 16)
    for plane in PLANES:
        shape = (plane.count * plane.step + 2 * plane.slot, *SPACE_TABLE[Space(plane.space)].shape(loaded.config)[1:])
        loaded.transport.write(Space(plane.space), plane.first, random.integers(1, 1 << 32, shape, np.uint32))
    target = kv.fork(source, tokens)
    assert (target, kv.lengths[target], kv.lengths[source]) == (1, tokens, 16)
    for plane in PLANES:
        entries = -(-tokens // plane.tokens)
        for n in range(plane.count):
            first = plane.first + n * plane.step
            words = loaded.transport.read(Space(plane.space), first, 2 * plane.slot)
            assert np.array_equal(words[plane.slot:plane.slot + entries], words[:entries])
            assert not np.array_equal(words[plane.slot + entries:], words[entries:plane.slot]) or entries == plane.slot


def test_slots_are_taken_and_grow_to_the_context(loaded: Device) -> None:
    kv = loaded.kv
    assert [kv.take(), kv.take()] == [0, 1]
    with pytest.raises(DeviceError, match="^a free KV slot was wanted; all 2 are taken: release one, or compile with "
                                          "more slots$"):
        kv.take()
    assert [kv.grow(0), kv.grow(0, 15)] == [0, 1]
    with pytest.raises(DeviceError, match="^KV slot 0 holds 16 tokens; 17 were wanted: shorten the text or "
                                          "compile with a longer context$"):
        kv.grow(0)
    kv.truncate(0, 4)
    assert kv.grow(0) == 4
    with pytest.raises(DeviceError, match="^KV slot 0 has 5 tokens; it cannot be cut to 6$"):
        kv.truncate(0, 6)
    kv.release(1)
    with pytest.raises(DeviceError, match="^KV slot 1 is not taken; taken slots are 0$"):
        kv.grow(1)


def test_the_slot_kept_longest_is_evicted(loaded: Device) -> None:
    kv = loaded.kv
    for slot in (kv.take(), kv.take()):
        kv.grow(slot, slot + 3)
    kv.keep(1)
    kv.keep(0)
    assert kv.resume(1) == 4
    kv.keep(1)
    assert kv.take() == 0 and kv.evictions == 1 and kv.lengths == {1: 4, 0: 0}
    with pytest.raises(DeviceError, match="^KV slot 0 is not kept; kept slots are 1$"):
        kv.resume(0)
    with pytest.raises(DeviceError, match="^KV slot 1 is not taken; taken slots are 0$"):
        kv.grow(1)


def test_a_kept_slot_is_not_evicted_for_its_own_copy(loaded: Device) -> None:
    kv = loaded.kv
    kv.grow(kv.take(), 2)
    kv.keep(0)
    kv.take()
    with pytest.raises(DeviceError, match="^a free KV slot was wanted; all 2 are taken"):
        kv.fork(0)
    assert kv.kept == {0: None} and kv.lengths[0] == 2
