"""The `.wl` image: one program with its weights, as the compiler writes it and every device loads it.

A safetensors file. Tensors hold what goes into the device's memories; everything else is one JSON document in the
metadata under the key ``wordline``, so that the same program gives the same bytes. It holds a checksum of everything.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from hw.config import LINE_WORDS, HardwareConfig
from hw.errors import WordlineError
from hw.memorymap import SPACE_TABLE, Space

__all__ = ["Entry", "Image", "ImageError", "KvLayout", "KvPlane", "load", "save"]

VERSION = 3
_TENSORS = {
    # name: shape with tiles as "T" and a free length as None
    "array": (None, LINE_WORDS, "T"), "scratch": (None, "T"), "scalars": (None,), "microcode": (None, LINE_WORDS),
    "tables": (None, 3), "functions": (None, 4),
}


class ImageError(WordlineError):
    """A file that is no image, or an image that does not belong to this device."""


@dataclass(frozen=True)
class Entry:
    """An entry point: where it starts, what its arguments mean, for which context lengths it is meant.

    `arguments` names registers 1, 2, … in order: ``token``, ``position``, ``slot``, and of a second sequence, in
    another slot, ``token2``, ``position2``, ``slot2``. `context` is the largest context length (position + 1) it
    handles.
    """

    address: int
    arguments: tuple[str, ...]
    context: int


@dataclass(frozen=True)
class KvPlane:
    """Where some part of the cached keys or values of every slot lies, `count` times over.

    Token t of slot s is in entry ``first + n * step + s * slot + t // tokens`` of memory space `space`
    (`hw.memorymap.Space`), for every n < `count`. No entry belongs to two slots.
    """

    space: int
    first: int
    count: int
    step: int
    slot: int
    tokens: int


@dataclass(frozen=True)
class KvLayout:
    """The KV cache of the image: sequences it holds at once, the longest of them, and where they lie."""

    slots: int
    context: int
    planes: tuple[KvPlane, ...] = ()


@dataclass
class Image:
    """A compiled model.

    Parameters
    ----------
    config : HardwareConfig
        The device it was compiled for.
    entries : dict
        Entry points by name: ``prefill@C`` runs one token without logits, ``decode@C`` with, for contexts up to C;
        ``pair@C``, if the image has it, is ``decode`` for two at once, ``slot`` and ``slot2`` of which differ.
    array, scratch : ndarray of uint32
        Contents of the first rows (n, 10, T) and words (n, T) of every tile.
    scalars, microcode, tables, functions : ndarray of uint32
        Initial contents of those spaces, from address 0 (shapes as in docs/machine.md).
    logits : tuple of int
        First scratch word of the logits and number of logits: logit n is in tile n mod T, word first + n div T.
    argmax : int
        Scalar register that holds the index of the largest logit after ``decode``.
    second : tuple of int, or None
        First scratch word of the logits, and the argmax scalar, of the second sequence of ``pair``.
    operators : list of (int, int, str)
        Half-open ranges of microcode addresses and the model operator they carry out.
    text : dict
        ``tokenizer`` (tokenizers JSON), ``chat_template``, ``bos``, ``eos`` (list of ids), ``add_bos``.
    model, report : dict
        The model's name, shape and source hash; what the compiler measured.
    """

    config: HardwareConfig
    entries: dict[str, Entry]
    kv: KvLayout
    logits: tuple[int, int]
    argmax: int
    array: np.ndarray
    scratch: np.ndarray
    scalars: np.ndarray
    microcode: np.ndarray
    tables: np.ndarray
    functions: np.ndarray
    second: tuple[int, int] | None = None
    operators: list[tuple[int, int, str]] = field(default_factory=list)
    text: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)

    def entry(self, kind: str, context: int) -> Entry:
        """The entry of `kind` ("prefill", "decode" or "pair") with the smallest sufficient context length."""
        fitting = [e for name, e in self.entries.items() if name.startswith(f"{kind}@") and e.context >= context]
        if not fitting:
            raise ImageError(f"a context of {context} tokens is too long; this image holds {self.kv.context}: "
                             f"compile with --context {context} or shorten the prompt")
        return min(fitting, key=lambda e: e.context)


def save(image: Image, path: Path | str) -> None:
    """Write an image, all or nothing; raises `ImageError` when it cannot be written."""
    path = Path(path)
    if path.is_dir():
        raise ImageError(f"{path}: a file to write the image to was wanted; this is a folder: name a file in it")
    meta = {
        "version": VERSION, "config": image.config.to_json(), "fingerprint": image.config.fingerprint,
        "entries": {k: asdict(e) for k, e in image.entries.items()}, "kv": asdict(image.kv),
        "logits": list(image.logits), "argmax": image.argmax,
        "second": list(image.second) if image.second else None, "operators": image.operators, "text": image.text,
        "model": image.model, "report": image.report,
    }
    tensors = {name: np.ascontiguousarray(getattr(image, name), np.uint32) for name in _TENSORS}
    meta = json.loads(_document(meta))   # as it will be read: all keys are texts
    document = _document({**meta, "checksum": _checksum(meta, tensors)})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A folder of its own, so that the file has the permissions that the user's mask gives, not a temporary's.
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
            temporary = Path(folder) / path.name
            temporary.touch()
            mode = temporary.stat().st_mode & 0o777
            save_file(tensors, temporary, metadata={"wordline": document})
            temporary.chmod(mode)
            os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        raise ImageError(f"{path}: the image could not be written ({getattr(error, 'strerror', None) or error}): "
                         "make room, or name another place") from error


def _document(meta: Mapping[str, Any]) -> str:
    return json.dumps(meta, sort_keys=True, ensure_ascii=False)


def _checksum(meta: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of the description, as JSON without its checksum, and of every tensor."""
    found = hashlib.sha256(_document({key: value for key, value in meta.items() if key != "checksum"}).encode())
    for name in _TENSORS:
        found.update(tensors[name].data)
    return found.hexdigest()


