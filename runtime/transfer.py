"""Moves words between the host and buffers, or from buffer to buffer: copy, broadcast, scatter, gather.

Each function checks what it is given and returns the work, which a queue does in its turn.
"""

from collections.abc import Callable

import numpy as np

from hw.memorymap import SPACE_TABLE
from runtime.buffer import Buffer
from runtime.transport import DeviceError

__all__ = ["broadcast", "copy", "gather", "scatter"]

Work = Callable[[], None]


def copy(source: Buffer | np.ndarray, target: Buffer | np.ndarray) -> Work:
    """Contents as they are, uint32 in the shape of the buffer; between devices too."""
    shape, other = source.shape, target.shape
    if shape != other:
        raise DeviceError(f"a copy needs two sides of one shape; got {shape} and {other}")
    if isinstance(source, np.ndarray):
        if isinstance(target, np.ndarray):
            raise DeviceError("a copy on a queue has a buffer on one side; got two arrays: use NumPy")
        return _write(_words(source), target)
    if isinstance(target, np.ndarray):
        _words(target)
        return _read(source, target)

    def move() -> None:
        _store(target, _load(source))

    return move


def broadcast(values: np.ndarray, target: Buffer) -> Work:
    """The same entries, shaped as the buffer without the tiles' axis, into every tile."""
    if not SPACE_TABLE[target.space].per_tile:
        raise DeviceError(f"broadcast is for spaces that every tile has; {target.space.name.lower()} belongs to none: "
                          "use copy")
    words, wanted = _words(values), target.shape[:-1]
    if words.shape != wanted:
        raise DeviceError(f"values of the shape {wanted} were wanted for {target!r}; got {words.shape}")
    return _write(np.repeat(words[..., None], target.shape[-1], axis=-1), target)


def scatter(vector: np.ndarray, target: Buffer) -> Work:
    """A vector (n,): element i to tile i mod T, entry i div T. The rest of the buffer becomes zero."""
    words = _words(vector)
    _check_vector(words, target)
    spread = np.zeros(target.shape, np.uint32)
    spread.reshape(-1)[:len(words)] = words
    return _write(spread, target)


def gather(source: Buffer, vector: np.ndarray) -> Work:
    """What `scatter` has spread, into `vector` (n,) of any 32-bit type."""
    words = _words(vector)
    _check_vector(words, source)

    def collect() -> None:
        words[:] = _load(source).reshape(-1)[:len(words)]

    return collect


def _write(words: np.ndarray, target: Buffer) -> Work:
    target.check()
    return lambda: _store(target, words)


def _read(source: Buffer, target: np.ndarray) -> Work:
    source.check()

    def read() -> None:
        target[...] = _load(source).view(target.dtype)

    return read


def _load(buffer: Buffer) -> np.ndarray:
    buffer.check()
    return buffer.memory.dispatcher.read(buffer.space, buffer.first, buffer.count)


def _store(buffer: Buffer, words: np.ndarray) -> None:
    buffer.check()
    buffer.memory.dispatcher.write(buffer.space, buffer.first, words)


def _words(values: np.ndarray) -> np.ndarray:
    """Values of any 32-bit type as words, sharing their memory."""
    if values.dtype.itemsize != 4 or not values.flags.c_contiguous:
        raise DeviceError(f"contiguous values of 32 bits were wanted; got {values.dtype}"
                          f"{'' if values.flags.c_contiguous else ', not contiguous'}: use np.ascontiguousarray and "
                          ".astype(np.float32) or .astype(np.uint32)")
    return values.view(np.uint32)


def _check_vector(vector: np.ndarray, buffer: Buffer) -> None:
    room = int(np.prod(buffer.shape))
    if vector.ndim != 1 or len(buffer.shape) != 2 or len(vector) > room:
        raise DeviceError(f"a vector of up to {room} elements and a buffer of one word an entry and tile were wanted; "
                          f"got the shape {vector.shape} and {buffer!r}")
