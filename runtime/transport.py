"""What a device must be able to do, and the names (URIs) under which devices are opened.

A backend is a small `Transport`; everything above it (`runtime.device`) is shared. A URI is a scheme, a colon
and what the scheme makes of the rest: ``model:`` and ``model:tiny``, ``rtl:w16``. A scheme that stands in front of
another device has that device's URI behind an @: ``record:chat.rec@model:tiny``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from hw.config import PRESETS, HardwareConfig, preset
from hw.errors import WordlineError
from hw.memorymap import ARGUMENTS, SPACE_TABLE, Space

__all__ = [
    "Command", "Completion", "DeviceError", "EngineState", "Identity", "SCHEMES", "Scheme", "Snapshot", "Transport",
    "WORD", "check_command", "check_range", "check_values", "configuration_of", "open_transport", "register",
    "scheme_of", "wrapped",
]


WORD = 1 << 32
"""Arguments and tags are smaller than this."""


class DeviceError(WordlineError):
    """A device that does not exist, is not what was wanted, hangs, or cannot do what it was asked."""


@dataclass(frozen=True)
class Identity:
    """What a device says of itself: the URI it was opened under, its configuration, one line for people."""

    uri: str
    config: HardwareConfig
    description: str


class Command(NamedTuple):
    """Start at microcode address `entry` with up to eight 32-bit `arguments`; `tag` comes back.

    A tuple, because one is made for every token: a frozen dataclass takes three times as long.
    """

    entry: int
    arguments: tuple[int, ...] = ()
    tag: int = 0


class Completion(NamedTuple):
    """A finished command: its tag, its cycles, and whether a word was not finite at the quantizer."""

    tag: int
    cycles: int
    nonfinite: bool


@dataclass(frozen=True)
class EngineState:
    """One engine of a device that was looked at: instructions in its queue, tokens it may take, whether it works."""

    name: str
    waiting: int
    tokens: int
    active: bool


@dataclass(frozen=True)
class Snapshot:
    """What a device is doing, for people to read when it hangs. None is what a transport cannot know.

    `running` says whether a command runs, `waiting` how many wait behind it, `completions` how many were not taken,
    `address` which microcode word the sequencer is at.
    """

    running: bool | None = None
    waiting: int | None = None
    completions: int | None = None
    address: int | None = None
    engines: tuple[EngineState, ...] = ()
    notes: tuple[str, ...] = ()


class Transport(Protocol):
    """A way to one device. Commands are carried out, and complete, in the order of `submit`."""

    def identify(self) -> Identity:
        """What this device is. Free of cost: asked once, when opened."""

    def read(self, space: Space, first: int = 0, count: int | None = None) -> np.ndarray:
        """Entries `first` to `first + count` (default: to the end) of a space, a fresh uint32 array.

        Its shape is that of docs/machine.md, entries first, tiles last. Waits for the command that runs.
        """

    def write(self, space: Space, first: int, values: np.ndarray) -> None:
        """Entries of a space from `first` on, uint32, shaped as `read` gives them."""

    def submit(self, command: Command) -> bool:
        """Queue a command; False, and nothing has happened, when the queue is full."""

    def poll(self) -> Completion | None:
        """The oldest completion that was not yet taken, if there is one. Does not wait."""

    def advance(self, cycles: int) -> None:
        """Let the device work for about `cycles` clock cycles, or less when it has nothing left to do."""

    def reset(self) -> None:
        """Stop the running command and drop queued commands and completions.

        Array, scratch, microcode, tables and functions keep their contents, except what the stopped command
        was writing; everything else is undefined until written.
        """

    def snapshot(self) -> Snapshot:
        """What the device is doing now. Changes nothing."""

    def close(self) -> None:
        """Give the device back. The transport cannot be used afterwards."""


Opener = Callable[[str, HardwareConfig | None], Transport]
"""Opens a device from what follows the scheme's colon and the configuration that is wanted, if any."""


@dataclass(frozen=True)
class Scheme:
    """A kind of device: name, how to open one, how its URIs look, and a sentence about it.

    `whole` says that it is a machine by itself, not something in front of one or instead of one.
    """

    name: str
    opener: Opener
    usage: str
    sentence: str
    whole: bool


SCHEMES: dict[str, Scheme] = {}
"""Every kind of device that can be opened, by the scheme of its URI."""


def register(name: str, usage: str, sentence: str, whole: bool = False) -> Callable[[Opener], Opener]:
    """Decorator for the function that opens the devices of a scheme."""

    def add(opener: Opener) -> Opener:
        SCHEMES[name] = Scheme(name, opener, usage, sentence, whole)
        return opener

    return add


