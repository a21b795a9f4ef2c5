"""Whole models through the compiler, on the functional model, judged by the fp32 forward pass of the same weights."""

import re

import numpy as np
import pytest

from compiler.compile import compile_model
from compiler.errors import PlacementError
from compiler.frontends.load import load_model
from hw.config import PRESETS, preset
from hw.image import load, save
from hw.isa import decode
from runtime.device import Device
from runtime.session import Session
from sim.reference import forward
from tests.models.random_gguf import write_random_model

PLAIN = {k: ("F32",) for k in ("token_embedding", "q", "k", "v", "o", "gate", "up", "down", "output")}
FOUR_BITS = {**PLAIN, "token_embedding": ("Q4_1",), "output": ("Q4_0",), "gate": ("Q4_1",)}
TINY = preset("tiny")

SHAPES = {
    "mixed formats, tiles do not divide the heads": (TINY, dict(seed=1)),
    "nothing a multiple of 32": (TINY, dict(seed=2, types=PLAIN, hidden=100, heads=5, kv_heads=5, head_dim=24, ffn=90,
                                            vocab=301)),
    "two tiles, grouped heads wider than a block": (TINY.replace(tiles=2, rows=8192),
                                                    dict(seed=3, types=PLAIN, hidden=64, heads=4, kv_heads=2,
                                                         head_dim=48, ffn=200)),
    "sixteen tiles": (TINY.replace(tiles=16, scratch=8192), dict(seed=4, hidden=256, heads=4, kv_heads=2, head_dim=64,
                                                                 ffn=320)),
    "tied four-bit embedding": (TINY, dict(seed=5, types=FOUR_BITS, tied=True, hidden=96, layers=2)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_logits_are_the_models(name, tmp_path):
    config, arguments = SHAPES[name]
    path = tmp_path / "model.gguf"
    write_random_model(path, context=256, **arguments)
    source = load_model(path)
    image = compile_model(path, config, context=64)
    ids = np.random.default_rng(1).integers(0, source.shape.vocab, 40)
    with Device.open("model:", config) as device:
        device.load(image)
        with Session(device, image) as session:
            got = np.array(list(session.score([int(i) for i in ids])))
    wanted = np.concatenate([rows for _, rows in forward(source.shape, source.dequantized(), ids)])
    error = np.sqrt(((got - wanted[:len(got)]) ** 2).mean() / (wanted ** 2).mean())
    # Random weights: the noise of 9-bit operands, 8-bit cache and q8 weights is 2 to 4 %; a wrong lane, row or
    # position is 100 % and more.
    assert error < 0.06
    assert (got.argmax(1) == wanted[:len(got)].argmax(1)).mean() >= 0.8


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.gguf"
    write_random_model(path, seed=1, context=256)
    return compile_model(path, TINY, context=64), path


def test_same_input_same_bytes(image, tmp_path):
    made, path = image
    save(made, tmp_path / "a.wl")
    save(compile_model(path, TINY, context=64), tmp_path / "b.wl")
    assert (tmp_path / "a.wl").read_bytes() == (tmp_path / "b.wl").read_bytes()
    back = load(tmp_path / "a.wl")
    assert back.entries == made.entries and np.array_equal(back.array, made.array)


def test_operators_cover_the_program(image):
    made, _ = image
    words = decode(made.microcode)
    assert made.operators[0][0] == 0 and made.operators[-1][1] == len(words)
    assert all(a[1] == b[0] for a, b in zip(made.operators, made.operators[1:], strict=False))


def test_stages_are_shown_in_order(image):
    _, path = image
    seen = {}
    compile_model(path, TINY, context=64, print_after=lambda name, result: seen.setdefault(name, str(result)))
    assert list(seen) == ["build", "merge_linears", "fuse_rotary", "fuse_cache", "fuse_attention", "fuse_gate",
                          "fuse_residual", "fuse_output", "place", "prefill@64", "decode@64"]
    assert "layers.0.cache" in seen["place"] and "multiply" in seen["decode@64"]


REFUSED = {
    "rows": (TINY.replace(rows=1500), 64,
             r"cannot place '[^']+' \(\d+ rows\): 'tiny' has 1500 rows in a tile, \d+ of them free, and the whole "
             r"model needs \d+, \d+ too many; try the preset 'tiny', or a context shorter than 64"),
    "scratch": (TINY.replace(scratch=300), 64,
                r"cannot place 'value_scales' .*; try a configuration with scratch=\d+, or a shorter context"),
    "microcode": (TINY.replace(microcode=100), 64, r"the program has \d+ words; the microcode memory holds 100: .*"),
    "tiles": (PRESETS["paper"], 64, r"code can be made for at most 32 tiles; 'paper' has 256: use a smaller preset"),
    "context": (TINY, 5000, r"the context must be 1 to 256 tokens, what the model was trained for; got 5000"),
    "format": (TINY.replace(formats=("q8",)), 64,
               r"'blk.0.attn_q.weight' needs the row format 'q4'; 'tiny' has q8: use another preset or file"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_named(name, image):
    config, context, message = REFUSED[name]
    with pytest.raises(PlacementError, match=f"^{message}$") as caught:
        compile_model(image[1], config, context=context)
    assert "\n" not in str(caught.value)


def test_the_named_row_count_is_enough(image):
    with pytest.raises(PlacementError) as caught:
        compile_model(image[1], TINY.replace(rows=1500, name="small"), context=64)
    needed = int(re.search(r"whole model needs (\d+)", str(caught.value))[1])
    assert compile_model(image[1], TINY.replace(rows=needed), context=64).report["rows"] == needed
