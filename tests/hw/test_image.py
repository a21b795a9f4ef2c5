"""Images that are damaged, from the future, or cannot be written: one clear line, and nothing half-written."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from hw.config import preset
from hw.image import Entry, Image, ImageError, KvLayout, load, save

TILES = preset("tiny").tiles
ROOT = Path(__file__).parents[2]


def small() -> Image:
    """An image of a program of two words."""
    return Image(preset("tiny"), {"decode@32": Entry(0, ("token", "position", "slot"), 32)}, KvLayout(1, 32), (0, 8), 0,
                 array=np.zeros((2, 10, TILES), np.uint32), scratch=np.zeros((3, TILES), np.uint32),
                 scalars=np.zeros(4, np.uint32), microcode=np.zeros((2, 10), np.uint32),
                 tables=np.zeros((1, 3), np.uint32), functions=np.zeros((1, 4), np.uint32))


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """Tensors and description of an image as `save` hands them on."""
    kept = {}

    def keep(tensors, path, metadata):
        kept.update(tensors=dict(tensors), meta=json.loads(metadata["wordline"]))
        save_file(tensors, path, metadata=metadata)

    monkeypatch.setattr("hw.image.save_file", keep)
    save(small(), tmp_path / "whole.wl")
    return kept["tensors"], kept["meta"]


def written(path, tensors, meta):
    save_file(tensors, path, metadata={"wordline": json.dumps(meta)})
    return path


def test_what_is_written_is_read(tmp_path):
    save(small(), tmp_path / "x.wl")
    found = load(tmp_path / "x.wl")
    assert found.entries == small().entries
    assert [p.name for p in tmp_path.iterdir()] == ["x.wl"]


def test_the_file_has_the_permissions_of_any_other(tmp_path):
    save(small(), tmp_path / "x.wl")
    (tmp_path / "other").touch()
    assert (tmp_path / "x.wl").stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize("share", [0, 0.01, 0.3, 0.6, 0.99])
def test_an_image_cut_short(tmp_path, share):
    save(small(), tmp_path / "x.wl")
    data = (tmp_path / "x.wl").read_bytes()
    cut = tmp_path / "cut.wl"
    cut.write_bytes(data[:int(len(data) * share)])
    with pytest.raises(ImageError, match=rf"^{re.escape(str(cut))}: a Wordline image was wanted; .* compile it again$"):
        load(cut)


def test_every_part_of_the_description_is_needed(tmp_path, parts):
    tensors, meta = parts
    structured = ("config", "entries", "kv", "logits", "text", "model", "report")
    for part in meta:
        for value in (None, 3, "x", []) if part in structured else ():
            with pytest.raises(ImageError, match=r"compile it again$"):
                load(written(tmp_path / "x.wl", tensors, {**meta, part: value}))
        without = {name: value for name, value in meta.items() if name != part}
        with pytest.raises(ImageError, match=r"compile it again$"):
            load(written(tmp_path / "y.wl", tensors, without))
    for meta in ([], 3, "x"):
        with pytest.raises(ImageError, match=r"compile it again$"):
            load(written(tmp_path / "z.wl", tensors, meta))


def test_a_changed_bit_is_noticed(tmp_path, parts):
    tensors, meta = parts
    for name in tensors:
        if not tensors[name].size:
            continue
        changed = tensors[name].copy()
        changed.flat[-1] ^= 1
        with pytest.raises(ImageError, match="contents of checksum .* were wanted, .* the file is damaged"):
            load(written(tmp_path / "x.wl", {**tensors, name: changed}, meta))
    with pytest.raises(ImageError, match="the file is damaged"):
        load(written(tmp_path / "x.wl", tensors, {**meta, "argmax": meta["argmax"] + 1}))
    load(written(tmp_path / "x.wl", tensors, meta))


def test_an_image_from_the_future(tmp_path, parts):
    tensors, meta = parts
    path = written(tmp_path / "x.wl", tensors, {**meta, "version": 99})
    said = f"{path}: image version 3 was wanted, 99 came: compile it again"
    with pytest.raises(ImageError, match=f"^{re.escape(said)}$"):
        load(path)
    future = {**meta, "config": {**meta["config"], "voltage": 3}}
    with pytest.raises(ImageError, match=r"got also \['voltage'\]\): compile it again$"):
        load(written(path, tensors, future))


@pytest.mark.parametrize("name, change, said", [
    ("array", lambda a: a.astype(np.float32), "of uint32 was wanted, float32 came"),
    ("array", lambda a: a[..., 1:], "of shape"),
    ("scalars", lambda a: np.zeros(65, np.uint32), "at most 64 entries of tensor 'scalars' were wanted, 65 came"),
    ("microcode", lambda a: None, "None came"),
])
def test_tensors_that_are_not_the_device_s(tmp_path, parts, name, change, said):
    tensors, meta = parts
    changed = change(tensors[name])
    tensors = {n: np.ascontiguousarray(t) for n, t in {**tensors, name: changed}.items() if t is not None}
    with pytest.raises(ImageError, match=re.escape(said)):
        load(written(tmp_path / "x.wl", tensors, meta))


def test_a_full_disk_leaves_nothing(tmp_path):
    """A limit on the size of files stands in for the disk; the image that was there before stays."""
    save(small(), tmp_path / "x.wl")
    before = (tmp_path / "x.wl").read_bytes()
    program = """if True:
        import resource, signal, sys
        from hw.image import ImageError, load, save
        image = load(sys.argv[1])
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
        try:
            save(image, sys.argv[1])
        except ImageError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "x.wl")], cwd=ROOT, capture_output=True,
                          text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert done.stdout.startswith(f"{tmp_path / 'x.wl'}: the image could not be written ("), done.stderr
    assert done.stdout.endswith("): make room, or name another place\n")
    assert [p.name for p in tmp_path.iterdir()] == ["x.wl"]
    assert (tmp_path / "x.wl").read_bytes() == before