def open_transport(uri: str, config: HardwareConfig | None = None) -> Transport:
    """Open the device `uri`, of configuration `config` if that is given; raises `DeviceError`."""
    scheme, rest = scheme_of(uri)
    transport = scheme.opener(rest, config)
    try:
        _require(uri, config, transport.identify().config)
    except DeviceError:
        transport.close()
        raise
    return transport


def scheme_of(uri: str) -> tuple[Scheme, str]:
    """What opens the device `uri`, and what that is told; raises `DeviceError` for a name that nothing opens."""
    name, colon, rest = uri.partition(":")
    if not colon or name not in SCHEMES:
        known = ", ".join(s.usage for s in sorted(SCHEMES.values(), key=lambda s: not s.whole))
        raise DeviceError(f"device {uri!r} does not exist; devices are {known}")
    return SCHEMES[name], rest


def _require(uri: str, wanted: HardwareConfig | None, found: HardwareConfig) -> None:
    if wanted is not None and found.fingerprint != wanted.fingerprint:
        raise DeviceError(
            f"configuration {wanted.name!r} ({wanted.fingerprint}) was wanted; device {uri!r} is "
            f"{found.name!r} ({found.fingerprint}): open another device, or compile for {found.name!r}")


def configuration_of(scheme: str, rest: str, config: HardwareConfig | None) -> HardwareConfig:
    """Configuration for a simulated device: the preset named in the URI, else the wanted one.

    Raises `DeviceError` when the two differ, so that no simulator is built for nothing.
    """
    if rest:
        found = preset(rest)
        _require(f"{scheme}:{rest}", config, found)
        return found
    if config is None:
        examples = ", ".join(repr(f"{scheme}:{name}") for name in PRESETS)
        raise DeviceError(f"device {scheme + ':'!r} needs a configuration: name a preset ({examples}) or "
                          "open it for an image")
    return config


def wrapped(scheme: str, rest: str, config: HardwareConfig | None) -> tuple[str, Transport]:
    """The options of a scheme that stands in front of another device, and that device, opened."""
    options, at, inner = rest.partition("@")
    if not at:
        raise DeviceError(f"device {scheme + ':' + rest!r} needs a device behind it: add '@' and its name, as in "
                          f"{scheme + ':' + rest + '@model:tiny'!r}")
    return options, open_transport(inner, config)


def check_values(config: HardwareConfig, space: Space, first: int, values: np.ndarray) -> np.ndarray:
    """`values` as contiguous uint32; raises `DeviceError` when they do not fit the space at `first`."""
    inner = SPACE_TABLE[space].shape(config)[1:]
    values = np.asarray(values)
    if values.dtype != np.uint32:
        raise DeviceError(f"space {space.name.lower()} holds uint32 words; got {values.dtype}: "
                          "use .view(np.uint32) on float32")
    if values.ndim != 1 + len(inner) or values.shape[1:] != inner:
        wanted = ", ".join(["n", *map(str, inner)])
        raise DeviceError(f"space {space.name.lower()} of configuration {config.name!r} takes entries of the "
                          f"shape ({wanted}); got {values.shape}")
    check_range(config, space, first, len(values))
    return np.ascontiguousarray(values)


def check_range(config: HardwareConfig, space: Space, first: int, count: int | None) -> int:
    """The number of entries meant by `first` and `count`; raises `DeviceError` when they leave the space."""
    depth = SPACE_TABLE[space].entries(config)
    count = depth - first if count is None else count
    if first < 0 or count < 0 or first + count > depth:
        raise DeviceError(f"space {space.name.lower()} of configuration {config.name!r} has entries 0 to "
                          f"{depth - 1}; got {first} to {first + count - 1}")
    return count


def check_command(config: HardwareConfig, command: Command) -> None:
    """Raises `DeviceError` for a command that no device of this configuration could start."""
    entry, arguments, tag = command
    if not 0 <= entry < config.microcode:
        raise DeviceError(f"entry points of configuration {config.name!r} are 0 to {config.microcode - 1}; "
                          f"got {entry!r}")
    if len(arguments) > ARGUMENTS:
        raise DeviceError(f"a command has up to {ARGUMENTS} arguments; got {len(arguments)}")
    if not 0 <= tag < WORD or (arguments and not 0 <= min(arguments) <= max(arguments) < WORD):
        wrong = next(value for value in (*arguments, tag) if not 0 <= value < WORD)
        raise DeviceError(f"arguments and tags are 0 to {WORD - 1}; got {wrong!r}")
