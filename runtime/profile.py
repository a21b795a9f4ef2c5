"""Where the cycles of a token go: by model operator and engine, and what every lost cycle waited for."""

import re
from collections import defaultdict
from typing import Any

from hw.errors import WordlineError
from hw.image import Image
from hw.timemodel import Stall, predict
from runtime.roofline import row_bound

__all__ = ["operator_names", "profile"]

ENGINES = ("matrix", "vector")


def operator_names(image: Image) -> list[str]:
    """The operator of every microcode word, all layers under one name."""
    names = ["?"] * len(image.microcode)
    for first, last, name in image.operators:
        names[first:last] = [re.sub(r"layers\.\d+", "layers", name)] * (last - first)
    return names


def profile(image: Image, kind: str, position: int) -> dict[str, Any]:
    """The predicted cycles of one token at a position; `operators` are sorted by the matrix engine's time.

    For every engine an operator's `steps` are the cycles in which it works on it, `stalled` those lost before its
    instructions, by reason. The matrix engine's sum to `cycles` but for what is after its last instruction.
    """
    if kind not in ("prefill", "decode", "pair"):
        raise WordlineError(f"a kind of command, 'prefill', 'decode' or 'pair', was wanted; got {kind!r}")
    entry = image.entry(kind, position + 1)
    values = {"token": 0, "position": position, "slot": 0, "token2": 0, "position2": position, "slot2": 1}
    found = predict(image.config, image.microcode, entry.address, [values[name] for name in entry.arguments],
                    record=True)
    records = found.records
    assert records is not None  # asked for
    names = operator_names(image)
    operators: dict[str, dict[str, Any]] = defaultdict(
        lambda: {"row_reads": 0, **{e: {"steps": 0, "stalled": defaultdict(int)} for e in ENGINES}})
    for record in records:
        facts = operators[names[record["address"]]]
        engine = facts[ENGINES[record["engine"]]]
        engine["steps"] += int(record["last"] - record["first"] + 1)
        facts["row_reads"] += int(record["useful"])
        if record["stalled"] > 0:
            engine["stalled"][Stall(record["stall"]).name.lower()] += int(record["stalled"])
    bound = row_bound(image, kind, position + 1)
    last = {engine: int(records["last"][records["engine"] == n].max(initial=-1)) + 1
            for n, engine in enumerate(ENGINES)}

    def weight(item: tuple[str, dict[str, Any]]) -> int:
        return -(item[1]["matrix"]["steps"] + sum(item[1]["matrix"]["stalled"].values()))

    return {
        "kind": kind, "position": position, "cycles": found.cycles, "row_reads": found.row_reads,
        "row_bound": round(bound, 1), "share_of_row_bound": round(bound / found.cycles, 4),
        "busy": {"matrix": found.matrix_busy, "vector": found.vector_busy},
        "instructions": {"matrix": found.matrix_instructions, "vector": found.vector_instructions},
        "after_last": {engine: found.cycles - end for engine, end in last.items()},
        "operators": dict(sorted(operators.items(), key=weight)),
    }
