"""Reads the header of a GGUF file (versions 2 and 3, little endian) and maps its tensors without a copy.

The format (ggml's docs/gguf.md): "GGUF", u32 version, u64 tensor count, u64 key count, the keys, the tensor
entries, padding to `general.alignment`, the tensor data. Strings carry a u64 length. Arrays of strings are
only walked here and decoded when someone asks: a vocabulary takes longer than all the rest together.
"""

import mmap
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, overload

import numpy as np

from compiler.errors import ModelFileError

__all__ = ["GgufFile", "StringArray", "TensorEntry", "TENSOR_TYPES"]

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMENSIONS = 4

#: ggml's number of a tensor type -> (name, elements of a block, bytes of a block).
TENSOR_TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
}

#: Value types with a fixed size: number -> struct format, which is also NumPy's.
SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), [f"<{code}" for code in "BbHhIif?Qqd"], strict=True))
STRING, ARRAY = 8, 9

U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")

DAMAGED = "the file is damaged, bring it again"
CUT = "the file is cut short or damaged, bring it again"


@dataclass(frozen=True)
class StringArray(Sequence[str]):
    """An array of strings inside the file, decoded on demand.

    `starts[i]` is the position of the length word of string `i`; the last entry is the end of the array.
    """

    key: str
    path: Path
    buffer: mmap.mmap = field(repr=False)
    starts: list[int] = field(repr=False)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self.decoded[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self.decoded)

    @cached_property
    def decoded(self) -> list[str]:
        """All strings, in file order."""
        base = self.starts[0]
        data = self.buffer[base : self.starts[-1]]
        out: list[str] = []
        try:
            position = 8
            for start in self.starts[1:]:
                out.append(data[position : start - base].decode())
                position = start - base + 8
        except UnicodeDecodeError as error:
            raise ModelFileError(
                f"{self.path}: wanted UTF-8 text in entry {len(out)} of {self.key!r}, found "
                f"{error.object[:32]!r}; {DAMAGED}"
            ) from error
        return out


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of the file.

    `shape` has the contraction last: (out, in) for a matrix. `offset` is in bytes from the start of the file.
    """

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int
    row_bytes: int
    buffer: mmap.mmap = field(repr=False)

    @property
    def rows(self) -> int:
        """Rows of the tensor: the product of all dimensions but the last."""
        return int(np.prod(self.shape[:-1], dtype=np.int64))

    @property
    def view(self) -> np.ndarray:
        """The encoded rows as they lie in the file, read-only uint8 (rows, row_bytes)."""
        count = self.rows * self.row_bytes
        return np.frombuffer(self.buffer, np.uint8, count, self.offset).reshape(self.rows, self.row_bytes)


@dataclass(frozen=True)
class GgufFile:
    """A mapped GGUF file: its keys and its tensors by name. Make one with `GgufFile.open`."""

    path: Path
    version: int
    metadata: Mapping[str, Any] = field(repr=False)
    tensors: Mapping[str, TensorEntry] = field(repr=False)
    buffer: mmap.mmap = field(repr=False)

    @classmethod
    def open(cls, path: str | Path) -> "GgufFile":
        """Map the file and read its header; `ModelFileError` on anything but a whole, sound file."""
        path = Path(path)
        try:
            with open(path, "rb") as file:
                head = file.read(4)
                if head != MAGIC:
                    raise ModelFileError(
                        f"{path}: wanted a GGUF file, which begins with {MAGIC!r}, found {head!r}; "
                        "give a .gguf file"
                    )
                buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError as error:
            raise ModelFileError(f"{path}: wanted a model file, found none; check its name") from error
        except IsADirectoryError as error:
            raise ModelFileError(
                f"{path}: wanted a model file, found a folder; name the file in it"
            ) from error
        except OSError as error:
            why = error.strerror
            raise ModelFileError(
                f"{path}: wanted to read the model file, found {why!r}; mend that"
            ) from error
        return _Header(path, buffer).read()


class _Header:
    """The cursor that walks a header; every read checks that the file goes that far."""

    def __init__(self, path: Path, buffer: mmap.mmap) -> None:
        self.path = path
        self.buffer = buffer
        self.size = len(buffer)
        self.position = len(MAGIC)

    def fail(self, wanted: str, found: str, mend: str = DAMAGED) -> NoReturn:
        raise ModelFileError(f"{self.path}: wanted {wanted}, found {found}; {mend}")

    def need(self, count: int, what: str) -> None:
        if count > self.size - self.position:
            self.fail(
                f"{count} bytes of {what} at byte {self.position}",
                f"the end of the file at byte {self.size}",
                CUT,
            )

    def u32(self, what: str) -> int:
        self.need(4, what)
        self.position += 4
        return U32.unpack_from(self.buffer, self.position - 4)[0]

    def u64(self, what: str) -> int:
        self.need(8, what)
        self.position += 8
        return U64.unpack_from(self.buffer, self.position - 8)[0]

    def text(self, what: str) -> str:
        length = self.u64(f"the length of {what}")
        self.need(length, what)
        data = self.buffer[self.position : self.position + length]
        self.position += length
        try:
            return data.decode()
        except UnicodeDecodeError:
            self.fail(f"UTF-8 text as {what}", repr(data[:32]))

    def strings(self, key: str, count: int) -> StringArray:
        unpack, buffer, position = U64.unpack_from, self.buffer, self.position
        starts = [position]
        try:
            for _ in range(count):
                position += 8 + unpack(buffer, position)[0]
                starts.append(position)
        except (struct.error, OverflowError):
            position = self.size + 1  # a length that leads out of the file shows at the next read
        if position > self.size:
            self.fail(
                f"{count} strings in {key!r}",
                f"entry {max(len(starts) - 2, 0)} running past the end of the file",
                CUT,
            )
        self.position = position
        return StringArray(key, self.path, buffer, starts)

    def value(self, key: str) -> Any:
        what = f"the value of {key!r}"
        kind = self.u32(what)
        if kind == STRING:
            return self.text(what)
        if kind == ARRAY:
            return self.array(key)
        if kind not in SCALARS:
            self.fail(f"a value type from 0 to 12 for {key!r}", str(kind))
        form = SCALARS[kind]
        size = struct.calcsize(form)
        self.need(size, what)
        self.position += size
        return struct.unpack_from(form, self.buffer, self.position - size)[0]

    def array(self, key: str) -> np.ndarray | StringArray:
        what = f"the array {key!r}"
        kind, count = self.u32(what), self.u64(what)
        if kind != STRING and kind not in SCALARS:
            self.fail(f"numbers or strings in {what}", f"value type {kind}")
        size = 8 if kind == STRING else struct.calcsize(SCALARS[kind])
        self.need(size * count, f"{what} ({count} entries)")
        if kind == STRING:
            return self.strings(key, count)
        values = np.frombuffer(self.buffer, np.dtype(SCALARS[kind]), count, self.position)
        self.position += size * count
        return values

    def metadata(self, count: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for index in range(count):
            key = self.text(f"the name of key {index}")
            if key in out:
                self.fail("every key once", f"{key!r} twice")
            out[key] = self.value(key)
        return out

    def entry(self, index: int) -> tuple[str, str, tuple[int, ...], int, int]:
        name = self.text(f"the name of tensor {index}")
        dimensions = self.u32(f"the dimensions of tensor {name!r}")
        if not 1 <= dimensions <= MAX_DIMENSIONS:
            self.fail(f"1 to {MAX_DIMENSIONS} dimensions of tensor {name!r}", str(dimensions))
        # The file gives the fastest dimension first.
        shape = tuple(self.u64(f"the shape of tensor {name!r}") for _ in range(dimensions))[::-1]
        kind = self.u32(f"the type of tensor {name!r}")
        offset = self.u64(f"the place of tensor {name!r}")
        if kind not in TENSOR_TYPES:
            known = ", ".join(entry[0] for entry in TENSOR_TYPES.values())
            self.fail(
                f"a known type of tensor {name!r} ({known})", f"type number {kind}",
                "convert the model to one of these types",
            )  # fmt: skip
        type_name, elements, size = TENSOR_TYPES[kind]
        if 0 in shape or shape[-1] % elements:
            self.fail(f"rows of tensor {name!r} in multiples of {elements} ({type_name})", f"shape {shape}")
        return name, type_name, shape, offset, shape[-1] // elements * size

    def read(self) -> GgufFile:
        version = self.u32("the version")
        if version not in VERSIONS:
            found = f"version {version}"
            if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS:
                found = "a big-endian file"
            wanted = " or ".join(map(str, VERSIONS))
            mend = "convert the model again with a current tool"
            self.fail(f"GGUF version {wanted}, little endian", found, mend)
        tensor_count, key_count = self.u64("the tensor count"), self.u64("the key count")
        # The shortest key takes 13 bytes, the shortest tensor entry 33.
        for what, count, least in (("keys", key_count, 13), ("tensors", tensor_count, 33)):
            if count * least > self.size:
                self.fail(f"a count of {what} that fits {self.size} bytes", str(count), CUT)
        metadata = self.metadata(key_count)
        alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            self.fail("a power of two as 'general.alignment'", repr(alignment))
        entries = [self.entry(index) for index in range(tensor_count)]
        base = -(-self.position // alignment) * alignment
        tensors: dict[str, TensorEntry] = {}
        for name, type_name, shape, offset, row_bytes in entries:
            tensor = TensorEntry(name, type_name, shape, base + offset, row_bytes, self.buffer)
            size = row_bytes
            for length in shape[:-1]:  # Python integers: a damaged shape may not fit 64 bits
                size *= length
            if base + offset + size > self.size:
                self.fail(
                    f"{size} bytes of tensor {name!r} at byte {base + offset}",
                    f"the end of the file at byte {self.size}",
                    CUT,
                )
            if name in tensors:
                self.fail("every tensor once", f"{name!r} twice")
            tensors[name] = tensor
        return GgufFile(self.path, version, metadata, tensors, self.buffer)
