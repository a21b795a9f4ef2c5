"""Recordings: everything that went between the host and a device, in one file.

A zip file. ``log.jsonl`` has one JSON object a line: first what device it was, then every call in order; arrays are
``.npy`` files called by a hash of their contents, so that what was written twice is stored once. What the memories held
at the beginning comes first, but for zeros. At every fence, that is whenever all submitted commands are complete, the
log has a digest of each part of each memory space.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hw.config import HardwareConfig
from hw.memorymap import SPACE_TABLE, Space
from runtime.transport import DeviceError, Identity, Transport

__all__ = ["PART", "Recording", "Writer", "digests", "parts"]

VERSION = 1
PART = 1024
"""Entries of a space under one digest."""


def parts(config: HardwareConfig) -> Iterator[tuple[Space, int, int]]:
    """All memories in pieces of `PART` entries: (space, first entry, entries)."""
    for space, info in SPACE_TABLE.items():
        entries = info.entries(config)
        for first in range(0, entries, PART):
            yield space, first, min(PART, entries - first)


def digests(transport: Transport) -> dict[str, list[str]]:
    """A digest of every part of every space of a device, by the space's name."""
    found: dict[str, list[str]] = {}
    for space, first, count in parts(transport.identify().config):
        found.setdefault(space.name.lower(), []).append(_digest(transport.read(space, first, count)))
    return found


def _digest(values: np.ndarray) -> str:
    return hashlib.blake2b(values.tobytes(), digest_size=8).hexdigest()


class Writer:
    """Writes a recording. `close` completes the file."""

    def __init__(self, path: Path | str, identity: Identity) -> None:
        try:
            self._file = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
        except OSError as error:
            raise DeviceError(f"a recording was to be written to {str(path)!r}; {error.strerror}: name another file"
                              ) from error
        self._seen: set[str] = set()
        self._lines = [{"recording": VERSION, "device": identity.uri, "description": identity.description,
                        "config": identity.config.to_json()}]

    def add(self, call: str, **facts: Any) -> None:
        """Add a call to the log. Arrays among its facts are stored beside it."""
        self._lines.append({"call": call, **{name: self._stored(value) for name, value in facts.items()}})

    def close(self) -> None:
        """Write the log, and finish."""
        if self._file.fp is not None:
            self._file.writestr("log.jsonl", "".join(json.dumps(line) + "\n" for line in self._lines))
            self._file.close()

    def _stored(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        name = f"{'x'.join(map(str, value.shape))}-{_digest(value)}"
        if name not in self._seen:
            self._seen.add(name)
            data = io.BytesIO()
            np.save(data, value)
            self._file.writestr(f"{name}.npy", data.getvalue())
        return name


@dataclass(frozen=True)
class Call:
    """One call of a recording: a verb of the transport, ``initial``, ``completion`` or ``fence``, and its facts."""

    name: str
    facts: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.facts[name]


class Recording:
    """A recording, opened to be read. Raises `DeviceError` for a file that is none."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        try:
            self._file = zipfile.ZipFile(path)
            lines = [json.loads(line) for line in self._file.read("log.jsonl").splitlines()]
            self._head = lines[0]
            version = self._head["recording"]
        except FileNotFoundError:
            raise DeviceError(f"{path}: no such recording; make one with a device 'record:{path}@model:'") from None
        except (OSError, zipfile.BadZipFile, KeyError, IndexError, ValueError) as error:
            raise DeviceError(f"{path}: a recording was wanted; this file is damaged or something else ({error})"
                              ) from error
        if version != VERSION:
            raise DeviceError(f"{path}: recording version {VERSION} was wanted, {version!r} came: record it again")
        self.config = HardwareConfig.from_json(self._head["config"])
        self.calls = [Call(line.pop("call"), line) for line in lines[1:]]

    @property
    def device(self) -> str:
        """The URI of the device that was recorded."""
        return str(self._head["device"])

    def array(self, name: str) -> np.ndarray:
        """A stored array."""
        with self._file.open(f"{name}.npy") as file:
            return np.load(io.BytesIO(file.read()))

    def named(self, *names: str) -> Iterator[tuple[int, Call]]:
        """Calls of these names, with their places in the log."""
        return ((n, call) for n, call in enumerate(self.calls) if call.name in names)

    def space(self, call: Call) -> Space:
        """The memory space of a read or a write."""
        return Space[call["space"].upper()]

    def close(self) -> None:
        """Close the file."""
        self._file.close()
