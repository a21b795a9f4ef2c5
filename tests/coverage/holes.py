"""Coverage by module, and what of it is missing, by signal."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tests.coverage.points import Point

__all__ = ["Hole", "Share", "by_module", "line_holes", "toggle_holes"]


@dataclass
class Share:
    """Covered and all points."""

    reached: int = 0
    total: int = 0

    def add(self, times: int) -> None:
        self.reached += times > 0
        self.total += 1

    @property
    def part(self) -> float:
        return self.reached / max(1, self.total)


@dataclass
class Hole:
    """Bits of a signal that do not toggle, both ways or one."""

    module: str
    signal: str
    bits: set[int] = field(default_factory=set)

    @property
    def ranges(self) -> str:
        """The bits as ``[31:20] [3]``."""
        found: list[list[int]] = []
        for bit in sorted(self.bits, reverse=True):
            if found and found[-1][1] == bit + 1:
                found[-1][1] = bit
            else:
                found.append([bit, bit])
        return " ".join(f"[{high}]" if high == low else f"[{high}:{low}]" for high, low in found)


def _is_line(point: Point) -> bool:
    return point.kind in ("line", "branch")


def by_module(points: Mapping[Point, int], left_out: Collection[Point]) -> dict[str, dict[str, Share]]:
    """Lines and toggles of every module, without the points left out."""
    shares: dict[str, dict[str, Share]] = defaultdict(lambda: {"line": Share(), "toggle": Share()})
    for point, times in points.items():
        if point not in left_out and (_is_line(point) or point.kind == "toggle"):
            shares[point.module]["line" if _is_line(point) else "toggle"].add(times)
    return dict(sorted(shares.items()))


def line_holes(points: Mapping[Point, int], left_out: Collection[Point]) -> list[Point]:
    """Lines and branches never reached."""
    return sorted((p for p, times in points.items() if not times and _is_line(p) and p not in left_out),
                  key=lambda p: (p.file, p.line, p.what))


def toggle_holes(points: Mapping[Point, int], left_out: Collection[Point]) -> list[Hole]:
    """Signals with bits that do not toggle, the most bits first."""
    holes: dict[tuple[str, str], Hole] = {}
    for point, times in points.items():
        if not times and point.kind == "toggle" and point not in left_out:
            module, signal, bit = point.bit
            holes.setdefault((module, signal), Hole(module, signal)).bits.add(bit)
    return sorted(holes.values(), key=lambda h: (-len(h.bits), h.module, h.signal))
