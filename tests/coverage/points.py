"""Verilator's coverage.dat: what was counted, point by point, merged over the copies of a module."""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Point", "counted", "read"]

RECORD = re.compile(r"^C '(.*)' (\d+)$")
EMPTY = re.compile(r"\s*if \(\\\$auto\$verilog_backend\S* \) begin end$")


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


def counted(points: Mapping[Point, int], sources: Mapping[str, str]) -> dict[Point, int]:
    """The points without those of no statement.

    Yosys begins every ``always @*`` with ``if (…) begin end`` on a signal that never changes, which makes a simulator
    run the block once at the start; the empty branch is never taken.
    """
    lines = {name: text.splitlines() for name, text in sources.items()}

    def empty(point: Point) -> bool:
        here = lines.get(point.file, [])
        return 0 < point.line <= len(here) and EMPTY.match(here[point.line - 1]) is not None

    return {point: times for point, times in points.items() if not empty(point)}
