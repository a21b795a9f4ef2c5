"""The commands that look into a compiled image: inspect, disasm, profile."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from hw.errors import WordlineError
from hw.image import Image, load
from hw.isa import Opcode, decode
from runtime.cli import ImageArgument, JsonOption, emit, out, table
from runtime.memory_map import memory_map
from runtime.profile import profile as cycles_by_operator

__all__ = ["COMMANDS", "describe", "listing", "show"]


def describe(image: Image) -> dict[str, Any]:
    """What an image is and holds."""
    c = image.config
    return {
        "model": image.model,
        "configuration": {**c.to_json(), "fingerprint": c.fingerprint},
        "used": {"rows": image.report["rows"], "scratch": image.report["scratch"],
                 "microcode": len(image.microcode)},
        "entries": {name: {"address": e.address, "arguments": list(e.arguments), "context": e.context}
                    for name, e in image.entries.items()},
        "kv": {"slots": image.kv.slots, "context": image.kv.context},
        "operators": len(image.operators), "vocabulary": image.logits[1],
        "chat_template": bool(image.text.get("chat_template")), "report": image.report,
    }


def show(facts: dict[str, Any]) -> None:
    """Print what `describe` gives."""
    c = facts["configuration"]
    model = ", ".join(f"{k} {v}" for k, v in facts["model"].items() if not isinstance(v, dict | list))
    out.print(f"model: {model}", markup=False)
    out.print(f"configuration: {c['name']} ({c['fingerprint']}), {c['tiles']} tiles", markup=False)
    kv = facts["kv"]
    out.print(f"KV cache: {kv['slots']} x {kv['context']} tokens; vocabulary {facts['vocabulary']}; "
              f"chat template: {'yes' if facts['chat_template'] else 'no'}", markup=False)
    shown = table("", "memory", "used", "of", "share")
    for name, used in facts["used"].items():
        shown.add_row(name, f"{used:,}", f"{c[name]:,}", f"{used / c[name]:.1%}")
    out.print(shown)
    entries = table("", "entry", "address", "context", "arguments")
    for name, e in facts["entries"].items():
        entries.add_row(name, str(e["address"]), f"{e['context']:,}", ", ".join(e["arguments"]))
    out.print(entries)
    planned = facts["report"].get("planning", {})
    if planned:
        shares = ", ".join(f"{name} {alive:,} of {taken:,} ({alive / taken:.1%})"
                           for name, (alive, taken) in planned.items())
        out.print(f"alive at once, of what is taken or there: {shares}", markup=False)
    for name, value in facts["report"].items():
        if name not in (*facts["used"], "instructions") and not isinstance(value, dict | list):
            shown_value = f"{value:,}" if isinstance(value, int | float) else str(value)
            out.print(f"{name}: {shown_value}", markup=False)


def inspect(
    image: ImageArgument,
    picture: Annotated[Path | None, typer.Option("--map", help="Write a picture of the memories (SVG).")] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what an image is, what it fills and what the compiler reported."""
    loaded = load(image)
    if picture is not None:
        picture.write_text(memory_map(loaded), encoding="utf-8")
    emit(describe(loaded), as_json, show)


def listing(image: Image, entry: str | None = None) -> Iterator[str]:
    """Lines of the microcode with entry points, operators and loops; only of one entry if it is named."""
    program = decode(image.microcode)
    first, last = 0, len(program)
    if entry is not None:
        if entry not in image.entries:
            raise WordlineError(f"entry point {entry!r} does not exist; "
                                f"this image has {', '.join(image.entries)}")
        first = image.entries[entry].address
        last = next((n + 1 for n in range(first, last) if program[n].opcode == Opcode.HALT), last)
    labels: dict[int, list[str]] = {}
    for name, e in image.entries.items():
        labels.setdefault(e.address, []).append(name)
    operators = {start: name for start, _, name in image.operators}
    depth = 0
    for address in range(first, last):
        yield from (f"{name}:" for name in labels.get(address, ()))
        if address in operators:
            yield f"        ; {operators[address]}"
        instruction = program[address]
        depth -= instruction.opcode == Opcode.END
        yield f"{address:6}  {'  ' * max(depth, 0)}{instruction}"
        depth += instruction.opcode == Opcode.LOOP


def disasm(
    image: ImageArgument,
    entry: Annotated[str | None, typer.Option(help="Only the program of this entry point.")] = None,
) -> None:
    """List the microcode with the model operator that each part carries out."""
    for line in listing(load(image), entry):
        print(line)


def profile(
    image: ImageArgument,
    position: Annotated[int, typer.Option(help="Position of the token, from 0.", min=0)] = 100,
    kind: Annotated[str, typer.Option(help="decode (with logits) or prefill (without).")] = "decode",
    as_json: JsonOption = False,
) -> None:
    """Say where the cycles of a token go, by operator, and what every lost cycle waited for."""
    emit(cycles_by_operator(load(image), kind, position), as_json, _show_profile)


def _show_profile(facts: dict[str, Any]) -> None:
    shown = table(f"{facts['kind']} at position {facts['position']}: {facts['cycles']:,} cycles, "
                  f"{facts['share_of_row_bound']:.1%} of the row-read bound", "operator", "matrix", "rows read",
                  "lost", "vector", "lost")
    for name, f in facts["operators"].items():
        lost = ["\n".join(f"{reason} {cycles:,}" for reason, cycles in f[engine]["stalled"].items())
                for engine in ("matrix", "vector")]
        shown.add_row(name, f"{f['matrix']['steps']:,}", f"{f['row_reads']:,}", lost[0],
                      f"{f['vector']['steps']:,}", lost[1])
    busy = facts["busy"]
    shown.add_row("all", f"{busy['matrix']:,}", f"{facts['row_reads']:,}", "", f"{busy['vector']:,}", "")
    out.print(shown)


COMMANDS = (inspect, disasm, profile)
