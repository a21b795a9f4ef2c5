"""Coverage as one HTML page: bars, the matrix of instructions and states, and the uncovered lines with their text."""

from collections.abc import Mapping
from html import escape

from hw.config import HardwareConfig
from tests.coverage.functional import FORMS, STATES, impossible
from tests.coverage.points import Point

__all__ = ["page"]

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; color: #1c2430; }
table { border-collapse: collapse; } td, th { padding: .15rem .6rem; text-align: right; font-weight: normal; }
th:first-child, td:first-child { text-align: left; } .none { background: #f3b5a8; } .off { background: #e9ecf0; }
.bar { background: #e9ecf0; width: 20rem; height: .8rem; } .bar div { background: #3d7dca; height: 100%; }
pre { margin: 0; font-size: 13px; }
"""


def page(config: HardwareConfig, programs: int, kinds: Mapping[str, list[int]], pairs: Mapping[tuple[str, str], int],
         points: Mapping[Point, int], sources: Mapping[str, str]) -> str:
    """The page's text. `kinds` holds covered and all points of every kind, `sources` the Verilog the points lie in."""
    bars = "".join(
        f"<tr><td>{kind}<td>{reached} of {total}<td>{reached / max(1, total):.1%}"
        f'<td><div class="bar"><div style="width:{100 * reached / max(1, total):.1f}%"></div></div>'
        for kind, (reached, total) in sorted(kinds.items()))
    head = "".join(f"<th>{state}" for state in STATES)
    most = max(pairs.values(), default=1)
    rows = "".join(f"<tr><td>{form}" + "".join(_cell(form, state, pairs, most) for state in STATES) for form in FORMS)
    holes = "".join(_hole(point, sources) for point in sorted(
        (p for p, n in points.items() if not n and p.kind in ("line", "branch")), key=lambda p: (p.file, p.line)))
    return (f"<!doctype html><meta charset=utf-8><title>Coverage</title><style>{STYLE}</style>"
            f"<h1>Coverage of the core</h1><p>{programs} random programs on {config.tiles} tile(s), configuration "
            f"{config.fingerprint}; each equal to the functional model.<table>{bars}</table>"
            f"<h2>Instruction and what it waited for</h2><table><tr><th>{head}{rows}</table>"
            f"<h2>Lines never reached</h2><table>{holes}</table>")


def _cell(form: str, state: str, pairs: Mapping[tuple[str, str], int], most: int) -> str:
    if impossible(form, state):
        return '<td class="off">'
    times = pairs.get((form, state), 0)
    if not times:
        return '<td class="none">0'
    strength = 0.12 + 0.6 * (times / most) ** 0.4
    return f'<td style="background:rgba(61,125,202,{strength:.2f})">{times}'


def _hole(point: Point, sources: Mapping[str, str]) -> str:
    lines = sources.get(point.file, "").splitlines()
    text = lines[point.line - 1].strip() if 0 < point.line <= len(lines) else ""
    return (f"<tr><td>{point.file}:{point.line}<td>{escape(point.what)}<td style='text-align:left'>"
            f"<pre>{escape(text)}</pre>")
