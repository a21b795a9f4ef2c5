"""Two sequences in one command get the bits that each gets alone."""

from dataclasses import replace

import numpy as np
import pytest

from compiler.compile import compile_model
from compiler.errors import PlacementError
from hw.config import preset
from runtime.command_buffer import Argument
from runtime.device import Device
from runtime.transport import DeviceError
from tests.models.random_gguf import write_random_model

TINY = preset("tiny").replace(rows=8192)


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.gguf"
    write_random_model(path, seed=1, context=512)
    return compile_model(path, TINY, context=320, slots=3, pairs=True), path


def test_a_pair_computes_what_its_sequences_compute_alone(image):
    image, _ = image
    rng = np.random.default_rng(11)
    tokens = rng.integers(0, 413, (2, 40))
    # The second sequence is 7 tokens behind, and lives in another slot.
    with Device.open("model:", TINY) as alone, Device.open("model:", TINY) as together:
        alone.load(image)
        together.load(image)
        for device in (alone, together):
            for position in range(7):
                device.submit(image.entry("prefill", 8), token=int(tokens[0, position]), position=position, slot=2)
        for n in range(30):
            one = dict(token=int(tokens[0, 7 + n]), position=7 + n, slot=2)
            two = dict(token=int(tokens[1, n]), position=n, slot=0)
            wanted = []
            for arguments in (one, two):
                alone.submit(image.entry("decode", arguments["position"] + 1), **arguments)
                wanted.append(alone.read_logits())
                assert alone.read_argmax() == wanted[-1].argmax()
            together.submit(image.entry("pair", 8 + n), **one, **{f"{k}2": v for k, v in two.items()})
            for sequence, logits in enumerate(wanted):
                assert np.array_equal(together.read_logits(sequence).view(np.uint32), logits.view(np.uint32))
                assert together.read_argmax(sequence) == int(logits.argmax())


def test_one_slot_for_both_is_refused(image):
    image, _ = image
    one, two = dict(token=1, position=0, slot=2), dict(token2=3, position2=0, slot2=2)
    with Device.open("model:", TINY) as device:
        device.load(image)
        refused = pytest.raises(DeviceError, match="^the two sequences of a command must have different slots; both "
                                                   "got slot 2: give each its own")
        with refused:
            device.submit("pair@320", **one, **two)
        buffer = device.command_buffer().dispatch("pair@320", **one, **two | {"slot2": Argument("other")})
        with refused:
            device.queue.submit(buffer, {"other": 2})
        device.wait(device.queue.submit(buffer, {"other": 1}))


def test_an_image_without_pairs_has_no_second_results(image):
    alone = replace(image[0], second=None, entries={n: e for n, e in image[0].entries.items() if n[:4] != "pair"})
    with Device.open("model:", TINY) as device:
        device.load(alone)
        with pytest.raises(DeviceError, match="this image runs one a command: compile it with --slots 2 --pairs$"):
            device.read_logits(1)


def test_pairs_need_two_slots(image):
    with pytest.raises(PlacementError, match="^pairs of sequences need 2 slots of the cache; got 1: use --slots 2$"):
        compile_model(image[1], TINY, context=64, pairs=True)
