"""Draws what lies where in a device's memories: one SVG with a bar for rows, scratch, scalars and the pools."""

from collections.abc import Iterable
from html import escape
from typing import Any

from hw.image import Image

__all__ = ["memory_map"]

WIDTH, BAR, GAP, LABEL = 1000, 36, 74, 150
COLOURS = {"cache": "#e07a5f", "weights": "#3d5a80", "norm": "#81b29a", "table": "#f2cc8f", "buffer": "#9a8c98"}
Region = tuple[str, int, int]


def _kind(name: str) -> str:
    part = name.rsplit(".", 1)[-1]
    if part == "cache" or name == "value_scales":
        return "cache"
    if part in ("q", "k", "v", "o", "gate", "up", "down", "token_embedding", "output"):
        return "weights"
    if part.endswith("norm") or part.startswith("norm"):
        return "norm"
    return "table" if "rotary" in name or part == "score_scale" else "buffer"


def _bar(y: int, title: str, regions: Iterable[Region], capacity: int) -> list[str]:
    """One memory: its regions to scale, what is free in white."""
    scale = WIDTH / capacity
    used = 0
    out = [f'<text x="{LABEL - 8}" y="{y + BAR / 2 + 5}" text-anchor="end">{escape(title)}</text>',
           f'<rect x="{LABEL}" y="{y}" width="{WIDTH}" height="{BAR}" fill="white" stroke="#444"/>']
    for name, base, size in regions:
        used = max(used, base + size)
        out.append(f'<rect x="{LABEL + base * scale:.2f}" y="{y}" width="{max(size * scale, 0.3):.2f}" height="{BAR}" '
                   f'fill="{COLOURS[_kind(name)]}" stroke="white" stroke-width="0.15">'
                   f"<title>{escape(name)}: {base:,} to {base + size:,} ({size:,})</title></rect>")
    out.append(f'<text x="{LABEL}" y="{y + BAR + 16}" fill="#444">{used:,} of {capacity:,} used '
               f"({used / capacity:.1%})</text>")
    return out


def memory_map(image: Image) -> str:
    """An SVG of the memories of one tile; every region shows its name and addresses when pointed at."""
    report: dict[str, Any] = image.report
    config = image.config
    bars = [("array rows", report["regions"]["rows"], config.rows),
            ("scratch words", report["regions"]["words"], config.scratch),
            ("scalars", report["regions"]["scalars"], 64)]
    bars += [(f"{name} (most at once)", [("pool", 0, used)], size) for name, (used, size) in report["pools"].items()]
    height = 40 + GAP * len(bars) + 30
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABEL + WIDTH + 20}" height="{height}" '
             'font-family="sans-serif" font-size="13">',
             f'<text x="{LABEL}" y="20" font-size="16">{escape(str(image.model.get("name", "model")))} on '
             f"{escape(config.name)}: one of {config.tiles} tiles</text>"]
    for n, (title, regions, capacity) in enumerate(bars):
        parts += _bar(40 + n * GAP, title, [(name, base, size) for name, base, size in regions], capacity)
    for n, (kind, colour) in enumerate(COLOURS.items()):
        x = LABEL + 130 * n
        parts.append(f'<rect x="{x}" y="{height - 22}" width="14" height="14" fill="{colour}"/>'
                     f'<text x="{x + 20}" y="{height - 10}">{kind}</text>')
    return "\n".join([*parts, "</svg>", ""])
