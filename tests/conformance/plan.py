"""Random programs in which both engines run at once: sections without conflicts, joined by tokens and fences.

A `Plan` is a tuple of sections; a section is a tuple of instructions and loops without tokens. Inside a section the
matrix and the vector instructions touch disjoint words, so that any interleaving gives one result; `build` adds the
tokens and fences that order the sections. Any part of a plan can be left out and what remains is a legal program again,
which is what makes failures shrink.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from hw.config import SCALARS, HardwareConfig
from hw.isa import FUNCTIONS, A, Alu, B, C, Instruction, Opcode, Reduce
from tests.randomprogram import random_instruction

__all__ = ["Item", "Loop", "Plan", "Together", "build", "random_plan", "size"]

OFFSET = 31  # this register holds a small number, which the plan takes from the fields it is added to
SETUP = (9, 10, 11, 14, 15, 16, 22, 30)  # registers with random contents: tiles, halves, columns, lengths
READ_SCALARS = 32  # scalars from here on are read inside a section, those before are written
RELATIVE = ("row", "block", "acc", "x", "y", "z", "w_word", "index", "nj", "nr", "inner")


@dataclass(frozen=True)
class Loop:
    """A body of items, executed `count` times."""

    count: int
    body: tuple["Item", ...]


@dataclass(frozen=True)
class Together:
    """Instructions that are only legal one behind the other: all stay or all go."""

    body: tuple[Instruction, ...]


Item = Instruction | Loop | Together


@dataclass(frozen=True)
class Plan:
    """Sections, the number in register `OFFSET`, and the first row buffer entry of the second side."""

    sections: tuple[tuple[Item, ...], ...]
    offset: int
    entry: int


def _changed(instruction: Instruction, **values: int) -> Instruction:
    return Instruction(instruction.opcode, {**instruction.values, **values})


def _flat(items: tuple[Item, ...]) -> Iterator[Instruction]:
    for item in items:
        if not isinstance(item, Instruction):
            yield from _flat(item.body)
        else:
            yield item


def size(plan: Plan) -> int:
    """Instructions of a plan, loops not counted."""
    return sum(1 for section in plan.sections for _ in _flat(section))


# Generation ---------------------------------------------------------------------------------------------------------


class _Half(HardwareConfig):
    """What one engine may touch: as no device needs to be built of that size, no bound holds for it."""

    def __post_init__(self) -> None:
        pass


def random_plan(random: np.random.Generator, config: HardwareConfig, sections: int = 10) -> Plan:
    """A plan for a device of at least 16 operand blocks and 8 row buffer entries."""
    offset = int(random.integers(1, 6))
    plan = [tuple(Instruction(Opcode.ALU, {"fn": Alu.ADD, "rd": rd, "imm": int(random.integers(0, 12 * config.tiles))})
                  for rd in SETUP)]
    half = _Half(**{**asdict(config), "accumulators": config.accumulators // 2, "operands": config.operands // 2,
                    "row_buffer": config.row_buffer // 2})
    for n in range(1, sections + 1):
        # The engines change sides, so that what one has written is what the other reads.
        items: list[Item] = []
        for _ in range(int(random.integers(1, 7))):
            items.extend(_items(random, half, n))
        plan.append(tuple(_unfenced(random, _loops(random, items))))
    return Plan(tuple(_relative(random, plan, offset)), offset, half.row_buffer)


def _items(random: np.random.Generator, half: HardwareConfig, section: int) -> list[Item]:
    """A few instructions of an engine that stays on its side."""
    kind = random.random()
    if kind < 0.12:
        fn = int(random.integers(0, len(Alu)))
        return [Instruction(Opcode.ALU, {
            "fn": fn, "rd": int(random.choice(SETUP)), "ra": int(random.integers(0, OFFSET)),
            "rb": int(random.integers(0, OFFSET)), "imm": int(random.integers(0, 1 << int(random.integers(1, 33))))})]
    if kind < 0.5:
        return [_matrix(random, half, section % 2)]
    return _vectors(random, half, 1 - section % 2)


def _matrix(random: np.random.Generator, half: HardwareConfig, side: int) -> Instruction:
    opcode = Opcode(int(random.choice([Opcode.MULTIPLY, Opcode.MULTIPLY, Opcode.FETCH, Opcode.STORE_ROW,
                                       Opcode.STORE_COLUMN])))
    v = dict(random_instruction(random, half, opcode).values)
    if "block" in v:
        v["block"] += side * half.operands
    if opcode == Opcode.MULTIPLY:
        v["acc"] += side * half.accumulators
        v["fence"] = 1  # the previous one may have added to the same accumulators in another order
    elif opcode == Opcode.FETCH:
        v["acc"] += side * half.row_buffer
    return Instruction(opcode, v)


def _vectors(random: np.random.Generator, half: HardwareConfig, side: int) -> list[Item]:
    v = dict(random_instruction(random, half, Opcode.VECTOR).values)
    from_row = v["a"] in (A.ROW_ELEMENT, A.ROW_WORD) or v["b"] == B.ROW_SCALE or v["c"] == C.ROW_MINIMUM
    v["z"] += side * (half.row_buffer if from_row else half.accumulators)
    # One half of the scratch is read, the other written.
    middle = half.scratch // 2
    v["x"] += side * middle
    v["y"] += side * middle
    if v.get("w"):
        v["w_word"] -= side * middle
    if v.get("quantize"):
        v["block"] += side * half.operands
    for name in "pqr":
        v[name] = READ_SCALARS + v[name] % (SCALARS - READ_SCALARS - 4)
    if random.random() < 0.2:
        # Words reach the function as they are, with the values at which it changes its mind.
        v |= {"a": int(random.choice([A.X, A.Y, A.S])), "b": 0, "c": 0, "z": 0,
              "function": int(random.integers(0, FUNCTIONS))}
        if v["a"] == A.S:
            v |= {"p": SCALARS - 1 - int(random.integers(0, 4)), "p_o": 0}
        if random.random() < 0.5:
            # Or they are added as they are, the smallest too.
            v |= {"c": int(random.choice([C.X, C.Y, C.S])), "function": 0}
    first = Instruction(Opcode.VECTOR, v)
    if v.get("reduce"):
        v["r_dest"] = v["r_dest"] % (READ_SCALARS - 8) & ~1
        if random.random() < 0.3:
            # The reduction goes on in a second instruction.
            return [Together((
                Instruction(Opcode.VECTOR, {**v, "reduce_emit": 0}),
                Instruction(Opcode.VECTOR, {**v, "reduce_init": 0, "index": v["index"] + v["inner"]})))]
    if v.get("w") and random.random() < 0.4:
        # What one writes the next reads in the same order, and writes where the others read.
        count = v["outer"] * v["inner"]
        low = side * middle + int(random.integers(0, middle - count))
        return [Together((
            first,
            Instruction(Opcode.VECTOR, {
                "chain": 1, "a": int(A.X), "c": int(C.X), "outer": v["outer"], "inner": v["inner"], "x": v["w_word"],
                "x_o": v["w_o"], "x_i": 1, "w": int(random.random() < 0.7), "w_word": low, "w_o": v["inner"], "w_i": 1,
                **_further(random, v)}),
            Instruction(Opcode.VECTOR, {
                "fence": 1, "inner": count, "a": int(A.X), "x": low, "x_i": 1, "reduce": int(Reduce.SUM),
                "reduce_init": 1, "reduce_emit": 1, "r_dest": int(random.integers(0, 24))})))]
    return [first]


def _further(random: np.random.Generator, v: dict[str, int]) -> dict[str, int]:
    """Fields for an instruction over the same words as `v`, which may quantize, reduce or mask too."""
    more = {}
    if v.get("quantize") and random.random() < 0.5:
        more |= {name: v[name] for name in ("quantize", "block", "block_o", "scale")}
        more |= {"narrow": int(random.integers(0, 2)), "given": int(random.integers(0, 2))}
    if random.random() < 0.5:
        more |= {"reduce": int(random.integers(1, len(Reduce))), "reduce_init": 1, "reduce_emit": 1,
                 "r_dest": 2 * int(random.integers(0, 10)), "absolute": int(random.integers(0, 2))}
    if random.random() < 0.3:
        more |= {"mask": 1, "length_reg": int(random.choice(SETUP)), "index": int(random.integers(0, 20))}
    return more


def _loops(random: np.random.Generator, items: list[Item], depth: int = 3) -> list[Item]:
    """Sometimes a run of items becomes the body of a loop."""
    if not depth or len(items) < 2 or random.random() < 0.5:
        return items
    first = int(random.integers(0, len(items)))
    last = int(random.integers(first, len(items))) + 1
    body = tuple(_loops(random, items[first:last], depth - 1))
    return [*items[:first], Loop(int(random.integers(0, 4)), body), *items[last:]]


def _unfenced(random: np.random.Generator, items: list[Item]) -> list[Item]:
    """Sometimes the first MULTIPLY of a section, outside loops, does without a fence: no other one is under way."""
    for n, item in enumerate(items):
        if not isinstance(item, Instruction):
            if any(i.opcode == Opcode.MULTIPLY for i in _flat((item,))):
                break
        elif item.opcode == Opcode.MULTIPLY:
            if random.random() < 0.7:
                items = [*items[:n], _changed(item, fence=0), *items[n + 1:]]
            break
    return items


def _relative(random: np.random.Generator, sections: list[tuple[Item, ...]], offset: int) -> Iterator[tuple[Item, ...]]:
    """The same instructions, with some of their fields as sums with a register."""
    def change(item: Item) -> Item:
        if isinstance(item, Loop):
            return Loop(item.count, tuple(change(inner) for inner in item.body))
        if isinstance(item, Together):
            return Together(tuple(change(inner) for inner in item.body))
        values = dict(item.values)
        for name in RELATIVE:
            if values.get(name, 0) >= offset and random.random() < 0.3:
                values |= {name: values[name] - offset, f"{name}_reg": OFFSET}
        return Instruction(item.opcode, values)
    for section in sections:
        yield tuple(change(item) for item in section)


# Tokens, fences, words ------------------------------------------------------------------------------------------------


def build(plan: Plan) -> list[Instruction]:
    """The program of a plan, ended by HALT.

    The first instruction of an engine in a section takes the token that the last one of the other engine gives. Where
    one of them is in a loop, which would repeat that, an instruction of no consequence stands before or behind.
    """
    program = [Instruction(Opcode.ALU, {"fn": Alu.ADD, "rd": OFFSET, "imm": plan.offset})]
    sections = [list(_words(section)) for section in plan.sections]
    at_work = [{w.opcode == Opcode.VECTOR for w, _ in words if w.opcode >= Opcode.MULTIPLY} for words in sections]
    given = {False: 0, True: 0}  # tokens for the matrix and for the vector engine
    for number, words in enumerate(sections):
        engines = at_work[number]
        signals = {vector for vector in engines if _hands_over(at_work[number + 1:], vector)}
        for vector in sorted(engines):
            places = [n for n, (w, _) in enumerate(words)
                      if w.opcode >= Opcode.MULTIPLY and (w.opcode == Opcode.VECTOR) == vector]
            opening = {"wait": given[vector], "fence": 1, **({"reduce_fence": 1} if vector else {})}
            idle = Instruction(Opcode.VECTOR) if vector else Instruction(
                Opcode.FETCH, {"nj": 1, "acc": number % 2 * plan.entry})
            for place, values, behind in ((places[-1], {"signal": int(vector in signals)}, 1), (places[0], opening, 0)):
                word, depth = words[place]
                if depth == 0:
                    words[place] = _changed(word, **values), 0
                else:
                    words.insert(len(words) if behind else 0, (_changed(idle, **values), 0))
        for vector in engines:
            given[vector] = 0
        for vector in signals:
            given[not vector] += 1
        program += [word for word, _ in words]
    return [*program, Instruction(Opcode.HALT)]


def _hands_over(following: list[set[bool]], vector: bool) -> bool:
    """Whether the other engine works in a later section, and this one in none before that."""
    for engines in following:
        if engines:
            return (not vector) in engines
    return False


def _words(items: tuple[Item, ...], depth: int = 0) -> Iterator[tuple[Instruction, int]]:
    """The instructions with the number of loops around each."""
    for item in items:
        if isinstance(item, Loop):
            yield Instruction(Opcode.LOOP, {"count": item.count}), depth
            yield from _words(item.body, depth + 1)
            yield Instruction(Opcode.END), depth
        elif isinstance(item, Together):
            yield from _words(item.body, depth)
        else:
            yield item, depth
