"""The checker on small programs: each rule beside the program that just keeps it."""

from dataclasses import replace

import numpy as np
import pytest

from compiler.check import check
from hw.config import LINE_WORDS, preset
from hw.image import Entry, Image, KvLayout
from hw.isa import A, Alu, B, C, D, FunctionKind, Instruction, Opcode, Reduce, encode
from hw.timemodel import TOKENS

TINY = preset("tiny")
M, V = Opcode.MULTIPLY, Opcode.VECTOR

CONSTANTS = 8
"""Scratch words and scalars that a small image begins with."""


def small(*program: Instruction, arguments: tuple[str, ...] = (), context: int = 8, vocab: int = 10,
          rows: int = 0, slots: int = 1,
          more: tuple[Instruction, ...] = ()) -> Image:
    """An image of one entry ``run`` (and of ``more``), behind which the checker adds no demands."""
    words = [*program, Instruction(Opcode.HALT), *((*more, Instruction(Opcode.HALT)) if more else ())]
    entries = {"run": Entry(0, arguments, context)}
    if more:
        entries["more"] = Entry(len(program) + 1, arguments, context)
    functions = np.zeros((2, 4), np.uint32)
    functions[1, 0] = int(FunctionKind.SCALE)
    return Image(config=TINY, entries=entries, kv=KvLayout(slots, context), logits=(100, vocab), argmax=9,
                 array=np.zeros((rows, LINE_WORDS, TINY.tiles), np.uint32),
                 scratch=np.zeros((CONSTANTS, TINY.tiles), np.uint32), scalars=np.ones(CONSTANTS, np.uint32),
                 microcode=encode(words), tables=np.zeros((4, 3), np.uint32), functions=functions,
                 operators=[(0, len(program), "small")])


def vector(**fields: int) -> Instruction:
    return Instruction(V, {"outer": 1, "inner": 1, "a": A.X, **fields})


def multiply(**fields: int) -> Instruction:
    return Instruction(M, {"nj": 1, "nh": 1, "nr": 8, "row_r": 1, "row_j": 8, "block_j": 1, **fields})


def alu(fn: Alu, rd: int, ra: int = 0, imm: int = 0, rb: int = 0) -> Instruction:
    return Instruction(Opcode.ALU, {"fn": fn, "rd": rd, "ra": ra, "imm": imm, "rb": rb})


def loop(count: int, register: int = 0) -> Instruction:
    return Instruction(Opcode.LOOP, {"count": count, "count_reg": register})


END = Instruction(Opcode.END)
WRITE = vector(inner=16, x_i=0, w=1, w_word=32, w_i=1)                  # word 32 + i at step i
FILL = vector(inner=8, quantize=1)                                      # operand block 0, 8 steps
EMIT = vector(reduce=Reduce.TAKE, reduce_init=1, reduce_emit=1, r_dest=20)
TELL = vector(signal=1, a=A.S)


