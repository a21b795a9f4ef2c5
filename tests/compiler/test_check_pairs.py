"""The checker on commands for two sequences: passes real ones, for all pairs of arguments, and finds what crosses."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from compiler.check import check
from compiler.check.report import Listing
from compiler.check.walk import Walker
from compiler.compile import compile_model
from compiler.context import Registers
from hw.config import preset
from hw.image import Image
from hw.isa import A, Alu, Instruction, Opcode, Reduce, decode, encode
from tests.compiler.test_check import UNIFORM, Where, less, op
from tests.compiler.test_check_programs import alu, loop, small, vector
from tests.models.random_gguf import write_random_model

TINY = preset("tiny")
CONTEXT, SLOTS, VOCABULARY = 64, 3, 413
M, V = Opcode.MULTIPLY, Opcode.VECTOR
R, S = Registers.of(0), Registers.of(1)
PAIR = ("token", "position", "slot", "token2", "position2", "slot2")


@pytest.fixture(scope="module")
def image(tmp_path_factory) -> Image:
    path = tmp_path_factory.mktemp("model") / "model.gguf"
    write_random_model(path, seed=7, types=UNIFORM, layers=2, heads=4, kv_heads=2, context=256)
    return compile_model(path, TINY, context=CONTEXT, slots=SLOTS, pairs=True, effort=1, checked=False)


@pytest.fixture(scope="module")
def pair(image) -> Image:
    """Only the entry for two sequences, so that a fault's errors are the fault's."""
    return replace(image, entries={"pair@64": image.entries["pair@64"]})


class Sampled:
    """Follows real pairs of arguments, a few, as they are."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.walks = 0

    def __call__(self, walker: Walker) -> None:
        if walker.sequences == 1 or not walker.prepare():
            return
        patterns, random = walker.trace.patterns, np.random.default_rng(5)
        last = np.flatnonzero(patterns.position == CONTEXT - 1)
        points = [(int(a), int(b)) for a, b in random.integers(0, len(patterns.position), (self.count, 2))]
        points += [(0, 1), (0, int(last[1])), (int(last[0]), 1), (int(last[1]), int(last[2]))]
        for a, b in points:
            if patterns.slot[a] != patterns.slot[b]:
                walker.walk(1, np.array([a]), beside=b)
                self.walks += 1


def test_a_compiled_model_passes(image):
    report = check(image)
    assert report.ok, str(report)
    points = CONTEXT * SLOTS * VOCABULARY
    assert report.arguments == 2 * points + points * CONTEXT * (SLOTS - 1) * VOCABULARY


def test_the_entry_for_pairs_alone_passes(pair):
    assert (report := check(pair)).ok, str(report)
    lines = CONTEXT // TINY.tiles
    assert report.classes == 2 * lines * SLOTS, "classes of each sequence, not of both together"


def test_real_pairs_of_arguments_pass_too(pair):
    sampled = Sampled(150)
    report = check(pair, follow=sampled)
    assert report.ok, str(report)
    assert sampled.walks > 80


# Planted faults
# -----------------------------------------------------------------------------------------------------

Change = dict[str, int | Callable[[int], int]]


@dataclass(frozen=True)
class Fault:
    """A change of the `nth` instruction that `where` chooses, or of all of them, and what the checker must say."""

    name: str
    where: Where
    change: Change
    says: str
    nth: int | None = 0

    def __str__(self) -> str:
        return self.name


def of(sequence: int, where: Where) -> Where:
    """Those that use a register of a sequence."""
    registers = set(vars(Registers.of(sequence)).values()) - {Registers.of(0).row, Registers.of(1).row}
    return lambda i, label: where(i, label) and any(
        value in registers for name, value in i.values.items() if name.endswith("_reg") and name != "count_reg")


def shifted(name: str, low: int, high: int, by: int) -> Change:
    return {name: lambda value: value + by if low <= value < high else value}


