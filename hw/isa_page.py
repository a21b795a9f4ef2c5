"""The instruction set reference page, generated from the instruction table."""

import inspect
import re
from collections.abc import Iterable
from enum import IntEnum

from hw import isa
from hw.config import LINE_WORDS

__all__ = ["documented", "isa_page", "table"]

_HEAD = f"""# The instruction set

This page is generated from `hw/isa.py` by `make docs`. State, order of execution and time are in
[machine.md](machine.md).

A microcode word has {32 * LINE_WORDS} bits ({LINE_WORDS} words of 32 bits, least significant first).
Bits 0 to 3 are the opcode. A field whose name ends in `_reg` names an integer register that is added to the
field before it (register 0 is always zero) unless its meaning says otherwise.
"""

_ENUMS: tuple[tuple[type[IntEnum], str], ...] = (
    (isa.Alu, "Integer operations (`fn` of ALU)"),
    (isa.RowFormat, "Row formats (`format`, `row_format`)"),
    (isa.A, "First factor (`a`)"),
    (isa.B, "Second factor (`b`)"),
    (isa.C, "Addend (`c`)"),
    (isa.D, "Second multiplier's factor (`d`)"),
    (isa.Reduce, "Reductions (`reduce`)"),
    (isa.FunctionKind, "Kinds of special functions"),
)


def isa_page() -> str:
    """The page as Markdown."""
    parts = [_HEAD, _opcodes()]
    parts += [_fields(form) for form in (isa.CONTROL, isa.MATRIX, isa.VECTOR)]
    parts += [_members(kind, title) for kind, title in _ENUMS]
    parts.append(_descriptor())
    return "\n".join(parts)


def table(title: str, columns: Iterable[str], rows: Iterable[Iterable[object]], note: str = "") -> str:
    """A chapter that is one table, in Markdown."""
    columns = list(columns)
    lines = [f"## {title}", "", *([note, ""] if note else []),
             f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    lines += [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _bits(offset: int, width: int) -> str:
    return str(offset) if width == 1 else f"{offset + width - 1}:{offset}"


def _opcodes() -> str:
    rows = [(int(op), f"`{op.name}`", isa.format_of(op).name, text) for op, text in documented(isa.Opcode)]
    return table("Instructions", ("opcode", "name", "format", "what it does"), rows)


def _fields(form: isa.Format) -> str:
    rows = [(_bits(f.offset, f.width), f"`{f.name}`", f.width, "signed" if f.signed else "", f.meaning)
            for f in form.fields]
    return table(f"Fields of the {form.name} format", ("bits", "field", "width", "", "meaning"), rows)


def _members(kind: type[IntEnum], title: str) -> str:
    rows = [(int(member), f"`{member.name}`", text) for member, text in documented(kind)]
    return table(title, ("value", "name", "meaning"), rows)


def _descriptor() -> str:
    rows, offset = [], 0
    for name, width, signed in isa.FUNCTION_FIELDS:
        if width == 32:  # a word of its own
            offset = -(-offset // 32) * 32
        rows.append((offset // 32, _bits(offset % 32, width), f"`{name}`", width, "signed" if signed else ""))
        offset += width
    return table("Function descriptors", ("word", "bits", "field", "width", ""), rows,
                  f"{isa.FUNCTIONS} functions share {isa.TABLE_ENTRIES} coefficient triples. "
                  "`segments` is a log2.")


def documented(kind: type[IntEnum]) -> list[tuple[IntEnum, str]]:
    """Members with the string that follows each in the source, which Python itself does not keep."""
    source = inspect.getsource(kind)
    out = []
    for member in kind:
        found = re.search(rf'^    {member.name} = \d+\n    """(.*?)"""', source, re.MULTILINE | re.DOTALL)
        out.append((member, " ".join(found[1].split()) if found else ""))
    return out
