"""Lockstep passes equal devices, and names instruction, place and values between unequal ones."""

import numpy as np
import pytest

from hw.config import preset
from hw.image import Entry, Image, KvLayout
from hw.isa import A, C, Instruction, Opcode, decode, encode
from hw.memorymap import Space
from runtime.device import Device
from runtime.lockstep import Diverged, Lockstep, first_difference
from runtime.transport_model import ModelTransport

TINY = preset("tiny")

ADD_ONE = {"fence": 1, "inner": 2, "a": A.X, "x": 10, "x_i": 1, "c": C.S, "q": 3,
           "w": 1, "w_word": 10, "w_i": 1}
"""scratch[10:12] += scalars[3], in every tile."""

PROGRAM = [
    Instruction(Opcode.VECTOR, {**ADD_ONE, "w_word": 20}),                   # 0
    Instruction(Opcode.LOOP, {"count_reg": 1}),                              # 1
    Instruction(Opcode.VECTOR, ADD_ONE),                                     # 2
    Instruction(Opcode.END),                                                 # 3
    Instruction(Opcode.VECTOR, {**ADD_ONE, "x": 20, "w_word": 30}),          # 4
    Instruction(Opcode.HALT),                                                # 5
]


def image() -> Image:
    scalars = np.zeros(8, np.float32)
    scalars[3] = 1
    return Image(
        config=TINY, entries={"decode@8": Entry(0, ("turns",), 8)}, kv=KvLayout(1, 8), logits=(0, 4),
        argmax=1, operators=[(0, 1, "first"), (1, 4, "loop"), (4, 6, "last")],
        array=np.zeros((0, 10, 4), np.uint32), scratch=np.zeros((0, 4), np.uint32),
        scalars=scalars.view(np.uint32), microcode=encode(PROGRAM), tables=np.zeros((0, 3), np.uint32),
        functions=np.zeros((0, 4), np.uint32))


class WrongTransport(ModelTransport):
    """A device that misreads one microcode word as another instruction, and shows the host the right one."""

    def __init__(self, address: int, instruction: Instruction) -> None:
        super().__init__(TINY, "wrong:")
        self.address, self.wrong = address, encode([instruction])
        self.shown = np.zeros((TINY.microcode, 10), np.uint32)
        self.armed = False

    def arm(self) -> None:
        self.armed = True
        self.write(Space.MICROCODE, 0, self.shown)

    def write(self, space: Space, first: int, values: np.ndarray) -> None:
        if space == Space.MICROCODE:
            self.shown[first:first + len(values)] = values
            at = self.address - first
            if self.armed and 0 <= at < len(values) and decode(values[at:at + 1])[0].opcode != Opcode.HALT:
                values = values.copy()
                values[at] = self.wrong
        super().write(space, first, values)

    def read(self, space: Space, first: int = 0, count: int | None = None) -> np.ndarray:
        if space == Space.MICROCODE:
            return self.shown[first:None if count is None else first + count].copy()
        return super().read(space, first, count)


def lockstep(second) -> Lockstep:
    return Lockstep(Device(ModelTransport(TINY)), Device(second), image())


def test_equal_devices_run_on():
    both = lockstep(ModelTransport(TINY))
    entry = both.image.entries["decode@8"]
    for turns in (1, 3, 2):
        both.submit(entry, turns=turns)
    assert [p.arguments for p in both.pairs] == [{"turns": 1}, {"turns": 3}, {"turns": 2}]
    assert both.first.transport.read(Space.SCRATCH, 10, 1).view(np.float32).tolist() == [[6.0] * 4]
    assert all(p.first.cycles == p.second.cycles > 0 for p in both.pairs)


def diverged(address: int, wrong: Instruction, turns: int) -> str:
    """The message when the second device goes wrong in its third command."""
    second = WrongTransport(address, wrong)
    both = lockstep(second)
    entry = both.image.entries["decode@8"]
    both.submit(entry, turns=1)
    both.submit(entry, turns=1)
    second.arm()
    with pytest.raises(Diverged) as caught:
        both.submit(entry, turns=turns)
    return str(caught.value)


def test_a_wrong_instruction_is_named():
    assert diverged(4, Instruction(Opcode.VECTOR, {**ADD_ONE, "x": 21, "w_word": 30}), 1) == (
        "model: and wrong: differ after command 3 (turns=1), at microcode 4, operator 'last': scratch "
        f"address 31 of tile 0: {bits(4.0)} and {bits(1.0)} (4 words of this space differ); the instruction is: "
        f"{PROGRAM[4]}")


def test_a_loop_that_turns_once_more_is_named():
    assert diverged(1, Instruction(Opcode.LOOP, {"count": 1, "count_reg": 1}), 2) == (
        "model: and wrong: differ after command 3 (turns=2), at microcode 1 to 3, operator 'loop': scratch "
        f"address 10 of tile 0: {bits(4.0)} and {bits(5.0)} (8 words of this space differ); the instruction "
        "is: a loop")


def bits(value: float) -> str:
    return f"{int(np.float32(value).view(np.uint32)):#010x}"


@pytest.mark.parametrize("space, entry, word, tile", [
    (Space.ARRAY, 4095, 9, 3), (Space.SCRATCH, 17, None, 2), (Space.ACCUMULATORS, 127, None, 0),
    (Space.ROW_BUFFER, 31, 0, 1), (Space.OPERANDS, 5, 3, None), (Space.SCALARS, 63, None, None),
    (Space.REGISTERS, 15, None, None), (Space.MICROCODE, 100, 7, None), (Space.TABLES, 1023, 1, None),
    (Space.FUNCTIONS, 15, 2, None),
])
def test_one_bit_of_any_space_is_seen(space, entry, word, tile):
    first, second = Device(ModelTransport(TINY)), Device(ModelTransport(TINY))
    assert first_difference(first, second) is None
    values = second.transport.read(space, entry, 1)
    values[tuple(n for n in (0, word, tile) if n is not None)] ^= 1
    second.transport.write(space, entry, values)
    found = first_difference(first, second)
    assert (found.space, found.address, found.word, found.tile) == (space, entry, word, tile)
    assert (found.first, found.second, found.count) == (0, 1, 1)


def test_differences_are_seen_in_later_chunks(monkeypatch):
    monkeypatch.setattr("runtime.lockstep.CHUNK_WORDS", 64)
    test_one_bit_of_any_space_is_seen(Space.SCRATCH, 4095, None, 3)
