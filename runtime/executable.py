"""Executables: the program of an image in a device, with its entry points and the memories that it works in."""

import numpy as np

from hw.image import Entry, Image
from hw.isa import decode
from hw.memorymap import SPACE_TABLE, Space
from runtime.buffer import Buffer, Memory
from runtime.transport import DeviceError

__all__ = ["Executable", "check_slots"]

_LOADED: tuple[tuple[Space, str], ...] = (
    (Space.MICROCODE, "microcode"), (Space.TABLES, "tables"), (Space.FUNCTIONS, "functions"),
    (Space.SCALARS, "scalars"),
)
"""What the program consists of: its space, and the image's tensor for it. No program changes these entries."""

_WORKING = (Space.SCRATCH, Space.ACCUMULATORS, Space.ROW_BUFFER, Space.OPERANDS, Space.SCALARS)
"""Where a program puts temporary values; its pools go round, so they are its own as a whole."""


class Executable:
    """An image's program in a device. Its addresses are absolute, so a device holds one at a time.

    Parameters
    ----------
    memory : Memory
        Of the device.
    image : Image
        The program; raises `DeviceError` when it was compiled for another configuration.
    uri : str
        What the device is called.
    """

    def __init__(self, memory: Memory, image: Image, uri: str) -> None:
        check_fingerprint(memory, image, uri)
        self.image = image
        self.memory = memory
        self.buffers: list[Buffer] = []
        self.alive = True
        owner = f"program of {image.model.get('name', 'the model')}"
        try:
            for space, name in _LOADED:
                if space not in _WORKING and len(getattr(image, name)):
                    self.buffers.append(memory.reserve(space, 0, len(getattr(image, name)), owner))
            for space in _WORKING:
                self.buffers.append(memory.reserve(space, 0, SPACE_TABLE[space].entries(memory.config), owner))
            for space, name in _LOADED:
                write(memory, space, getattr(image, name))
        except BaseException:
            self.release()
            raise

    def __repr__(self) -> str:
        return f"<Executable with the entry points {', '.join(self.image.entries)}>"

    def entry(self, name: str | Entry) -> Entry:
        """An entry point by its name; raises `DeviceError` that lists them."""
        if isinstance(name, Entry):
            return name
        try:
            return self.image.entries[name]
        except KeyError:
            raise DeviceError(f"entry point {name!r} does not exist; this image has "
                              f"{', '.join(self.image.entries)}") from None

    def place(self, address: int) -> str:
        """What a microcode address does, for people: the model's operator and the instruction."""
        operator = next((f"operator {name!r}" for first, last, name in self.image.operators if first <= address < last),
                        "outside any operator")
        words = self.image.microcode[address:address + 1]
        return f"microcode {address}, {operator}" + (f": {decode(words)[0]}" if len(words) else "")

    def entered(self, address: int) -> str:
        """The name of the entry point that begins at a microcode address."""
        return next((name for name, entry in self.image.entries.items() if entry.address == address), "no entry point")

    def restore(self) -> None:
        """Write again what a reset leaves undefined."""
        self.check()
        write(self.memory, Space.SCALARS, self.image.scalars)

    def prove(self) -> None:
        """Read the program back; raises `DeviceError` at the first word that is not the image's."""
        self.check()
        for space, name in _LOADED:
            same(self.memory, space, getattr(self.image, name))

    def check(self) -> None:
        """Raises `DeviceError` when it is no longer in the device."""
        if not self.alive:
            raise DeviceError("this executable is no longer in its device: load it again")

    def release(self) -> None:
        """Give its memories back."""
        self.alive = False
        for buffer in self.buffers:
            if buffer.alive:
                buffer.free()


def check_slots(names: tuple[str, ...], values: tuple[int, ...]) -> None:
    """Raises `DeviceError` when both sequences of a command for two are given the same slot."""
    if "slot2" in names and "slot" in names:
        slot = values[names.index("slot")]
        if slot == values[names.index("slot2")]:
            raise DeviceError(f"the two sequences of a command must have different slots; both got slot {slot}: give "
                              "each its own, or run them one after the other")


def check_fingerprint(memory: Memory, image: Image, uri: str) -> None:
    """Raises `DeviceError` for an image of another configuration than the device's."""
    config = memory.config
    if image.config.fingerprint != config.fingerprint:
        raise DeviceError(
            f"an image for configuration {config.name!r} ({config.fingerprint}) was wanted by device {uri!r}; this one "
            f"is for {image.config.name!r} ({image.config.fingerprint}): compile it with --config {config.name}, or "
            f"open a device of configuration {image.config.name!r}")


def write(memory: Memory, space: Space, values: np.ndarray) -> None:
    """Write the first entries of a space."""
    memory.dispatcher.write(space, 0, np.ascontiguousarray(values, np.uint32))


def same(memory: Memory, space: Space, wanted: np.ndarray, first: int = 0) -> None:
    """Read entries back; raises `DeviceError` at the first word that is not as wanted."""
    found = memory.dispatcher.read(space, first, len(wanted))
    different = np.argwhere(wanted != found)
    if len(different):
        at = tuple(int(n) for n in different[0])
        place = (first + at[0], *at[1:])
        raise DeviceError(f"space {space.name.lower()} must hold the image; {len(different)} words differ, the first "
                          f"at {place}: {int(wanted[at]):#010x} was written, {int(found[at]):#010x} read: load again")
