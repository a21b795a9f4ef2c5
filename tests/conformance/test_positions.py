"""The real model on the Verilog at chosen positions: whole state equal, cycles those of the timing model.

The functional model walks to each position; the Verilog takes over its state there, and both do the next step.
"""

import numpy as np
import pytest

from compiler.compile import compile_model
from hw.config import preset
from hw.image import Image
from hw.memorymap import SPACE_TABLE, Space
from hw.timemodel import predict
from runtime.device import Device
from runtime.fetch import FetchError, fetch
from runtime.lockstep import first_difference
from runtime.tokenizer import Tokenizer

pytestmark = [pytest.mark.long, pytest.mark.rtl, pytest.mark.model]

CONFIG = preset("w16")
POSITIONS = (0, 1, 31, 32, 100, 1000)
CHUNK_ROWS = 1 << 14


@pytest.fixture(scope="module")
def image() -> Image:
    try:
        path = fetch("smollm2-135m")
    except FetchError as error:
        pytest.skip(str(error))
    return compile_model(path, CONFIG, slots=2, pairs=True)


def _take_over(source: Device, target: Device) -> None:
    """Give one device the whole state of another."""
    for space, info in SPACE_TABLE.items():
        entries = info.shape(CONFIG)[0]
        for first in range(0, entries, CHUNK_ROWS):
            count = min(CHUNK_ROWS, entries - first)
            target.transport.write(space, first, source.transport.read(space, first, count))


def _step(image: Image, model: Device, rtl: Device, kind: str, arguments: dict[str, int]) -> None:
    context = 1 + max(v for k, v in arguments.items() if k.startswith("position"))
    entry = image.entry(kind, context)
    predicted = predict(CONFIG, image.microcode, entry.address, [arguments[name] for name in entry.arguments]).cycles
    wanted, got = model.submit(entry, **arguments), rtl.submit(entry, **arguments)
    assert (wanted.cycles, got.cycles) == (predicted, predicted), (kind, arguments)
    difference = first_difference(model, rtl)
    assert difference is None, (kind, arguments, str(difference))


def test_cycles_and_state_at_positions(image):
    text = "The memory of a machine is a place where numbers wait. " * 120
    tokens = Tokenizer(image.text).encode(text)
    assert len(tokens) > POSITIONS[-1]
    with Device.open("model:", CONFIG) as model, Device.open("rtl:", CONFIG) as rtl:
        model.load(image)
        rtl.load(image)
        for position in range(POSITIONS[-1] + 1):
            arguments = {"token": tokens[position], "position": position, "slot": 0}
            if position in POSITIONS:
                _take_over(model, rtl)
                _step(image, model, rtl, "decode", arguments)
            else:
                model.submit(image.entry("prefill", position + 1), **arguments)
        # Two sequences in one command: the long one, and a fresh one in the other slot.
        _step(image, model, rtl, "pair", {"token": tokens[1001], "position": 1001, "slot": 0,
                                          "token2": tokens[0], "position2": 0, "slot2": 1})
        assert np.any(model.transport.read(Space.SCALARS))
