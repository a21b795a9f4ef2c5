"""Verilator's coverage.dat: what was counted, point by point, merged over the copies of a module."""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Point", "empty_statements", "read"]

RECORD = re.compile(r"^C '(.*)' (\d+)$")
EMPTY = re.compile(r"\s*if \(\\\$auto\$verilog_backend\S* \) begin end$")
TOGGLE = re.compile(r"^(.*?)(?:\[(\d+)\])?:[01]->[01]$")
MANGLED = re.compile(r"__0([0-9A-Fa-f]{2})")


@dataclass(frozen=True)
class Point:
    """A place that can be covered.

    Parameters
    ----------
    kind : str
        ``line``, ``branch``, ``expr``, ``toggle`` or ``user``.
    module, file : str
        Where it is.
    line, column : int
        In the emitted Verilog.
    what : str
        The branch, or the bit and its direction.
    """

    kind: str
    module: str
    file: str
    line: int
    column: int
    what: str

    @property
    def bit(self) -> tuple[str, str, int]:
        """Of a toggle: module, signal, number of the bit."""
        found = TOGGLE.match(self.what)
        assert self.kind == "toggle" and found, f"{self} must be the toggle of a bit"
        return self.module, _name(found[1]), int(found[2] or 0)


def read(path: Path) -> dict[Point, int]:
    """Counts of all points of a file, added over the instances of a module."""
    counts: dict[Point, int] = defaultdict(int)
    for text in path.read_text(errors="replace").splitlines():
        if (match := RECORD.match(text)) is None:
            continue
        # Keys and values alternate, each behind a control character.
        fields = dict(re.findall(r"\x01([^\x02]*)\x02([^\x01]*)", match[1]))
        kind, _, module = fields.get("page", "/").partition("/")
        point = Point(kind.removeprefix("v_"), _name(module), Path(fields.get("f", "")).name, int(fields.get("l", 0)),
                      int(fields.get("n", 0)), fields.get("o", ""))
        counts[point] += int(match[2])
    return dict(counts)


def _name(mangled: str) -> str:
    """A name as Verilog has it; Verilator writes other characters than letters as numbers."""
    return MANGLED.sub(lambda m: chr(int(m[1], 16)), mangled)


def empty_statements(points: Mapping[Point, int], sources: Mapping[str, str]) -> set[Point]:
    """The lines of no statement.

    Yosys begins every ``always @*`` with ``if (…) begin end`` on a signal that never changes, which makes a simulator
    run the block once at the start; the empty branch is never taken, and the signal never toggles.
    """
    lines = {name: text.splitlines() for name, text in sources.items()}

    def empty(point: Point) -> bool:
        here = lines.get(point.file, [])
        text = here[point.line - 1] if 0 < point.line <= len(here) else ""
        return EMPTY.match(text) is not None or (point.kind == "toggle" and "$auto$verilog_backend" in text)

    return {point for point in points if empty(point)}
