"""Two sequences in one command get the bits that each gets alone."""

import numpy as np
import pytest

from compiler.compile import compile_model
from compiler.errors import PlacementError
from hw.config import preset
from hw.memorymap import Space
from runtime.device import Device
from tests.models.random_gguf import write_random_model

TINY = preset("tiny").replace(rows=8192)


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.gguf"
    write_random_model(path, seed=1, context=512)
    return compile_model(path, TINY, context=320, slots=3, pairs=True, checked=False), path


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
        first, count = image.logits
        words = -(-count // TINY.tiles)
        for n in range(30):
            one = dict(token=int(tokens[0, 7 + n]), position=7 + n, slot=2)
            two = dict(token=int(tokens[1, n]), position=n, slot=0)
            wanted = []
            for arguments in (one, two):
                alone.submit(image.entry("decode", arguments["position"] + 1), **arguments)
                wanted.append(alone.read_logits())
                assert alone.read_argmax() == wanted[-1].argmax()
            together.submit(image.entry("pair", 8 + n), **one, **{f"{k}2": v for k, v in two.items()})
            assert np.array_equal(together.read_logits().view(np.uint32), wanted[0].view(np.uint32))
            assert together.read_argmax() == wanted[0].argmax()
            second, argmax = image.second
            got = together.transport.read(Space.SCRATCH, second, words).reshape(-1)[:count]
            assert np.array_equal(got, wanted[1].view(np.uint32))
            assert int(together.transport.read(Space.SCALARS, argmax, 1)[0]) == int(wanted[1].argmax())


def test_pairs_need_two_slots(image):
    with pytest.raises(PlacementError, match="^pairs of sequences need 2 slots of the cache; got 1: use --slots 2$"):
        compile_model(image[1], TINY, context=64, pairs=True)
