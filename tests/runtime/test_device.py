"""What every device promises, on each transport; and the words of its errors."""

import re

import numpy as np
import pytest

from hw.config import preset
from hw.image import Entry
from hw.memorymap import SPACE_TABLE, Space
from runtime.device import Device
from runtime.kvcache import KvCache
from runtime.transport import Command, DeviceError
from tests.program import WORDS, small_image

TINY = preset("tiny")


@pytest.fixture(scope="module", params=["model:tiny", pytest.param("rtl:tiny", marks=pytest.mark.rtl)])
def opened(request):
    with Device.open(request.param) as device:
        yield device


@pytest.fixture
def device(opened):
    """A device without a model, whatever the test before left in it."""
    opened.reset()
    return opened


@pytest.mark.parametrize("space", list(Space))
def test_spaces_hold_what_was_written(device, space):
    info = SPACE_TABLE[space]
    shape = info.shape(TINY)
    random = np.random.default_rng(int(space))
    values = random.integers(0, 1 << 32, shape, np.uint32)
    if space == Space.OPERANDS:  # integers of 9 bits, a sum of 16, an exponent of 8
        pairs = random.integers(-255, 256, (*shape[:-1], 32)).astype(np.int16)
        values = np.concatenate([pairs.view(np.uint32), values[:, -1:] & 0xFF1FFF], axis=1)
        values[:, -1] &= 0x00FF1FFF
    if space == Space.REGISTERS:
        values[0] = 0
    if space == Space.TABLES:
        values[:, 1:] = values[:, 1:] & 0x7FFFF
    if space == Space.FUNCTIONS:
        values &= np.array([(1 << 21) - 1, 0xFFFFFFFF, 0xFFFFFFFF, 0], np.uint32)
    others = {s: device.transport.read(s) for s in Space if s not in (space, Space.ARRAY)}
    device.transport.write(space, 0, values)
    found = device.transport.read(space)
    assert found.dtype == np.uint32 and np.array_equal(found, values)

    last = shape[0] - 3
    device.transport.write(space, last, values[:2])
    values[last:last + 2] = values[:2]
    assert np.array_equal(device.transport.read(space, last - 1), values[last - 1:])
    for other, before in others.items():
        assert np.array_equal(device.transport.read(other), before), f"{space.name} wrote {other.name}"


def test_a_command_binds_arguments_and_leaves_results(device):
    image = small_image(TINY)
    device.load(image)
    done = device.submit("copy", source=WORDS, target=4 * WORDS)
    assert done.cycles > 2 * WORDS and not done.nonfinite
    before = image.scratch.view(np.float32)
    after = device.transport.read(Space.SCRATCH, 0, 5 * WORDS).view(np.float32)
    assert np.array_equal(after[4 * WORDS:], before[WORDS:2 * WORDS] + np.float32(0.5))
    assert np.array_equal(after[:4 * WORDS], before)
    assert device.read_argmax() == int(np.argmax(after[4 * WORDS:]))
    assert np.isclose(device.read_scalar(4), after[4 * WORDS:].sum(dtype=np.float64), rtol=1e-5)
    assert np.array_equal(device.read_logits(), before[WORDS:2 * WORDS].reshape(-1)[:-1])
    device.model.prove()


def test_cycles_depend_on_arguments_only(device):
    device.load(small_image(TINY))
    few, again, more = (device.submit("loop", turns=n).cycles for n in (10, 10, 20))
    assert few == again < more


def test_nonfinite_is_reported_for_the_command_that_met_it(device):
    device.load(small_image(TINY))
    commands = (("infinite", {}), ("loop", {"turns": 1}), ("infinite", {}))
    assert [device.submit(entry, **given).nonfinite for entry, given in commands] == [True, False, True]


def test_commands_queue_and_complete_in_order(device):
    device.load(small_image(TINY))
    operations = [device.enqueue("loop", turns=n + 1) for n in range(3 * TINY.commands)]
    device.wait(operations[-1])
    cycles = [operation.completion.cycles for operation in operations]
    assert cycles == sorted(set(cycles))


def test_a_full_queue_refuses(device):
    device.load(small_image(TINY))
    transport = device.transport
    taken = 0
    while transport.submit(Command(device.model.image.entries["loop"].address, (2_000,), taken)):
        taken += 1
        assert taken <= 2 * TINY.commands + 1
    assert taken >= TINY.commands
    tags = []
    while len(tags) < taken:
        if (done := transport.poll()) is None:
            transport.advance(100_000)
        else:
            tags.append(done.tag)
    assert tags == list(range(taken))
    assert transport.poll() is None


def test_loading_twice_writes_once(device, monkeypatch):
    image = small_image(TINY)
    model = device.load(image)
    monkeypatch.setattr(type(device.transport), "write", lambda *_: pytest.fail("written again"))
    assert device.load(image) is model


