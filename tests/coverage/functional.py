"""Functional coverage: which instructions, in which format or form, began in which state of their engine."""

from collections import Counter
from collections.abc import Iterable

from hw.config import HardwareConfig
from hw.isa import Instruction, Opcode, Reduce, RowFormat, encode
from hw.timemodel import Stall, predict
from tests.conformance.trial import Case

__all__ = ["FORMS", "STATES", "count", "impossible"]

FORMS: tuple[str, ...] = (
    *(f"multiply {form.name.lower()} {what}" for form in RowFormat for what in ("init", "add")),
    "fetch own", "fetch to all", "store_row", "store_column",
    *(f"vector {form}" for form in ("plain", "write", "quantize", "quantize narrow", "quantize given", "mask",
                                    *(f"reduce {r.name.lower()}" for r in Reduce if r != Reduce.NONE))),
)
"""Instructions and what makes them different; a vector instruction may be of several forms."""

STATES: tuple[str, ...] = tuple(stall.name.lower() for stall in Stall)
"""What the instruction waited for: nothing (it follows its predecessor at once), or the last thing that held it."""


def impossible(form: str, state: str) -> bool:
    """Pairs that cannot be: only the vector engine has chains and fences for scalars."""
    return not form.startswith("vector") and state in ("chain", "reduce_fence")


def _forms(i: Instruction) -> list[str]:
    if i.opcode == Opcode.MULTIPLY:
        return [f"multiply {RowFormat(i['format']).name.lower()} {'init' if i['init'] else 'add'}"]
    if i.opcode == Opcode.FETCH:
        return ["fetch to all" if i["all"] else "fetch own"]
    if i.opcode != Opcode.VECTOR:
        return [i.opcode.name.lower()]
    named = (("write", "w"), ("quantize", "quantize"), ("mask", "mask"))
    forms = [f"vector {name}" for name, field in named if i[field]]
    if i["quantize"]:
        forms += [f"vector quantize {name}" for name in ("narrow", "given") if i[name]]
    if i["reduce"]:
        forms.append(f"vector reduce {Reduce(i['reduce']).name.lower()}")
    return forms or ["vector plain"]


def count(config: HardwareConfig, cases: Iterable[Case]) -> Counter[tuple[str, str]]:
    """How often each pair of form and state occurs when the cases run, by the timing model that the Verilog equals."""
    pairs: Counter[tuple[str, str]] = Counter()
    for case in cases:
        program = case.program
        records = predict(config, encode(program), 0, case.arguments, record=True).records
        assert records is not None
        for record in records:
            state = STATES[int(record["stall"])] if record["stalled"] else "none"
            pairs.update((form, state) for form in _forms(program[int(record["address"])]))
    return pairs
