"""Commands bind their arguments, complete in order, take the same time each time, and leave their results."""

import re
from collections.abc import Callable

import numpy as np
import pytest

from hw.config import HardwareConfig
from hw.image import Entry, Image
from hw.memorymap import Space
from runtime.command_buffer import Argument
from runtime.conformance.program import WORDS
from runtime.device import Device
from runtime.transport import WORD, Command, DeviceError

pytestmark = pytest.mark.capability("commands")


@pytest.mark.capability("identity")
def test_it_says_what_it_is(device: Device, uri: str) -> None:
    assert device.identity.uri in (uri, uri.partition("@")[2])
    assert device.config.name in device.identity.description
    assert device.transport.identify() == device.identity


@pytest.mark.capability("results")
@pytest.mark.parametrize("source, target", [(0, 4), (1, 5), (2, 6), (0, 5), (3, 4)])
def test_a_command_leaves_its_results(loaded: Device, image: Image, source: int, target: int) -> None:
    loaded.submit("copy", source=source * WORDS, target=target * WORDS)
    before = image.scratch.view(np.float32)[source * WORDS:(source + 1) * WORDS]
    after = loaded.transport.read(Space.SCRATCH, target * WORDS, WORDS).view(np.float32)
    assert np.array_equal(after, before + np.float32(0.5))
    assert loaded.read_argmax() == int(np.argmax(after))
    assert np.isclose(loaded.read_scalar(4), after.sum(dtype=np.float64), rtol=1e-5)
    assert np.array_equal(loaded.read_logits(), image.scratch.view(np.float32)[WORDS:2 * WORDS].reshape(-1)[:-1])


@pytest.mark.capability("results")
@pytest.mark.parametrize("place", range(8))
def test_every_argument_arrives(loaded: Device, place: int) -> None:
    values = [0] * 8
    values[place] = WORD - 1 - place
    loaded.submit("halt", **dict(zip("abcdefgh", values, strict=True)))
    registers = loaded.transport.read(Space.REGISTERS)
    assert registers[0] == 0 and registers[1:9].tolist() == values and not registers[9:].any()


@pytest.mark.capability("results")
def test_nonfinite_is_reported_for_the_command_that_met_it(loaded: Device) -> None:
    commands: tuple[tuple[str, dict[str, int]], ...] = (("infinite", {}), ("loop", {"turns": 1}), ("infinite", {}))
    assert [loaded.submit(entry, **given).nonfinite for entry, given in commands] == [True, False, True]


@pytest.mark.capability("time")
@pytest.mark.parametrize("turns", [1, 2, 63])
def test_cycles_depend_on_arguments_only(loaded: Device, turns: int) -> None:
    loaded.transport.write(Space.SCRATCH, 0, np.ones((64, loaded.config.tiles), np.uint32))
    few = loaded.submit("loop", turns=turns).cycles
    loaded.transport.write(Space.SCRATCH, 0, np.zeros((64, loaded.config.tiles), np.uint32))
    assert few == loaded.submit("loop", turns=turns).cycles < loaded.submit("loop", turns=turns + 1).cycles


@pytest.mark.parametrize("count", [1, 2, 7, 30])
def test_more_commands_than_fit_complete_in_order(loaded: Device, count: int) -> None:
    operations = [loaded.enqueue("loop", turns=n + 1) for n in range(count)]
    loaded.wait(operations[-1])
    assert all(operation.done for operation in operations)
    tags = [operation.completion.tag for operation in operations]
    assert tags == list(range(tags[0], tags[0] + count))
    if loaded.identity.uri.partition(":")[0] != "null":
        cycles = [operation.completion.cycles for operation in operations]
        assert cycles == sorted(set(cycles))


def test_a_full_queue_refuses_and_loses_nothing(loaded: Device, image: Image) -> None:
    transport, taken = loaded.transport, 0
    while transport.submit(Command(image.entries["loop"].address, (20_000,), taken)):
        taken += 1
        assert taken <= 2 * loaded.config.commands + 1
    assert taken >= loaded.config.commands
    tags: list[int] = []
    while len(tags) < taken:
        if (done := transport.poll()) is None:
            transport.advance(100_000)
        else:
            tags.append(done.tag)
    assert tags == list(range(taken)) and transport.poll() is None


