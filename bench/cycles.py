"""Exact cycles of a token, for several models and devices, against the recorded baseline.

Cycles depend on the program alone, so models are given by their shape and row formats: no weights are needed, and no
device. `--record` writes the baseline, `--picture` draws how it changed from commit to commit.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from compiler.compile import compile_shape
from compiler.source import ModelShape
from hw.config import HardwareConfig, preset
from hw.image import Image
from runtime.profile import profile

__all__ = ["BASELINE", "CASES", "Case", "changes", "measure"]

BASELINE = Path(__file__).with_name("cycles.json")

SMOLLM2 = ModelShape(layers=30, hidden=576, heads=9, kv_heads=3, head_dim=64, ffn=1536, vocab=49152, context=8192,
                     rope_theta=100000.0, norm_eps=1e-5, tied_embeddings=True)
SMALL = ModelShape(layers=3, hidden=96, heads=3, kv_heads=1, head_dim=32, ffn=160, vocab=413, context=256,
                   rope_theta=10000.0, norm_eps=1e-5, tied_embeddings=False)
WIDE = ModelShape(layers=8, hidden=1024, heads=16, kv_heads=4, head_dim=64, ffn=2816, vocab=32000, context=4096,
                  rope_theta=10000.0, norm_eps=1e-5, tied_embeddings=True)

MORE_ROWS = replace(preset("w16"), name="w16 with more rows", rows=600_000)


@dataclass(frozen=True)
class Case:
    """One model on one device: the shape, the format of its layers (embedding and output are q8), positions."""

    name: str
    shape: ModelShape
    layers: str
    config: HardwareConfig
    context: int
    positions: tuple[int, ...]
    kind: str = "decode"

    def image(self) -> Image:
        """The program, without weights."""
        return compile_shape(self.shape, lambda name: self.layers if name.startswith("layers.") else "q8",
                             self.config, context=self.context, slots=1 + (self.kind == "pair"),
                             pairs=self.kind == "pair")


CASES = {c.name: c for c in (
    Case("small, mixed width, tiny", SMALL, "q4", preset("tiny"), 64, (0, 1, 31, 32, 63)),
    Case("SmolLM2-135M, 4 bits, w16", SMOLLM2, "q4", preset("w16"), 2048, (0, 1, 31, 32, 100, 1000, 2047)),
    Case("SmolLM2-135M, 8 bits, w16", SMOLLM2, "q8", preset("w16"), 2048, (0, 1, 31, 32, 100, 1000, 2047)),
    Case("SmolLM2-135M, 4 bits, pairs, w16 with more rows", SMOLLM2, "q4", MORE_ROWS, 2048, (100, 1000), "pair"),
    Case("SmolLM2-135M, 8 bits, pairs, w16 with more rows", SMOLLM2, "q8", MORE_ROWS, 2048, (100, 1000), "pair"),
    Case("wide, grouped heads, 4 bits, w16", WIDE, "q4", preset("w16"), 2048, (0, 100, 1024)),
    Case("wide, grouped heads, 8 bits, w16 with more rows", WIDE, "q8", MORE_ROWS, 2048, (0, 100, 1024)),
)}


def measure(case: Case) -> dict[str, Any]:
    """Cycles, share of the row-read bound and cycles by operator, for one step at each position."""
    image = case.image()
    out: dict[str, Any] = {}
    for position in case.positions:
        found = profile(image, case.kind, position)
        out[str(position)] = {
            "cycles": found["cycles"], "share": found["share_of_row_bound"],
            "operators": {name: o["matrix"]["steps"] + sum(o["matrix"]["stalled"].values())
                          for name, o in found["operators"].items()},
        }
    return out


def changes(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """A sentence for every position whose cycles changed, naming the operators that did."""
    for position in new:
        before, after = old.get(position), new[position]
        if before is None:
            yield f"position {position}: not in the baseline"
        elif before["cycles"] != after["cycles"]:
            names = {**before["operators"], **after["operators"]}
            moved = sorted(((after["operators"].get(n, 0) - before["operators"].get(n, 0), n) for n in names),
                           key=lambda m: -abs(m[0]))
            text = ", ".join(f"{name} {delta:+,}" for delta, name in moved[:4] if delta)
            yield (f"position {position}: {before['cycles']:,} -> {after['cycles']:,} cycles "
                   f"({after['cycles'] / before['cycles'] - 1:+.2%}): {text or 'after the last product'}")


def _history() -> list[tuple[str, dict[str, Any]]]:
    """The baseline of every commit that changed it, oldest first."""
    name = str(BASELINE.relative_to(BASELINE.parents[1]))
    log = subprocess.run(["git", "log", "--reverse", "--format=%h", "--", name], capture_output=True, text=True,
                         check=True, cwd=BASELINE.parents[1]).stdout.split()
    return [(commit, json.loads(subprocess.run(["git", "show", f"{commit}:{name}"], capture_output=True, text=True,
                                               check=True, cwd=BASELINE.parents[1]).stdout)) for commit in log]


def picture(history: list[tuple[str, dict[str, Any]]]) -> str:
    """An SVG: the share of the row-read bound of every case and position, commit by commit."""
    width, height, left = 900, 420, 60
    lines = sorted({(case, position) for _, run in history for case in run for position in run[case]})
    step = (width - left - 20) / max(1, len(history) - 1)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
           'font-size="11">', '<text x="60" y="16" font-size="14">share of the row-read bound, decode</text>']
    for percent in range(0, 101, 20):
        y = height - 30 - percent * (height - 60) / 100
        out.append(f'<line x1="{left}" y1="{y}" x2="{width - 10}" y2="{y}" stroke="#ddd"/>'
                   f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{percent} %</text>')
    for n, (case, position) in enumerate(lines):
        points = [(left + k * step, height - 30 - run[case][position]["share"] * (height - 60))
                  for k, (_, run) in enumerate(history) if position in run.get(case, {})]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        colour = f"hsl({n * 360 / len(lines):.0f},60%,45%)"
        dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in points)
        out.append(f'<g><title>{case}, position {position}</title><polyline points="{path}" fill="none" '
                   f'stroke="{colour}"/>{dots}</g>')
    out += [f'<text x="{left + k * step}" y="{height - 12}" text-anchor="middle">{commit}</text>'
            for k, (commit, _) in enumerate(history)]
    return "\n".join([*out, "</svg>", ""])


def main() -> None:
    """Measure every case, print the change, and record or draw if asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--record", action="store_true", help=f"write {BASELINE.name}")
    parser.add_argument("--picture", type=Path, help="draw the recorded history (SVG)")
    parser.add_argument("--output", type=Path, help="write the JSON here too")
    options = parser.parse_args()
    baseline = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    found = {}
    for name, case in CASES.items():
        found[name] = measure(case)
        shown = "  ".join(f"{p}: {m['cycles']:,} ({m['share']:.1%})" for p, m in found[name].items())
        print(f"{name}\n  {shown}")
        for change in changes(baseline.get(name, {}), found[name]):
            print(f"  {change}")
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    if options.record:
        BASELINE.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    if options.picture is not None:
        options.picture.parent.mkdir(parents=True, exist_ok=True)
        options.picture.write_text(picture(_history()))
        print(options.picture, file=sys.stderr)


if __name__ == "__main__":
    main()
