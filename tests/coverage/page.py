"""Coverage as one HTML page: bars, modules, the matrix of instructions and states, what is missing and why."""

from collections.abc import Mapping, Sequence
from html import escape

from hw.config import HardwareConfig
from tests.coverage.functional import FORMS, STATES, impossible
from tests.coverage.holes import Hole, Share
from tests.coverage.measure import Measured
from tests.coverage.points import Point
from tests.coverage.reasons import reason

__all__ = ["page"]

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; color: #1c2430; }
table { border-collapse: collapse; } td, th { padding: .15rem .6rem; text-align: right; font-weight: normal; }
th:first-child, td:first-child, .left { text-align: left; } .none { background: #f3b5a8; } .off { background: #e9ecf0; }
.bar { background: #e9ecf0; width: 12rem; height: .8rem; } .bar div { background: #3d7dca; height: 100%; }
pre { margin: 0; font-size: 13px; }
"""


def page(config: HardwareConfig, found: Measured, kinds: Mapping[str, Sequence[int]],
         modules: Mapping[str, Mapping[str, Share]], lines: Sequence[Point], signals: Sequence[Hole]) -> str:
    """The page's text. `kinds` holds covered and all points of every kind, the rest is what `found` comes to."""
    bars = "".join(f"<tr><td>{kind}{_bar(*share)}" for kind, share in kinds.items())
    by_module = "".join(
        f"<tr><td>{escape(name)}" + "".join(_bar(s.reached, s.total) for s in (shares["line"], shares["toggle"]))
        for name, shares in modules.items())
    head = "".join(f"<th>{state}" for state in STATES)
    most = max(found.pairs.values(), default=1)
    rows = "".join(f"<tr><td>{form}" + "".join(_cell(form, state, found.pairs, most) for state in STATES)
                   for form in FORMS)
    line_rows = "".join(_line(point, found.verilog) for point in lines)
    signal_rows = "".join(
        f"<tr><td>{escape(h.module)}<td class=left>{escape(h.signal)} {h.ranges}<td>{len(h.bits)}"
        f"<td class=left>{escape(reason(h.module, h.signal))}" for h in signals)
    return (f"<!doctype html><meta charset=utf-8><title>Coverage</title><style>{STYLE}</style>"
            f"<h1>Coverage of {escape(config.name)}</h1><p>{found.cycles} cycles of random programs, commands and "
            f"transfers on configuration {config.fingerprint}, all as the models say. <i>All</i> counts "
            f"{len(found.empty)} points of empty statements that Yosys writes and {len(found.constant)} of bits that "
            f"it proves constant; the other figures leave them out.<table>{bars}</table>"
            f"<h2>Modules: lines, toggles</h2><table>{by_module}</table>"
            f"<h2>Instruction and what it waited for</h2><table><tr><th>{head}{rows}</table>"
            f"<h2>Lines never reached</h2><table>{line_rows}</table>"
            f"<h2>Bits that do not toggle, or one way only</h2><table>{signal_rows}</table>")


def _bar(reached: int, total: int) -> str:
    part = reached / max(1, total)
    return (f'<td>{reached} of {total}<td>{part:.1%}<td><div class="bar"><div style="width:{100 * part:.1f}%"></div>'
            "</div>")


def _cell(form: str, state: str, pairs: Mapping[tuple[str, str], int], most: int) -> str:
    if impossible(form, state):
        return '<td class="off">'
    times = pairs.get((form, state), 0)
    if not times:
        return '<td class="none">0'
    strength = 0.12 + 0.6 * (times / most) ** 0.4
    return f'<td style="background:rgba(61,125,202,{strength:.2f})">{times}'


def _line(point: Point, sources: Mapping[str, str]) -> str:
    lines = sources.get(point.file, "").splitlines()
    text = lines[point.line - 1].strip() if 0 < point.line <= len(lines) else ""
    return (f"<tr><td>{escape(point.module)}<td>{point.file}:{point.line}<td>{escape(point.what)}<td class=left>"
            f"<pre>{escape(text)}</pre>")
