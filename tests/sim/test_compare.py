"""Finding the one word in which two devices differ."""

import numpy as np
import pytest

from hw.config import preset
from hw.memorymap import SPACE_TABLE, Space
from sim.compare import CompareError, Difference, first_difference
from sim.functional import FunctionalDevice
from tests.randomprogram import random_state

TINY = preset("tiny")


def pair() -> tuple[FunctionalDevice, FunctionalDevice]:
    state = random_state(np.random.default_rng(2), TINY)
    devices = FunctionalDevice(TINY), FunctionalDevice(TINY)
    for device in devices:
        for space, words in state.items():
            device.write(space, words)
    return devices


def test_equal() -> None:
    assert first_difference(*pair()) is None


@pytest.mark.parametrize("space", list(SPACE_TABLE))
def test_one_word(space: Space) -> None:
    first, second = pair()
    shape = SPACE_TABLE[space].shape(TINY)
    index = tuple(n - 1 - (k == 0) for k, n in enumerate(shape))
    if space in (Space.FUNCTIONS, Space.OPERANDS):
        index = (shape[0] - 2, 1)  # word 3 of a function and the top of an operand's last word do not exist
    words = second.read(space)
    words[index] ^= 1
    second.write(space, words)
    found = first_difference(first, second)
    tiled = SPACE_TABLE[space].per_tile
    assert found == Difference(
        space, index[0], index[1] if len(index) > 1 + tiled else None, index[-1] if tiled else None,
        int(first.read(space)[index]), int(words[index]), 1)


def test_text_and_count() -> None:
    first, second = pair()
    words = second.read(Space.ARRAY)
    words[3000:3002, 4, 2] = 0x1234_5678
    first.write(Space.ARRAY, words)
    words[3000:3002, 4, 2] = 0x1234_5670
    second.write(Space.ARRAY, words)
    assert str(first_difference(first, second)) == (
        "array address 3000 word 4 of tile 2: 0x12345678 and 0x12345670 (2 words of this space differ)")
    assert first_difference(first, second, [Space.SCRATCH]) is None


def test_refused() -> None:
    with pytest.raises(CompareError, match=r"^two devices of one configuration were wanted; got 'tiny' and 'ecp5'$"):
        first_difference(FunctionalDevice(TINY), FunctionalDevice(preset("ecp5")))