def load(path: Path | str) -> Image:
    """Read an image; raises `ImageError` for a file that is missing, damaged, foreign or of another version."""
    path = Path(path)
    if path.is_dir():
        raise ImageError(f"{path}: a Wordline image was wanted; this is a folder: name the file in it")
    try:
        with safe_open(path, "numpy") as f:
            meta = json.loads((f.metadata() or {}).get("wordline", "null"))
            if meta is None:
                raise ImageError(f"{path}: a Wordline image was wanted; this safetensors file is none: "
                                 "make one with `wordline compile`")
            tensors = {name: f.get_tensor(name) for name in _TENSORS if name in f.keys()}
    except FileNotFoundError:
        raise ImageError(f"{path}: no such file; make an image with `wordline compile`") from None
    except (SafetensorError, json.JSONDecodeError, OSError, ValueError) as error:
        raise ImageError(f"{path}: a Wordline image was wanted; this file is damaged or something else "
                         f"({error}): compile it again") from error
    version = meta.get("version") if isinstance(meta, dict) else None
    if version != VERSION:
        raise ImageError(f"{path}: image version {VERSION} was wanted, {version!r} came: compile it again")
    try:
        return _image(path, meta, tensors)
    except ImageError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, WordlineError) as error:
        raise ImageError(f"{path}: the description of an image was wanted; this one is damaged "
                         f"({type(error).__name__}: {error}): compile it again") from error


def _image(path: Path, meta: dict[str, Any], tensors: dict[str, np.ndarray]) -> Image:
    """The image that a file describes; whatever is raised says that it describes none."""
    config = HardwareConfig.from_json(meta["config"])
    if config.fingerprint != meta["fingerprint"]:
        raise ImageError(f"{path}: configuration {meta['fingerprint']} was promised, its fields say "
                         f"{config.fingerprint}: compile it again")
    for name, shape in _TENSORS.items():
        wanted = tuple(config.tiles if n == "T" else n for n in shape)
        got = tensors[name].shape if name in tensors else None
        if got is None or len(got) != len(wanted) or any(w not in (None, g) for w, g in zip(wanted, got, strict=True)):
            raise ImageError(f"{path}: tensor {name!r} of shape {wanted} was wanted, {got} came: compile it again")
        if (found := tensors[name].dtype) != np.uint32:
            raise ImageError(f"{path}: tensor {name!r} of uint32 was wanted, {found} came: compile it again")
        if (most := SPACE_TABLE[Space[name.upper()]].entries(config)) < got[0]:
            raise ImageError(f"{path}: at most {most} entries of tensor {name!r} were wanted, {got[0]} came: "
                             "compile it again")
    for part in ("text", "model", "report"):
        if not isinstance(meta[part], dict):
            raise TypeError(f"{part!r} is {meta[part]!r}")
    first, count = meta["logits"]
    image = Image(
        config=config, entries={k: Entry(e["address"], tuple(e["arguments"]), e["context"])
                                for k, e in meta["entries"].items()},
        kv=_layout(meta["kv"]), logits=(first, count), argmax=meta["argmax"],
        second=tuple(meta["second"]) if meta["second"] else None,
        operators=[(first, last, name) for first, last, name in meta["operators"]], text=meta["text"],
        model=meta["model"], report=meta["report"], **tensors)
    if (checksum := _checksum(meta, tensors)) != meta["checksum"]:
        raise ImageError(f"{path}: contents of checksum {meta['checksum']} were wanted, {checksum} came: the file is "
                         "damaged; compile it again")
    return image


def _layout(kv: dict[str, Any]) -> KvLayout:
    return KvLayout(kv["slots"], kv["context"], tuple(KvPlane(**plane) for plane in kv.get("planes", ())))