def take(tokens: int) -> list[Instruction]:
    """Matrix instructions that take so many tokens, 15 at a time, and nothing else of note."""
    return [Instruction(Opcode.FETCH, {"nj": 1, "wait": min(15, tokens - n), "acc": n // 15})
            for n in range(0, tokens, 15)]


DRAINED = vector(wait=1, inner=8, a=A.ACC, z_i=1)
FIVE = [loop(1)] * 5

SOUND = {
    "a chain that reads in the order of writing": small(WRITE, vector(chain=1, inner=16, x=32, x_i=1)),
    "a fence before another order": small(WRITE, vector(fence=1, x=47)),
    "enough steps between": small(WRITE, vector(inner=64), vector(x=47)),
    "the last word a pipeline later": small(WRITE, vector(inner=40), vector(x=47)),
    "a scalar fence": small(EMIT, vector(reduce_fence=1, a=A.S, p=20)),
    "a scalar fence of an instruction between": small(EMIT, vector(reduce_fence=1), vector(a=A.S, p=20)),
    "a product continued in the same order": small(
        Instruction(V, {**FILL.values, "signal": 1}), multiply(wait=1, init=1), multiply(row=8, signal=1),
                                                   DRAINED, rows=16),
    "a product continued in another order behind a fence": small(
        Instruction(V, {**FILL.values, "signal": 1}), multiply(wait=1, init=1),
        multiply(row=8, nr=1, acc=7, fence=1), multiply(row=9, nr=7, fence=1, signal=1), DRAINED, rows=16),
    "a loop whose count is an argument": small(loop(0, 1), vector(), END, arguments=("position",)),
    "loops four deep": small(*FIVE[:4], vector(), *[END] * 4),
    "tokens that fit the counter": small(loop(200), TELL, END, *take(200), rows=1),
    "registers that step down below zero and come back": small(
        alu(Alu.SUB, 5, 5, 3), vector(x=7, x_reg=5), alu(Alu.ADD, 5, 5, 3)),
    "a row by token": small(Instruction(Opcode.FETCH, {"nj": 1, "row_reg": 1, "signal": 1}),
                            vector(wait=1, inner=8, a=A.ROW_WORD), arguments=("token",), rows=10),
    "one word kept by each position": small(
        alu(Alu.SHR, 5, 1, 2), vector(a=A.S, w=1, w_word=32, w_word_reg=5, w_single=1, w_tile_reg=1),
        alu(Alu.ADD, 6, 1, 1), alu(Alu.ADD, 7, 5, 1),
        vector(fence=1, inner=0, inner_reg=7, x=32, x_i=1, mask=1, length_reg=6, reduce=Reduce.SUM,
               reduce_init=1),
        arguments=("position",)),
}

SQUARE = (alu(Alu.MUL, 5, 2, 0, 2), alu(Alu.ADD, 6, 1, 1),
          vector(a=A.S, w=1, w_word=32, w_word_reg=5, w_single=1, w_tile_reg=1))
"""Keep a word in 32 + slot * slot."""
READ = {"fence": 1, "x": 32, "mask": 1, "length_reg": 6, "reduce": Reduce.SUM, "reduce_init": 1}
BY_SLOT = {"arguments": ("position", "slot"), "context": 4, "slots": 3}

SOUND["a word of each slot"] = small(*SQUARE, vector(x_reg=5, **READ), **BY_SLOT)

UNSOUND = {
    "a word of the first slot for all": (
        small(*SQUARE, vector(**READ), **BY_SLOT), 3, "scratch word 32 holds what positions of another slot stored"),
    "a word that is the slot's own for two of three": (
        small(*SQUARE, vector(x_reg=2, **READ), **BY_SLOT), 3, "scratch word 34 must be written"),
    "a chain that reads in another order": (
        small(WRITE, vector(chain=1, x=47)), 1, "scratch word 47 can be read"),
    "too few steps between": (small(WRITE, vector(inner=8), vector(x=47)), 2, "scratch word 47 can be read"),
    "a chain is no fence for scalars": (small(EMIT, vector(chain=1, a=A.S, p=20)), 1,
                                        "scalar 20 can be read"),
    "a fence is none for scalars": (small(EMIT, vector(fence=1, a=A.S, p=20)), 1, "scalar 20 can be read"),
    "a fence of scalars before they are emitted": (
        small(vector(reduce_fence=1), EMIT, vector(a=A.S, p=20)), 2, "scalar 20 can be read"),
    "a product continued in another order": (
        small(Instruction(V, {**FILL.values, "signal": 1}), multiply(wait=1, init=1),
              multiply(row=8, nr=1, acc=7, signal=1), DRAINED, rows=16), 2, "accumulator 7 can be read"),
    "loops five deep": (small(*FIVE, vector(), *[END] * 5), 4, "loops nest at most 4 deep"),
    "a program that takes for ever": (
        small(loop(65535), loop(65535), alu(Alu.ADD, 5), END, END), 4, "has executed 262144 words"),
    "more tokens than the counter holds": (
        small(loop(TOKENS + 1), TELL, END, *take(TOKENS + 1), rows=1), 1, f"a token counter holds {TOKENS}"),
    "tokens left at HALT": (small(vector(), TELL), 1, "the matrix engine leaves 1"),
    "a register of token and position": (
        small(alu(Alu.ADD, 5, 1, 0, 2), arguments=("token", "position")), 0, "depends on both"),
    "a negative number shifted": (
        small(alu(Alu.SUB, 5, 0, 1), alu(Alu.SHR, 6, 5, 1)), 1, "a negative value comes to it"),
    "an argument that nobody knows": (
        small(vector(), arguments=("temperature",)), 0, "this one has 'temperature'"),
    "a token's row beyond the image": (
        small(Instruction(Opcode.FETCH, {"nj": 1, "row_reg": 1}), arguments=("token",), rows=9), 0,
        "reaches 0 to 9"),
    "a count that may exceed 16 bits": (
        small(alu(Alu.MUL, 5, 1, 10000), vector(inner_reg=5), arguments=("position",)), 1,
        "inner is 70001 here (position 7"),
    "a step below the first word": (
        small(alu(Alu.SUB, 5, 5, 3), vector(x=2, x_reg=5)), 1, "this instruction reaches -1 to -1"),
    "an entry that runs into the next": (
        small(loop(2), vector(), END, more=(vector(),)), 4, "runs into the next entry point"),
    "a row that nobody reads": (small(vector(), rows=3), -1, "3 are not, first row 0"),
    "an accumulator and a row in one instruction": (
        small(vector(a=A.ACC, b=B.ROW_SCALE)), 0, "this instruction uses it as both"),
    "a row without its entry": (small(vector(c=C.ROW_MINIMUM)), 0, "row buffer entry 0 must be written "
                                                                   "before it is read"),
    "a factor that is not there": (small(vector(d=D.S, r=40)), 0, "scalar 40 must be written before it is "
                                                                  "read"),
    "a function whose table is not there": (small(vector(function=2)), 0, "applies 2, which is not there"),
    "a scalar emitted and read by one instruction": (
        small(vector(outer=2, a=A.S, p=20, p_o=1, reduce=Reduce.TAKE, reduce_init=1, reduce_emit=1,
                     r_dest=21), ), 0,
        "must not read what it has written itself"),
    "a kept word read before this command writes it": (
        small(alu(Alu.ADD, 6, 1, 1), vector(x=32, mask=1, length_reg=6, reduce=Reduce.SUM, reduce_init=1),
              vector(a=A.S, w=1, w_word=32, w_single=1, w_tile_reg=1), arguments=("position",), context=4), 1,
        "but only later"),
    "entries that store in different places": (
        small(vector(a=A.S, w=1, w_word=32, w_single=1, w_tile_reg=1), arguments=("position",), context=4,
              more=(vector(a=A.S, w=1, w_word=33, w_single=1, w_tile_reg=1),)), 0, "more does not store "
                                                                                   "what this instruction "
                                                                                   "stores"),
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_programs_pass(name):
    report = check(SOUND[name])
    assert report.ok, str(report)


@pytest.mark.parametrize("name", UNSOUND)
def test_unsound_programs_do_not(name):
    program, address, says = UNSOUND[name]
    if name == "an entry that runs into the next":
        program = replace(program, microcode=program.microcode.copy())
        program.microcode[3] = encode([alu(Alu.ADD, 15)])[0]        # its HALT
    errors = check(program).errors
    assert any(error.address == address and says in str(error) for error in errors), [str(error)
                                                                                      for error in errors]


def test_an_error_says_where_and_what():
    report = check(small(vector(), vector(x=40)))
    assert [str(error) for error in report.errors] == [
        "run: microcode address 1 (small): scratch word 40 must be written before it is read; nothing in "
        "this command has written "
        "it (position 0, slot 0): vector outer=1 inner=1 x=40 a=1"]
    error = report.errors[0]
    assert (error.entry, error.address, error.operator) == ("run", 1, "small")
    assert str(report).startswith("1 violations: 1 entry points, ")


def test_a_report_lists_no_more_than_its_limit():
    broken = small(*(vector(x=40 + n) for n in range(8)))
    assert len(check(broken).errors) == 8
    report = check(broken, limit=3)
    assert (len(report.errors), report.more) == (3, 5)
    assert "8 violations" in str(report) and "and 5 more" in str(report)


@pytest.mark.parametrize("change, says", [
    ({"entries": {"run": Entry(9, (), 8)}}, "must be a microcode address below 2; it is 9"),
    ({"entries": {"run": Entry(0, (), 9)}}, "must be 1 to 8, that of the cache; it is 9"),
    ({"kv": KvLayout(0, 8)}, "must have a slot"),
    ({"array": np.zeros((TINY.rows + 1, LINE_WORDS, TINY.tiles), np.uint32)}, "the device has 4096 array "
                                                                              "rows; the image has 4097"),
])
def test_images_that_do_not_fit(change, says):
    errors = check(replace(small(vector()), **change)).errors
    assert any(says in str(error) for error in errors), errors
