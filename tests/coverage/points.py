"""Verilator's coverage.dat: what was counted, point by point, merged over the copies of a module."""

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Point", "read"]

RECORD = re.compile(r"^C '(.*)' (\d+)$")


@dataclass(frozen=True)
class Point:
    """A place that can be covered.

    Parameters
    ----------
    kind : str
        ``line``, ``branch``, ``expr``, ``toggle`` or ``user``.
    file, line, column : str, int, int
        Where in the emitted Verilog.
    what : str
        The branch, or the bit and its direction.
    """

    kind: str
    file: str
    line: int
    column: int
    what: str


def read(path: Path) -> dict[Point, int]:
    """Counts of all points of a file, added over the instances of a module."""
    counts: dict[Point, int] = defaultdict(int)
    for text in path.read_text(errors="replace").splitlines():
        if (match := RECORD.match(text)) is None:
            continue
        # Keys and values alternate, each behind a control character.
        fields = dict(re.findall(r"\x01([^\x02]*)\x02([^\x01]*)", match[1]))
        kind = fields.get("page", "/").split("/")[0].removeprefix("v_")
        point = Point(kind, Path(fields.get("f", "")).name, int(fields.get("l", 0)), int(fields.get("n", 0)),
                      fields.get("o", ""))
        counts[point] += int(match[2])
    return dict(counts)