def test_a_tag_comes_back_whole(loaded: Device, image: Image) -> None:
    for tag in (0, 1, 0x8000_0001, WORD - 1):
        assert loaded.transport.submit(Command(image.entries["halt"].address, (), tag))
        while (done := loaded.transport.poll()) is None:
            loaded.transport.advance(1000)
        assert done.tag == tag


def test_enqueue_returns_before_the_command_is_done(loaded: Device) -> None:
    operation = loaded.enqueue("loop", turns=1000)
    with pytest.raises(DeviceError, match="^a completion was wanted; this operation is not done: wait for it$"):
        _ = operation.completion
    loaded.wait(operation)
    assert operation.completion is operation.completions[0]


def test_a_command_buffer_is_bound_at_every_submit(loaded: Device, image: Image) -> None:
    commands = loaded.command_buffer().dispatch("copy", source=Argument("from"), target=4 * WORDS)
    commands.dispatch("copy", source=4 * WORDS, target=Argument("to"))
    for source, target in ((0, 5), (1, 6)):
        operation = loaded.queue.submit(commands, {"from": source * WORDS, "to": target * WORDS})
        loaded.wait(operation)
        assert len(operation.completions) == 2


@pytest.mark.capability("results")
def test_transfers_among_the_commands_of_a_buffer(loaded: Device, image: Image) -> None:
    program = next(b for b in loaded.model.executable.buffers if b.space == Space.SCRATCH)
    source, target = program.part(4 * WORDS, WORDS), program.part(5 * WORDS, WORDS)
    commands = loaded.command_buffer().scatter(Argument("given"), source)
    commands.dispatch("copy", source=4 * WORDS, target=5 * WORDS).gather(target, Argument("found"))
    given = np.arange(WORDS * loaded.config.tiles, dtype=np.float32)
    for factor in (1, 3):
        found = np.zeros_like(given)
        loaded.wait(loaded.queue.submit(commands, {"given": given * np.float32(factor), "found": found}))
        assert np.array_equal(found, given * np.float32(factor) + np.float32(0.5))


WRONG: dict[str, tuple[Callable[[Device], object], str]] = {
    "entry": (lambda d: d.submit("decode@5"),
              "entry point 'decode@5' does not exist; this image has infinite, copy, loop, halt, stuck"),
    "missing": (lambda d: d.submit("copy", source=1), "entry point at 2 takes (source, target); got (source)"),
    "unknown": (lambda d: d.submit("loop", turns=1, speed=2), "entry point at 5 takes (turns); got (turns, speed)"),
    "small": (lambda d: d.submit("loop", turns=-1), "argument 'turns' takes 0 to 4294967295; got -1"),
    "large": (lambda d: d.submit("loop", turns=WORD), "argument 'turns' takes 0 to 4294967295; got 4294967296"),
    "address": (lambda d: d.submit(Entry(1 << 16, (), 1)),
                "entry points of configuration CONFIG are 0 to LAST; got 65536"),
    "slot missing": (lambda d: d.queue.submit(d.command_buffer().dispatch("loop", turns=Argument("n"))),
                     "this command buffer has the slots (n); got values for ()"),
    "slot unknown": (lambda d: d.queue.submit(d.command_buffer().dispatch("loop", turns=1), {"n": 1}),
                     "this command buffer has the slots (); got values for (n)"),
    "slot large": (lambda d: d.queue.submit(d.command_buffer().dispatch("loop", turns=Argument("n")), {"n": WORD}),
                   "argument 'n' takes 0 to 4294967295; got 4294967296"),
    "dispatch": (lambda d: d.command_buffer().dispatch("loop"), "entry point at 5 takes (turns); got ()"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_is_said_when_it_is_queued(loaded: Device, config: HardwareConfig, case: str) -> None:
    work, message = WRONG[case]
    message = message.replace("CONFIG", repr(config.name)).replace("LAST", str(config.microcode - 1))
    with pytest.raises(DeviceError, match=f"^{re.escape(message)}$"):
        work(loaded)
    assert loaded.failure is None
    loaded.submit("loop", turns=1)


def test_without_a_model(device: Device) -> None:
    with pytest.raises(DeviceError, match=rf"^device '{re.escape(device.identity.uri)}' must have a model; it has none"
                                          r": call load\(image\) first$"):
        device.submit("copy")
