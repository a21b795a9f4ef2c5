"""A small image without a model behind it, which exercises whatever carries commands to a device."""

import numpy as np

from hw.config import LINE_WORDS, HardwareConfig
from hw.image import Entry, Image, KvLayout, KvPlane
from hw.isa import FUNCTIONS, TABLE_ENTRIES, A, Alu, C, Instruction, Opcode, Reduce, encode
from hw.memorymap import Space

__all__ = ["PLANES", "PROGRAM", "WORDS", "small_image"]

WORDS = 16
"""Words of every vector in the program: whole blocks of 32 elements with two tiles or more."""

PROGRAM = [
    # infinite: infinity to the quantizer.
    Instruction(Opcode.VECTOR, {"inner": WORDS, "a": A.S, "p": 3, "quantize": 1}),
    Instruction(Opcode.HALT),
    # COPY and add: scratch[to + i] = scratch[from + i] + scalar 1, sum to scalar 4, argmax to scalars 6
    # and 7.
    Instruction(Opcode.VECTOR, {
        "inner": WORDS, "a": A.X, "x_reg": 1, "x_i": 1, "c": C.S, "q": 1, "w": 1, "w_word_reg": 2, "w_i": 1,
        "reduce": Reduce.SUM, "reduce_init": 1, "reduce_emit": 1, "r_dest": 4}),
    Instruction(Opcode.VECTOR, {
        "inner": WORDS, "fence": 1, "a": A.X, "x_reg": 2, "x_i": 1,
        "reduce": Reduce.ARGMAX, "reduce_init": 1, "reduce_emit": 1, "r_dest": 6}),
    Instruction(Opcode.HALT),
    # loop: some turns of nothing.
    Instruction(Opcode.LOOP, {"count": 0, "count_reg": 1}),
    Instruction(Opcode.ALU, {"fn": Alu.ADD, "rd": 9, "ra": 9, "imm": 3}),
    Instruction(Opcode.END),
    Instruction(Opcode.HALT),
    # stuck: waits for a token that nobody gives.
    Instruction(Opcode.VECTOR, {"inner": WORDS, "wait": 1, "a": A.X, "w": 1, "w_word": 0}),
    Instruction(Opcode.HALT),
]
_INFINITE, _COPY, _LOOP, _HALT, _STUCK = 0, 2, 5, 8, 9

PLANES = (
    KvPlane(int(Space.ARRAY), first=64, count=3, step=8, slot=4, tokens=4),
    KvPlane(int(Space.SCRATCH), first=8 * WORDS, count=1, step=0, slot=16, tokens=1),
)
"""Rows and words that belong to the two slots of the KV cache: no program of this image touches them."""


def small_image(config: HardwareConfig, seed: int = 1) -> Image:
    """An image whose entry points are those of `PROGRAM`, with random contents that no program changes
    back.
    """
    random = np.random.default_rng(seed)
    array = random.integers(0, 1 << 32, (40, LINE_WORDS, config.tiles), np.uint32)
    scratch = random.standard_normal((4 * WORDS, config.tiles), np.float32)
    scalars = np.array([0, 0.5, 2, np.inf], np.float32)
    return Image(
        config=config,
        entries={"infinite": Entry(_INFINITE, (), 1), "copy": Entry(_COPY, ("source", "target"), 1),
                 "loop": Entry(_LOOP, ("turns",), 1), "halt": Entry(_HALT, tuple("abcdefgh"), 1),
                 "stuck": Entry(_STUCK, (), 1)},
        kv=KvLayout(slots=2, context=16, planes=PLANES), logits=(WORDS, WORDS * config.tiles - 1), argmax=7,
        array=array, scratch=scratch.view(np.uint32), scalars=scalars.view(np.uint32),
        microcode=encode(PROGRAM),
        tables=random.integers(0, 1 << 19, (TABLE_ENTRIES, 3), np.uint32),
        functions=np.zeros((FUNCTIONS, 4), np.uint32),
        operators=[(_INFINITE, _COPY, "infinite"), (_COPY, _LOOP, "copy"), (_LOOP, _STUCK, "loop"),
                   (_STUCK, _STUCK + 2, "stuck")], model={"name": "small"}, report={"rows": 88})

