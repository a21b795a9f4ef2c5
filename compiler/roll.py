"""Rolls runs of alike windows into loops: fields that step from layer to layer become registers.

Two windows are alike when their instructions agree in everything but fields that a register can be added to. A run is
rolled when each such field steps by the same amount from window to window. Each (register, step) pair needs one
register of the loop: a fresh one, which begins as a copy.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from compiler.errors import PlacementError
from hw.isa import Alu, Instruction, Opcode, format_of

__all__ = ["Code", "Listing", "roll"]


@dataclass
class Code:
    """The final instructions of one window, with a label each, after the sequencer words that come first."""

    control: list[Instruction]
    body: list[Instruction]
    labels: list[str]


@dataclass
class Listing:
    """A program: words, and the operator that each belongs to."""

    words: list[Instruction] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)

    def add(self, instruction: Instruction, label: str) -> None:
        self.words.append(instruction)
        self.labels.append(label)


Steps = list[dict[str, int]]
"""For each instruction, the fields that step and by how much."""


def _steps(a: Code, b: Code) -> Steps | None:
    """How `b` differs from `a`, or None when no register can make the one from the other."""
    if a.control or b.control or len(a.body) != len(b.body):
        return None
    out: Steps = []
    for x, y in zip(a.body, b.body, strict=True):
        if x.opcode != y.opcode:
            return None
        names = {f.name for f in format_of(x.opcode).fields}
        changed = {n: y[n] - x[n] for n in {*x.values, *y.values} if x[n] != y[n]}
        if any(f"{n}_reg" not in names for n in changed):
            return None
        out.append(changed)
    return out


def _alike(codes: Sequence[Code], first: int) -> tuple[int, Steps]:
    """The end of the run of alike windows that begins at `first`, and its steps."""
    if first + 1 >= len(codes):
        return first + 1, []
    steps = _steps(codes[first], codes[first + 1])
    if steps is None:
        return first + 1, []
    end = first + 2
    while end < len(codes) and _steps(codes[end - 1], codes[end]) == steps:
        end += 1
    return end, steps


def _registers(code: Code, steps: Steps, free: Sequence[int]) -> dict[tuple[int, int], int] | None:
    """The loop's register for each (register, step), or None when there are too few.

    A register all of whose uses step is stepped itself, for one of its steps; every other pair takes a free one.
    """
    keys: list[tuple[int, int]] = []
    fixed = {0}
    for instruction, changed in zip(code.body, steps, strict=True):
        for f in format_of(instruction.opcode).fields:
            if f.name.endswith("_reg") and instruction[f.name] and f.name.removesuffix("_reg") not in changed:
                fixed.add(instruction[f.name])
        keys += [(instruction[f"{name}_reg"], step) for name, step in sorted(changed.items())]
    out: dict[tuple[int, int], int] = {}
    left = list(free)
    for register, step in dict.fromkeys(keys):
        if register not in fixed:
            fixed.add(register)
            out[register, step] = register
        elif left:
            out[register, step] = left.pop(0)
        else:
            return None
    return out


def _loop(code: Code, steps: Steps, count: int, free: Sequence[int], out: Listing) -> bool:
    """Write the loop, unless it needs more registers than are free."""
    registers = _registers(code, steps, free)
    if registers is None:
        return False
    last_use: dict[int, int] = {}
    body = []
    for place, (instruction, changed) in enumerate(zip(code.body, steps, strict=True)):
        values = dict(instruction.values)
        for name, step in changed.items():
            values[f"{name}_reg"] = registers[instruction[f"{name}_reg"], step]
            last_use[values[f"{name}_reg"]] = place
        body.append(Instruction(instruction.opcode, values))

    def move(register: int, source: int, amount: int) -> None:
        fn = Alu.ADD if amount >= 0 else Alu.SUB
        out.add(Instruction(Opcode.ALU, {"fn": fn, "rd": register, "ra": source, "imm": abs(amount)}), "loop")

    for (register, _), stepped in registers.items():
        if stepped != register:
            move(stepped, register, 0)
    out.add(Instruction(Opcode.LOOP, {"count": count}), "loop")
    for place, (instruction, label) in enumerate(zip(body, code.labels, strict=True)):
        out.add(instruction, label)
        # Stepped right after its last use, so that the sequencer has nothing left to do at the loop's end.
        for (_, step), stepped in registers.items():
            if last_use[stepped] == place:
                move(stepped, stepped, step)
    out.add(Instruction(Opcode.END), "loop")
    for (register, step), stepped in registers.items():
        if stepped == register:
            move(register, register, -count * step)
    return True


def roll(codes: Sequence[Code], free: Sequence[int], capacity: int) -> Listing:
    """One program of all windows, with runs of alike ones as loops; ends with HALT.

    `free`: registers that loops may use. Raises `PlacementError` when the result exceeds `capacity` words.
    """
    out = Listing()
    first = 0
    while first < len(codes):
        end, steps = _alike(codes, first)
        code = codes[first]
        if end - first > 1 and _loop(code, steps, end - first, free, out):
            first = end
            continue
        for instruction in code.control:
            out.add(instruction, "sequencer")
        for instruction, label in zip(code.body, code.labels, strict=True):
            out.add(instruction, label)
        first += 1
    out.add(Instruction(Opcode.HALT), "halt")
    if len(out.words) > capacity:
        raise PlacementError(f"the program has {len(out.words)} words; the microcode memory holds {capacity}: "
                             "use a preset with more microcode")
    return out
