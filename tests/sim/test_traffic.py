"""Random transfers and commands on both ports of the whole device, answered as docs/host.md says."""

import numpy as np
import pytest

from hw.config import preset
from tests.coverage.commands import exercise
from tests.devicebench import DeviceBench
from tests.hosttraffic import HARNESS, Traffic
from tests.randomprogram import random_state


def _filled() -> DeviceBench:
    """A device with something in every memory."""
    config = preset("tiny")
    bench = DeviceBench(config, harness=HARNESS)
    for space, data in random_state(np.random.default_rng(1), config).items():
        bench.write(space, data)
    return bench


@pytest.mark.rtl
def test_random_transfers() -> None:
    bench = _filled()
    for seed in range(5):
        Traffic(bench.device, bench.simulation, seed).run(400)


@pytest.mark.rtl
def test_commands() -> None:
    exercise(_filled())


@pytest.mark.rtl
def test_a_wrong_word_is_noticed() -> None:
    bench = DeviceBench(preset("tiny"), harness=HARNESS)
    traffic = Traffic(bench.device, bench.simulation, 1)
    next(iter(traffic.memories.values()))[1, 2, 3] ^= 1
    with pytest.raises(AssertionError, match=r"^ARRAY differs at \[\[1, 2, 3\]\]$"):
        traffic.run(0)