SCORES, MIXTURE = op(M, "attend", nr_reg=S.key_lines), op(M, "attend", nj_reg=S.value_blocks)
SOFTMAX, SOFTMAX1 = (of(n, op(V, "attend", reduce=Reduce.SUM)) for n in (1, 0))
OTHERS = "the two sequences of a command have nothing in common"
BOTH = "registers of this one depend on the arguments of both"

FAULTS = [
    Fault("the other's length", SOFTMAX, {"length_reg": R.length}, BOTH),
    Fault("the other's length, at the other place", SOFTMAX1, {"length_reg": S.length}, BOTH),
    Fault("the other's value scales", SOFTMAX, {"x_reg": R.key_base}, BOTH),
    Fault("the other's keys", SCORES, {"row_reg": R.key_base}, BOTH),
    Fault("the other's keys and lengths", SCORES, {"row_reg": R.key_base, "nr_reg": R.key_lines}, OTHERS),
    Fault("the other's values", MIXTURE, {"row_reg": R.value_base}, BOTH),
    Fault("the other's tile", of(1, op(Opcode.STORE_ROW, "store")), {"tile_reg": R.position}, BOTH),
    Fault("the other's row", of(1, op(Opcode.STORE_ROW, "store")), {"row_reg": R.key_row}, BOTH),
    Fault("the other's place", of(1, op(Opcode.STORE_ROW, "store")), {"row_reg": R.key_row, "tile_reg": R.position},
          OTHERS),
    Fault("the other's column", of(1, op(Opcode.STORE_COLUMN, "store")), {"column_reg": R.position}, BOTH),
    Fault("the other's half of a row", op(V, "lookup", half_reg=S.half), {"half_reg": R.half}, OTHERS),
    Fault("the other's tile of a row", op(Opcode.FETCH, "lookup", tile_reg=S.token), {"tile_reg": R.token}, BOTH),
    Fault("a row number of both", op(Opcode.ALU, "sequencer", rd=S.key_row, rb=S.key_base), {"rb": R.key_base},
          "depends on the arguments of both"),
    Fault("the other's position", op(Opcode.ALU, "sequencer", rd=S.length), {"ra": R.position}, BOTH),
    Fault("the other's slot", op(Opcode.ALU, "sequencer", rd=S.key_base), {"ra": R.slot},
          "depends on the arguments of both"),
    Fault("the other's operand", op(M, "gate_up", block=9), {"block": 3}, "which nothing has read", nth=None),
    Fault("the other's query", SCORES, {"block": lambda block: 12}, OTHERS),
    Fault("the other's rms", op(V, "gate_up", p=10, a=A.ACC), {"p": 6}, OTHERS),
    Fault("the other's mean", op(V, "attention_residual", p=8), {"p": 4}, OTHERS),
    Fault("lengths that shrink", op(Opcode.ALU, "sequencer", rd=S.key_lines), {"fn": Alu.MIN, "imm": 3},
          "mixes an old result with a new one"),
    Fault("the other's reduction goes on", op(V, "logits", reduce=Reduce.ARGMAX, reduce_init=1),
          {"reduce_init": 0}, OTHERS, nth=-1),
]


def words(image: Image) -> tuple[list[Instruction], list[str], int]:
    """The program, its labels, and where the entry for pairs begins."""
    program, listing = decode(image.microcode), Listing(image)
    return program, [listing.operator(a) for a in range(len(program))], image.entries["pair@64"].address


def changed(i: Instruction, change: Change) -> Instruction:
    return Instruction(i.opcode, {**i.values, **{name: value(i[name]) if callable(value) else int(value)
                                                 for name, value in change.items()}})


def planted(image: Image, fault: Fault) -> Image:
    program, labels, start = words(image)
    chosen = [a for a in range(start, len(program)) if fault.where(program[a], labels[a])]
    for address in chosen if fault.nth is None else [chosen[fault.nth]]:
        program[address] = changed(program[address], fault.change)
    out = replace(image, microcode=encode(program))
    assert (out.microcode != image.microcode).any(), "the fault changes something"
    return out


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_planted_fault_is_found(pair, fault):
    report = check(planted(pair, fault))
    assert any(fault.says in str(error) for error in report.errors), f"wanted {fault.says!r}; got {report}"


