"""How devices are opened, by name; and what moves between host and device for a token.

What an opened device promises is in `runtime.conformance`, which tests/conformance/test_suite.py runs.
"""

import re

import numpy as np
import pytest

from hw.config import preset
from hw.image import Entry
from hw.memorymap import Space
from runtime.conformance.program import WORDS, small_image
from runtime.device import Device
from runtime.sampling import Sampling
from runtime.session import Session
from runtime.transport import SCHEMES, DeviceError
from runtime.transport_null import NullTransport

TINY = preset("tiny")


@pytest.mark.parametrize("uri, message", [
    ("modl:tiny", r"device 'modl:tiny' does not exist; devices are .*\bmodel:PRESET\b.*"),
    ("model", r"device 'model' does not exist; devices are .*"),
    ("model:", r"device 'model:' needs a configuration: name a preset \('model:tiny', .*\) or open it for an image"),
    ("model:big", r"preset 'big' does not exist; known presets are tiny, w16, ecp5, paper"),
    ("faulty:hang=1", r"device 'faulty:hang=1' needs a device behind it: add '@' and its name, as in "
                      r"'faulty:hang=1@model:tiny'"),
    ("faulty:fire=1@model:tiny", r"faults are drop=N, corrupt=N, hang=N, disconnect=N, full=N; got 'fire=1'"),
    ("faulty:hang=x@model:tiny", r"faults are .*; got 'hang=x'"),
    ("record:@model:tiny", r"device 'record:@model:tiny' needs a file: 'record:FILE@DEVICE'"),
    ("record:/no/folder/x.rec@model:tiny", r"a recording was to be written to '/no/folder/x.rec'; No such file or "
                                           r"directory: name another file"),
    ("replay:missing.rec", r"missing.rec: no such recording; make one with a device 'record:missing.rec@model:'"),
])
def test_names_that_do_not_exist(uri, message):
    with pytest.raises(Exception, match=f"^{message}$"):
        Device.open(uri)


@pytest.mark.parametrize("kind", ["model", "rtl", "null"])
def test_another_configuration_than_the_wanted_one(kind, monkeypatch):
    monkeypatch.setattr("runtime.transport_rtl.RtlDevice", lambda *_, **__: pytest.fail("a simulator was built"))
    with pytest.raises(DeviceError, match=rf"^configuration 'ecp5' \(\w{{16}}\) was wanted; device '{kind}:tiny' is "
                                          r"'tiny' \(\w{16}\): open another device, or compile for 'tiny'$"):
        Device.open(f"{kind}:tiny", preset("ecp5"))


def test_the_device_of_an_image_when_the_name_has_no_preset():
    for uri in ("model:", "null:", "faulty:hang=9@model:", "faulty:@null:"):
        with Device.open(uri, TINY) as device:
            assert device.config == TINY


def test_every_scheme_says_how_it_is_used():
    assert set(SCHEMES) == {"model", "rtl", "null", "record", "replay", "faulty"}
    for name, scheme in SCHEMES.items():
        assert scheme.usage.startswith(f"{name}:") and scheme.sentence and not scheme.sentence.endswith(".")


def test_devices_are_independent():
    image = small_image(TINY)
    with Device.open("model:", TINY) as one, Device.open("model:", TINY) as two:
        one.load(image)
        two.load(image)
        one.submit("copy", source=0, target=4 * WORDS)
        assert not np.array_equal(one.transport.read(Space.SCRATCH), two.transport.read(Space.SCRATCH))
        two.submit("copy", source=0, target=4 * WORDS)
        assert np.array_equal(one.transport.read(Space.SCRATCH), two.transport.read(Space.SCRATCH))


def test_closing_fails_what_is_queued():
    device = Device.open("model:", TINY)
    device.load(small_image(TINY))
    operation = device.enqueue("loop", turns=3)
    device.close()
    with pytest.raises(DeviceError, match="^device 'model:' was closed before this was done$"):
        device.wait(operation)


class Counting(NullTransport):
    """Counts the words that move, and the calls."""

    def __init__(self) -> None:
        super().__init__(TINY)
        self.read_words: list[int] = []
        self.written_words: list[int] = []

    def read(self, space, first=0, count=None):
        words = super().read(space, first, count)
        self.read_words.append(words.size)
        return words

    def write(self, space, first, values):
        super().write(space, first, values)
        self.written_words.append(values.size)


@pytest.mark.parametrize("sampling, words", [
    (Sampling(), 1),
    (Sampling(temperature=1, seed=1), WORDS * TINY.tiles),
])
def test_a_token_moves_its_number_or_its_logits_and_nothing_else(sampling, words):
    """A decode step sends one command (entry, tag, three arguments) and reads the best token or the logits."""
    image = small_image(TINY)
    image.entries = {f"{kind}@16": Entry(8, ("token", "position", "slot"), 16) for kind in ("prefill", "decode")}
    transport = Counting()
    with Device(transport) as device:
        device.load(image)
        loaded = len(transport.written_words)
        with Session(device, image) as session:
            tokens = list(session.generate([1, 2, 3], sampling, max_tokens=5))
        assert len(tokens) == 5 and len(session.steps) == 7
        assert transport.read_words == [words] * 5 and len(transport.written_words) == loaded


class Watching(NullTransport):
    """Notes when a command is submitted and when its completion is taken."""

    def __init__(self) -> None:
        super().__init__(TINY)
        self.events: list[str] = []

    def submit(self, command):
        self.events.append(f"submit {command.arguments[1]}")
        return super().submit(command)

    def poll(self):
        done = super().poll()
        if done is not None:
            self.events.append("done")
        return done


def test_the_next_command_of_a_prompt_is_there_before_the_one_before_is_done():
    image = small_image(TINY)
    image.entries = {f"{kind}@16": Entry(8, ("token", "position", "slot"), 16) for kind in ("prefill", "decode")}
    transport = Watching()
    with Device(transport) as device:
        device.load(image)
        with Session(device, image) as session:
            session.feed([1, 2, 3, 4])
            assert session.tokens == [1, 2, 3, 4] and [s.position for s in session.steps] == [0, 1, 2, 3]
    assert transport.events[:3] == ["submit 0", "submit 1", "done"]
    for n in (2, 3):
        assert transport.events.index(f"submit {n}") < len(transport.events) - 1 - transport.events[::-1].index("done")


def test_a_message_names_the_device_as_it_was_opened():
    message = re.escape("device 'model:tiny' must have a model; it has none: call load(image) first")
    with Device.open("model:tiny") as device, pytest.raises(DeviceError, match=f"^{message}$"):
        device.submit("copy")
