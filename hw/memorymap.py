"""Everything the host can address: the memory spaces, the AXI window onto them, and the control registers.

Host port, harness, transports and tests take every address and bit from here. Meanings of the spaces are in
docs/machine.md, "State" and "Host access".

The window is one flat byte address of `WINDOW_BITS` bits::

    | space (4) | tile (5) | offset (30) |

Inside a tile's space, words lie in lines. A *line* is what the core reads and writes in one access; lines
begin at multiples of `pitch(space)` words, a power of two, so a line may be followed by padding, which
reads as zero and cannot be written. The address of the window port is `AXI_BITS` wide; the page register
WINDOW times `PAGE_BYTES` is added to it, so that a host with a narrow address bus reaches everything too.
"""

from dataclasses import dataclass
from enum import IntEnum

from hw.config import LINE_WORDS, REGISTERS, SCALARS, HardwareConfig
from hw.errors import WordlineError
from hw.isa import FUNCTIONS, TABLE_ENTRIES

__all__ = [
    "ARGUMENTS", "AXI_BITS", "CONTROL_BITS", "CompletionStatus", "Control", "ENGINE_FIELDS", "FIELDS", "ID", "Irq",
    "MemoryMapError", "OPERAND_WORDS", "PAGE_BYTES", "REGISTER_TABLE", "Register",
    "RegisterInfo", "SPACE_TABLE", "Space", "SpaceInfo", "Status", "VERSION", "WINDOW_BITS", "line_words",
    "lines", "pitch", "window_address",
]

ARGUMENTS = 8
"""Arguments of a command: registers 1 to 8."""

OPERAND_WORDS = 17
"""Words of an operand block as the host sees it; on the port it takes two lines."""

FIELDS = (("offset", 30), ("tile", 5), ("space", 4))
"""(name, width) of the parts of a window address, least significant first."""

WINDOW_BITS = sum(width for _, width in FIELDS)

AXI_BITS = 40
"""Width of the window port's address."""

CONTROL_BITS = 8
"""Width of the control port's address."""

PAGE_BYTES = 4096
"""Unit of the WINDOW register. AXI bursts never cross it."""


class MemoryMapError(WordlineError):
    """An access to an address that does not exist."""


class Space(IntEnum):
    """What the host can read and write."""

    ARRAY = 0
    SCRATCH = 1
    ACCUMULATORS = 2
    ROW_BUFFER = 3
    OPERANDS = 4
    SCALARS = 5
    REGISTERS = 6
    MICROCODE = 7
    TABLES = 8
    FUNCTIONS = 9


@dataclass(frozen=True)
class SpaceInfo:
    """One space: words of an entry, whether every tile has its own, whether single bytes can be written.

    `depth` is a number of entries or the name of the `HardwareConfig` field that holds it. `whole` says
    that the core only writes all words of an entry at once; the window reads the others first.
    """

    space: Space
    depth: int | str
    words: int
    per_tile: bool = False
    bytewise: bool = False
    whole: bool = False

    def entries(self, config: HardwareConfig) -> int:
        """Entries of the space in a device of this configuration (of one tile when `per_tile`)."""
        return self.depth if isinstance(self.depth, int) else int(getattr(config, self.depth))

    def shape(self, config: HardwareConfig) -> tuple[int, ...]:
        """Shape of the whole space as a uint32 array, entries first, tiles last."""
        inner = () if self.words == 1 else (self.words,)
        return (self.entries(config), *inner, *((config.tiles,) if self.per_tile else ()))


SPACE_TABLE: dict[Space, SpaceInfo] = {
    info.space: info
    for info in (
        SpaceInfo(Space.ARRAY, "rows", LINE_WORDS, per_tile=True, bytewise=True),
        SpaceInfo(Space.SCRATCH, "scratch", 1, per_tile=True),
        SpaceInfo(Space.ACCUMULATORS, "accumulators", 1, per_tile=True),
        SpaceInfo(Space.ROW_BUFFER, "row_buffer", LINE_WORDS, per_tile=True),
        SpaceInfo(Space.OPERANDS, "operands", OPERAND_WORDS),
        SpaceInfo(Space.SCALARS, SCALARS, 1),
        SpaceInfo(Space.REGISTERS, REGISTERS, 1),
        SpaceInfo(Space.MICROCODE, "microcode", LINE_WORDS),
        SpaceInfo(Space.TABLES, TABLE_ENTRIES, 3, whole=True),
        SpaceInfo(Space.FUNCTIONS, FUNCTIONS, 4),
    )
}


def lines(space: Space, config: HardwareConfig) -> int:
    """Lines of a space on the core's host port (of one tile when it is per tile)."""
    info = SPACE_TABLE[space]
    return info.entries(config) * (2 if space == Space.OPERANDS else 1)


def line_words(space: Space) -> tuple[int, int]:
    """Words of the even and of the odd lines of a space; they differ for operand blocks, which take two."""
    words = SPACE_TABLE[space].words
    return (LINE_WORDS, words - LINE_WORDS) if space == Space.OPERANDS else (words, words)


def pitch(space: Space) -> int:
    """Words from one line of a space to the next in the window."""
    return 1 << (line_words(space)[0] - 1).bit_length()