def region(image: Image, name: str) -> tuple[int, int]:
    return next((base, base + size) for n, base, size in image.report["regions"]["words"] if n == name)


@pytest.mark.parametrize("name", ["residual", "rotary", "values", "logits"])
def test_a_buffer_shared_by_both_is_found(pair, name):
    """Every word of the second sequence's buffer is looked for in the first one's."""
    (first, _), (low, high) = region(pair, name), region(pair, f"{name}.1")
    program, _, start = words(pair)
    for address in range(start, len(program)):
        if program[address].opcode == V:
            for field in ("x", "y", "w_word"):
                if not program[address]["x_reg" if field == "x" else f"{field}_reg"]:
                    program[address] = changed(program[address], shifted(field, low, high, first - low))
    report = check(replace(pair, microcode=encode(program)))
    assert not report.ok
    errors = " ".join(map(str, report.errors))
    assert any(says in errors for says in (OTHERS, "which nothing has read", "which must write it before HALT",
                                           "must not read what it has written")), str(report)


def owners(pair: Image) -> dict[int, int]:
    """The sequence that each microcode address works for, 0 for neither."""
    out: dict[int, int] = {}

    def follow(walker: Walker) -> None:
        walker.run()
        out.update(zip(walker.trace.address.tolist(), walker.expected.tolist(), strict=False))

    check(pair, follow=follow)
    return out


def test_every_instruction_works_for_a_sequence(pair):
    """All but the zeros behind what heads leave of a block; and both have about as many."""
    count = np.bincount(list(owners(pair).values()), minlength=3)
    assert count[1] == count[2] > 20 and count[0] <= 2


def test_a_wait_that_comes_late_is_found_between_the_sequences_too(pair):
    """The token is taken by the engine's next instruction instead."""
    program, _, start = words(pair)
    of = owners(pair)
    between = {True: 0, False: 0}
    for engine in ([a for a in range(start, len(program)) if program[a].opcode == V],
                   [a for a in range(start, len(program)) if Opcode.MULTIPLY <= program[a].opcode < V]):
        for address, after in zip(engine, engine[1:], strict=False):
            if not program[address]["wait"] or program[after]["wait"] or of[address] == of[after]:
                continue
            broken = list(program)
            broken[address], broken[after] = changed(broken[address], {"wait": 0}), changed(broken[after], {"wait": 1})
            races = [str(error) for error in check(replace(pair, microcode=encode(broken))).errors
                     if error.address == address and "no token makes this" in str(error)]
            assert races, program[address]
            between[any(of[int(other)] != of[address]
                        for race in races for other in re.findall(r"by address (\d+)", race))] += 1
    assert between[True] > 0 and between[False] > 0


def test_results_that_are_the_others_are_refused(pair):
    for second in ((pair.logits[0], pair.second[1]), (pair.second[0], pair.argmax)):
        assert OTHERS in str(check(replace(pair, second=second)))
    assert "says where the results of the second are" in str(check(replace(pair, second=None)))


def test_sampled_arguments_find_what_the_proof_finds(pair):
    """The proof is no weaker than real pairs of arguments: where they show a fault, so does it."""
    shown = 0
    program, labels, start = words(pair)
    random = np.random.default_rng(3)
    fields = ("acc", "block", "x", "w_word", "z", "p", "wait", "chain", "fence", "reduce_fence", "nr", "inner")
    for _ in range(60):
        address = int(random.integers(start, len(program)))
        i = program[address]
        field = fields[random.integers(len(fields))]
        if i.opcode < M or not i.values.get(field):
            continue
        broken = list(program)
        broken[address] = changed(i, {field: less})
        image = replace(pair, microcode=encode(broken))
        if not check(image, follow=Sampled(12)).ok:
            shown += 1
            assert not check(image).ok, (address, field, str(i), labels[address])
    assert shown > 5


