"""Runs are recorded, answered again from the recording, and carried out on another device with every word compared."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hw.image import Image
from hw.memorymap import Space
from runtime.conformance.program import WORDS
from runtime.device import Device
from runtime.recording import Recording
from runtime.replay import ReplayDiffers, replay
from runtime.transport import DeviceError
from runtime.transport_model import ModelTransport
from runtime.transport_record import RecordTransport

pytestmark = pytest.mark.capability("recording")


def run(device: Device, image: Image) -> list[object]:
    """Some work, and what came of it."""
    device.load(image)
    found: list[object] = []
    for source, target in ((0, 4), (1, 5)):
        found.append(device.submit("copy", source=source * WORDS, target=target * WORDS).cycles)
        found.append(device.read_argmax())
    operations = [device.enqueue("copy", source=n * WORDS, target=(n + 1) * WORDS) for n in range(3)]
    device.wait(operations[-1])
    found.append(device.read_logits().tolist())
    return found


@pytest.fixture
def recorded(device: Device, image: Image, tmp_path: Path) -> tuple[Path, list[object]]:
    """A recording of a run, and its results."""
    path = tmp_path / "run.rec"
    plain = device.transport
    transport = RecordTransport(plain, str(path))
    device.transport = transport
    try:
        found = run(device, image)
    finally:
        device.transport = plain
        transport._writer.close()  # not the device
    return path, found


def test_a_recording_answers_like_the_device(recorded: tuple[Path, list[object]], image: Image) -> None:
    path, found = recorded
    with Device.open(f"replay:{path}") as again:
        assert again.config.fingerprint == image.config.fingerprint
        assert run(again, image) == found


def test_the_model_does_what_was_recorded(recorded: tuple[Path, list[object]], image: Image) -> None:
    recording = Recording(recorded[0])
    outcome = replay(recording, ModelTransport(image.config))
    assert (outcome.commands, outcome.fences, outcome.reads) == (5, 3, 3) and outcome.cycles > 0


def test_the_device_does_what_was_recorded(recorded: tuple[Path, list[object]], device: Device) -> None:
    assert replay(Recording(recorded[0]), device.transport).commands == 5


class Wrong(ModelTransport):
    """A model that spoils a word of the array after its n-th command."""

    def __init__(self, image: Image, after: int) -> None:
        super().__init__(image.config, "wrong:")
        self.after, self.done = after, 0

    def advance(self, cycles: int) -> None:
        before = len(self._done)
        super().advance(cycles)
        self.done += len(self._done) - before
        if self.done == self.after and len(self._done) > before:
            words = self.read(Space.ARRAY, 3000, 1)
            words[0, 2, 1] ^= 4
            self.write(Space.ARRAY, 3000, words)

    def write(self, space: Space, first: int, values: np.ndarray) -> None:
        if space == Space.REGISTERS and first == 0:  # all is set to zero: it begins anew
            self.done = 0
        super().write(space, first, values)


@pytest.mark.parametrize("after, arguments", [(1, "(0, 64)"), (2, "(16, 80)"), (3, "(0, 16)"), (4, "(16, 32)"),
                                              (5, "(32, 48)")])
def test_a_difference_is_found_to_the_command(recorded: tuple[Path, list[object]], image: Image, after: int,
                                              arguments: str) -> None:
    message = (rf"wrong: differs from .* after command {after} of 5 \(at 2 with arguments {re.escape(arguments)}\): "
               r"array address 3000 word 2 of tile 1: 0x\w{8} and 0x\w{8} \(1 words of this space differ\)")
    with pytest.raises(ReplayDiffers, match=f"^{message}$"):
        replay(Recording(recorded[0]), Wrong(image, after), ModelTransport(image.config))


OTHERWISE: dict[str, tuple[Callable[[Device, Image], object], str]] = {
    "read": (lambda d, i: d.transport.read(Space.SCALARS, 1, 1),
             r"goes on with write \(space microcode, first 0\); a read of scalars from 1 came: do what was "
             "done when it was recorded"),
    "reset": (lambda d, i: d.transport.reset(), r"goes on with write \(space microcode, first 0\); a reset came"),
    "values": (lambda d, i: d.transport.write(Space.MICROCODE, 0, i.microcode + 1),
               "a write of microcode from 0 came with other values than those recorded in "),
    "arguments": (lambda d, i: (d.load(i), d.submit("copy", source=1, target=2)),
                  r"goes on with submit \(entry 2, arguments \[0, 64\], tag \d+\); a command at 2 with arguments "
                  r"\(1, 2\)"),
}


@pytest.mark.parametrize("case", OTHERWISE)
def test_a_recording_answers_nothing_else(recorded: tuple[Path, list[object]], image: Image, case: str) -> None:
    work, message = OTHERWISE[case]
    with Device.open(f"replay:{recorded[0]}") as again, pytest.raises(DeviceError, match=message):
        work(again, image)


def test_files_that_are_no_recordings(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=r"no such recording; make one with a device 'record:.*@model:'$"):
        Recording(tmp_path / "none")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(DeviceError, match=r"text: a recording was wanted; this file is damaged or something else \("):
        Recording(tmp_path / "text")