def window_address(space: Space, config: HardwareConfig, line: int, word: int = 0, tile: int = 0) -> int:
    """Byte address of a word in the window; raises `MemoryMapError` when it does not exist."""
    space = Space(space)
    bounds = (("line", line, lines(space, config)), ("word", word, line_words(space)[line & 1]),
              ("tile", tile, config.tiles if SPACE_TABLE[space].per_tile else 1))
    for name, value, count in bounds:
        if not 0 <= value < count:
            raise MemoryMapError(f"{name} {value!r} of space {space.name.lower()} does not exist; "
                                 f"configuration {config.name!r} has 0 to {count - 1}")
    parts = {"offset": 4 * (line * pitch(space) + word), "tile": tile, "space": int(space)}
    address, offset = 0, 0
    for name, width in FIELDS:
        address |= parts[name] << offset
        offset += width
    return address


ENGINE_FIELDS = (("waiting", 7), ("active", 1), ("tokens", 8))
"""(name, width) of what ENGINES says of the matrix engine in its low half and of the vector engine in its high half:
instructions in the engine's queue, whether it is at a step, tokens that it may take."""

ID = 0x4E494C57
"""Content of the ID register: "WLIN" in memory order."""

VERSION = 2
"""Content of the VERSION register; counts changes of this file that a host can notice."""


class Register(IntEnum):
    """Byte offsets of the control registers; all are 32 bits wide."""

    ID = 0x00
    VERSION = 0x04
    FINGERPRINT_LOW = 0x08
    FINGERPRINT_HIGH = 0x0C
    STATUS = 0x10
    CONTROL = 0x14
    IRQ = 0x18
    WINDOW = 0x1C
    ENTRY = 0x20
    TAG = 0x24
    ROOM = 0x28
    DOORBELL = 0x2C
    COMPLETIONS = 0x30
    COMPLETION_TAG = 0x34
    COMPLETION_STATUS = 0x38
    COMPLETION_CYCLES = 0x3C
    COMPLETION_POP = 0x40
    POSITION = 0x44
    ENGINES = 0x48
    ARGUMENT = 0x60
    """Argument 0; the others follow at 4-byte steps, `ARGUMENTS` of them."""


class Status(IntEnum):
    """Bit numbers of STATUS."""

    BUSY = 0
    """A command runs."""
    PENDING = 1
    """Commands wait in the queue."""
    NONFINITE = 2
    """Sticky: a command met a word that was not finite. Cleared by writing one."""
    REFUSED = 3
    """Sticky: a doorbell rang while the command queue was full and was ignored. Cleared by writing one."""


class Control(IntEnum):
    """Bit numbers of CONTROL."""

    RESET = 0
    """Writing one stops the running command, empties both queues and clears all flags. Reads as zero."""
    IRQ_ENABLE = 1
    """Drive the interrupt output from the IRQ register."""


class Irq(IntEnum):
    """Bit numbers of IRQ."""

    COMPLETION = 0
    """Set when a completion is queued; cleared by writing one."""


class CompletionStatus(IntEnum):
    """Bit numbers of COMPLETION_STATUS."""

    VALID = 0
    """There is a completion; TAG, STATUS and CYCLES belong to it."""
    NONFINITE = 1
    """Its command met a word that was not finite."""


@dataclass(frozen=True)
class RegisterInfo:
    """One register: how it may be accessed (``r``, ``w``, ``rw``) and what it means."""

    register: Register
    access: str
    meaning: str


REGISTER_TABLE: dict[Register, RegisterInfo] = {
    info.register: info
    for info in (
        RegisterInfo(Register.ID, "r", "the constant `ID`"),
        RegisterInfo(Register.VERSION, "r", "the constant `VERSION`"),
        RegisterInfo(Register.FINGERPRINT_LOW, "r", "configuration fingerprint, bits 31 to 0"),
        RegisterInfo(Register.FINGERPRINT_HIGH, "r", "configuration fingerprint, bits 63 to 32"),
        RegisterInfo(Register.STATUS, "rw", "flags (`Status`); writing one clears a sticky flag"),
        RegisterInfo(Register.CONTROL, "rw", "switches (`Control`)"),
        RegisterInfo(Register.IRQ, "rw", "interrupt causes (`Irq`); writing one clears"),
        RegisterInfo(Register.WINDOW, "rw", "page that is added to addresses of the window port"),
        RegisterInfo(Register.ENTRY, "rw", "command being written: entry point; one beyond the microcode "
                                           "is refused"),
        RegisterInfo(Register.TAG, "rw", "command being written: a number that its completion returns"),
        RegisterInfo(Register.ROOM, "r", "free entries of the command queue"),
        RegisterInfo(Register.DOORBELL, "w", "any value queues the command being written"),
        RegisterInfo(Register.COMPLETIONS, "r", "completions that wait"),
        RegisterInfo(Register.COMPLETION_TAG, "r", "oldest completion: tag of its command"),
        RegisterInfo(Register.COMPLETION_STATUS, "r", "oldest completion: flags (`CompletionStatus`)"),
        RegisterInfo(Register.COMPLETION_CYCLES, "r", "oldest completion: cycles from start to end"),
        RegisterInfo(Register.COMPLETION_POP, "w", "any value drops the oldest completion"),
        RegisterInfo(Register.POSITION, "r", "microcode address that the sequencer is at, to look at when it hangs"),
        RegisterInfo(Register.ENGINES, "r", "both engines' queues and tokens (`ENGINE_FIELDS`), likewise"),
        RegisterInfo(Register.ARGUMENT, "rw", "command being written: argument n at offset + 4 n"),
    )
}
