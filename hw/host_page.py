"""The reference page of the host port, generated from the memory map."""

import sys
from enum import IntEnum
from pathlib import Path

from hw import memorymap
from hw.isa_page import documented, table
from hw.memorymap import FIELDS, PAGE_BYTES, REGISTER_TABLE, SPACE_TABLE, line_words, pitch

__all__ = ["host_page"]

_HEAD = f"""# The host port

This page is generated from `hw/memorymap.py` by `make docs`. What the spaces hold is in
[machine.md](machine.md).

A device has two AXI ports, an interrupt, a clock and a synchronous reset. The *control* port is AXI4-Lite
with 32-bit registers; the *window* port is AXI4 with 32-bit data, INCR and FIXED bursts, and reaches every
memory of the device. `wordline verilog` writes a top module whose ports are called `control_awaddr`,
`window_awaddr` and so on.

## To run a command

1. Write its arguments, ENTRY and TAG, then anything to DOORBELL. ROOM says how many commands still fit;
one too many
   is not taken, and sets REFUSED.
2. Wait for the interrupt, or look at COMPLETION_STATUS.
3. Acknowledge IRQ, then read COMPLETION_TAG, COMPLETION_STATUS and COMPLETION_CYCLES and drop the
completion with
   COMPLETION_POP, until no completion is valid.

Commands run one after the other, in order. A command starts only when its completion has room, so none
gets lost.

## The window

The bytes of the device's memories have one flat address: {", ".join(f"{name} ({width} bits)"
for name, width in reversed(FIELDS))}. Inside a tile's space, words lie in lines, and a line begins at a multiple of its
pitch; the words between two lines read as zero and cannot be written. The page register WINDOW times
{PAGE_BYTES} is added to every address of the port.

While a command runs, an access waits for its end; it goes before the commands that wait. SLVERR answers an
address that does not exist, a WRAP burst, a beat wider than 32 bits, a write to the words between two
lines, and a write of part of a word where single bytes cannot be written. Nothing is changed by a beat
that is answered so; the other beats of its burst are carried out.

A burst moves a word a cycle, after the cycles that the memories need for the first word of a read. The
special-function tables are written by whole lines, which takes as long as reading one.

Finish transfers of the window before you write CONTROL.RESET: those under way are answered, but what they read or wrote
is not certain.
"""

_FLAGS: tuple[tuple[type[IntEnum], str], ...] = (
    (memorymap.Status, "Bits of STATUS"), (memorymap.Control, "Bits of CONTROL"), (memorymap.Irq, "Bits of "
                                                                                                  "IRQ"),
    (memorymap.CompletionStatus, "Bits of COMPLETION_STATUS"),
)


def host_page() -> str:
    """The page as Markdown."""
    registers = [(f"{int(r):#04x}", f"`{r.name}`", info.access, info.meaning) for r, info in REGISTER_TABLE.items()]
    return "\n".join([
        _HEAD, _spaces(), table("Control registers", ("offset", "register", "access", "meaning"), registers),
        *(table(title, ("bit", "name", "meaning"), [(int(m), f"`{m.name}`", text) for m, text in documented(kind)])
          for kind, title in _FLAGS),
    ])


def _spaces() -> str:
    rows = []
    for space, info in SPACE_TABLE.items():
        even, odd = line_words(space)
        words = even if even == odd else f"{even}, {odd}"
        rows.append((int(space), f"`{space.name}`", info.depth, "every tile" if info.per_tile else "core", words,
                     pitch(space), "bytes" if info.bytewise else "words"))
    return table("Spaces", ("space", "name", "entries", "where", "words of a line", "pitch", "written "
                                                                                             "by"), rows,
                 "An entry is a line, except that an operand block takes two.")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(host_page(), encoding="utf-8")