# Small programs
# -----------------------------------------------------------------------------------------------------


FIRST, SECOND = 2, 5                # registers of positions

SOUND = {
    "each its own": small(
        alu(Alu.ADD, 7, FIRST, 1), alu(Alu.ADD, 8, SECOND, 1),
        vector(inner=0, inner_reg=7, w=1, w_word=32, w_i=1), vector(inner=0, inner_reg=8, w=1, w_word=48, w_i=1),
        vector(fence=1, inner=0, inner_reg=7, x=32, x_i=1, reduce=Reduce.SUM, reduce_init=1),
        vector(fence=1, inner=0, inner_reg=8, x=48, x_i=1, reduce=Reduce.SUM, reduce_init=1),
        arguments=PAIR, slots=2),
    "a distance that the other's least steps just keep": small(
        alu(Alu.ADD, 8, SECOND, 1), vector(w=1, w_word=32),
        vector(inner=63, inner_reg=8), vector(x=32), arguments=PAIR, slots=2),
}

UNSOUND = {
    "one slot": (small(vector(), arguments=PAIR), "two sequences of one command have different slots"),
    "a distance that only the other's long steps keep": (
        small(alu(Alu.ADD, 8, SECOND, 1), alu(Alu.MUL, 8, 8, 8), vector(w=1, w_word=32), vector(inner_reg=8),
              vector(x=32), arguments=PAIR, slots=2), "scratch word 32 can be read"),
    "a word that the other's longest context overwrites": (
        small(alu(Alu.ADD, 7, FIRST, 1), vector(fence=1, w=1, w_word=39), vector(inner=0, inner_reg=7, w=1, w_word=32,
                                                                                 w_i=1),
              vector(fence=1, inner_reg=SECOND, x=39), arguments=PAIR, slots=2), OTHERS),
    "counts that grow and shrink": (
        small(alu(Alu.MUL, 7, FIRST, 3), alu(Alu.AND, 7, 7, 7), vector(inner_reg=7), arguments=PAIR, slots=2),
        "counts of a command for two sequences are greatest at the last position"),
    "steps that shrink": (
        small(alu(Alu.ADD, 7, 0, 9), alu(Alu.SUB, 7, 7, 0, FIRST), vector(inner_reg=7), arguments=PAIR, slots=2),
        "counts of a command for two sequences are greatest at the last position"),
    "addresses that move": (
        small(alu(Alu.ADD, 7, FIRST, 1), vector(w=1, w_word=32, w_word_reg=7), arguments=PAIR, slots=2),
        "only among scratch words that commands keep"),
    "a loop that one sequence counts": (
        small(loop(0, FIRST), vector(), Instruction(Opcode.END), arguments=PAIR, slots=2),
        "a loop count of a command for two sequences"),
    "an instruction that works for either": (
        small(alu(Alu.ADD, 7, FIRST, 1), vector(inner_reg=SECOND, w=1, w_word=39),
              vector(inner=0, inner_reg=7, w=1, w_word=32, w_i=1), vector(fence=1, x=39, reduce=Reduce.SUM),
              arguments=PAIR, slots=2), "works for the same sequence whatever the arguments are"),
    "a reduction of both": (
        small(vector(inner_reg=FIRST, reduce=Reduce.SUM, reduce_init=1), vector(inner_reg=SECOND, reduce=Reduce.SUM),
              arguments=PAIR, slots=2), "continues a reduction of the other"),
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_programs_pass(name):
    report = check(SOUND[name])
    assert report.ok, str(report)


@pytest.mark.parametrize("name", UNSOUND)
def test_unsound_programs_do_not(name):
    program, says = UNSOUND[name]
    report = check(program)
    assert any(says in str(error) for error in report.errors), str(report)
