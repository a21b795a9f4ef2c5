"""Two transports side by side: equal completions, cycles included, and equal state after every command.

What a single device promises is in tests/runtime/test_device.py, which runs on each transport.
"""

import pytest

from hw.config import preset
from runtime.conformance.program import WORDS, small_image
from runtime.device import Device
from runtime.lockstep import Lockstep, first_difference
from runtime.transport import SCHEMES


@pytest.mark.rtl
@pytest.mark.parametrize("name", ["tiny"])
def test_commands_leave_equal_states(name):
    config = preset(name)
    image = small_image(config)
    commands = [("copy", {"source": 0, "target": 2 * WORDS}), ("infinite", {}), ("loop", {"turns": 100}),
                ("copy", {"source": 2 * WORDS, "target": WORDS}), ("copy", {"source": WORDS, "target": 0})]
    with Device.open("model:", config) as model, Device.open("rtl:", config) as verilog:
        both = Lockstep(model, verilog, image)
        for entry, arguments in commands:
            both.submit(image.entries[entry], **arguments)
        for pair in both.pairs:
            assert (pair.first.cycles, pair.first.nonfinite) == (pair.second.cycles, pair.second.nonfinite)
        assert model.read_argmax() == verilog.read_argmax()

        # The same after a reset in the middle of a command, which leaves the memories.
        for device in (model, verilog):
            device.enqueue("loop", turns=50_000)
            device.transport.advance(1000)
            device.reset()
            device.load(image)
            device.submit("copy", source=WORDS, target=0)
        assert first_difference(model, verilog) is None


def test_every_kind_of_device_says_how_it_is_opened():
    assert {"model", "rtl"} <= set(SCHEMES)
    for name, scheme in SCHEMES.items():
        assert scheme.usage.startswith(f"{name}:") and scheme.sentence and not scheme.sentence.endswith(".")