def test_a_damaged_model_is_noticed(device):
    image = small_image(TINY)
    device.load(image)
    row = device.transport.read(Space.ARRAY, 7, 1)
    row[0, 3, 2] ^= 1 << 9
    device.transport.write(Space.ARRAY, 7, row)
    with pytest.raises(DeviceError, match=r"^space array must hold the image; 1 words differ, the first at "
                                          r"\(7, 3, 2\): 0x\w{8} was written, 0x\w{8} read: load again$"):
        device.model.prove()


def test_a_device_that_hangs(device):
    device.load(small_image(TINY))
    device.timeout_cycles = 1000
    try:
        with pytest.raises(DeviceError, match=r"(?s)^the completion of command \d+ was wanted from device "
                                              r"'\w+:tiny' within 1000 cycles; it hangs: reset it\n.+"):
            operation = device.enqueue("loop", turns=1)
            device.transport.reset()
            device.wait(operation)
    finally:
        device.timeout_cycles = 200_000_000


@pytest.mark.parametrize("wrong, message", [
    (lambda d: d.submit("decode@5"), "entry point 'decode@5' does not exist; this image has infinite, "
                                     "copy, loop"),
    (lambda d: d.submit("copy", source=1), "entry point at 2 takes (source, target); got (source)"),
    (lambda d: d.submit("loop", turns=-1), "argument 'turns' takes 0 to 4294967295; got -1"),
    (lambda d: d.submit(Entry(9999, (), 1)), "entry points of configuration 'tiny' are 0 to 2047; got 9999"),
    (lambda d: d.load(small_image(preset("ecp5"))),
     f"an image for configuration 'tiny' ({TINY.fingerprint}) was wanted by device 'URI'; this one is for "
     "'ecp5' "
     f"({preset('ecp5').fingerprint}): compile it with --config tiny, or open a device of configuration "
     "'ecp5'"),
    (lambda d: d.transport.read(Space.SCALARS, 60, 9),
     "space scalars of configuration 'tiny' has entries 0 to 63; got 60 to 68"),
    (lambda d: d.transport.write(Space.SCRATCH, 0, np.zeros((3, 2), np.uint32)),
     "space scratch of configuration 'tiny' takes entries of the shape (n, 4); got (3, 2)"),
    (lambda d: d.transport.write(Space.SCALARS, 0, np.zeros(3, np.float32)),
     "space scalars holds uint32 words; got float32: use .view(np.uint32) on float32"),
])
def test_errors_say_what_to_do(device, wrong, message):
    device.load(small_image(TINY))
    with pytest.raises(DeviceError, match=f"^{re.escape(message.replace('URI', device.identity.uri))}$"):
        wrong(device)


def test_without_a_model(device):
    with pytest.raises(DeviceError, match=rf"^device '{device.identity.uri}' must have a model; it has "
                                           "none: call "
                                          r"load\(image\) first$"):
        device.submit("copy")


@pytest.mark.parametrize("uri, message", [
    ("modl:tiny", r"device 'modl:tiny' does not exist; devices are .*\bmodel:PRESET\b.*"),
    ("model", r"device 'model' does not exist; devices are .*"),
    ("model:", r"device 'model:' needs a configuration: name a preset \('model:tiny', .*\) or open it for "
                "an image"),
    ("model:big", r"preset 'big' does not exist; known presets are tiny, w16, ecp5, paper"),
])
def test_names_that_do_not_exist(uri, message):
    with pytest.raises(Exception, match=f"^{message}$"):
        Device.open(uri)


def test_another_configuration_than_the_wanted_one():
    with pytest.raises(DeviceError, match=r"^configuration 'ecp5' \(\w{16}\) was wanted; device "
                                           "'model:tiny' is "
                                          r"'tiny' \(\w{16}\): open another device, or compile for 'tiny'$"):
        Device.open("model:tiny", preset("ecp5"))


def test_slots_of_the_kv_cache():
    kv = KvCache(small_image(TINY).kv)
    first, second = kv.take(), kv.take()
    assert (first, second) == (0, 1)
    with pytest.raises(DeviceError, match=r"^a free KV slot was wanted; all 2 are taken: release one, or "
                                           "compile with "
                                          r"more slots$"):
        kv.take()
    assert [kv.grow(first), kv.grow(first, 15)] == [0, 1]
    with pytest.raises(DeviceError, match=r"^KV slot 0 holds 16 tokens; 17 were wanted: shorten the text "
                                           "or compile "
                                          r"with a longer context$"):
        kv.grow(first)
    kv.truncate(first, 4)
    assert kv.grow(first) == 4
    kv.release(second)
    with pytest.raises(DeviceError, match=r"^KV slot 1 is not taken; taken slots are 0$"):
        kv.grow(second)
    assert kv.take() == 1 and kv.lengths[1] == 0
