"""The functional model against a slow second one, and against what must be refused."""

import resource
from dataclasses import replace

import numpy as np
import pytest

from hw.config import HardwareConfig, preset
from hw.isa import A, Alu, Instruction, Opcode, RowFormat, encode
from hw.memorymap import SPACE_TABLE, Space
from hw.sequence import MachineError
from hw.timemodel import predict
from sim.functional import FunctionalDevice
from sim.kernels_words import AVAILABLE
from sim.state import State
from tests.randomprogram import ARGUMENTS, random_program, random_state
from tests.sim.slow import Slow

I, O = Instruction, Opcode


def small(tiles: int, **changes: object) -> HardwareConfig:
    return HardwareConfig("small", tiles=tiles, rows=400, accumulators=128, scratch=640, operands=48, row_buffer=8,
                          microcode=256).replace(**changes)


def load(device: FunctionalDevice, state: dict[Space, np.ndarray], program: list[Instruction]) -> None:
    for space, words in state.items():
        device.write(space, words)
    device.write(Space.MICROCODE, encode(program))


@pytest.mark.parametrize("tiles", [1, 2, 4, 16, 32])
@pytest.mark.parametrize("seed", range(4))
def test_random_programs(tiles: int, seed: int) -> None:
    random = np.random.default_rng([tiles, seed])
    config = small(tiles, activation_bits=8 + seed % 2)
    state = random_state(random, config, odd=0.02 if seed < 3 else 0)
    program = random_program(random, config, 30)
    arguments = [int(a) for a in random.integers(0, 1 << 32, ARGUMENTS)]
    device, slow = FunctionalDevice(config), Slow(config, state)
    load(device, state, program)
    completion = device.run(0, arguments)
    slow.run(program, arguments)
    for space in SPACE_TABLE:
        if space not in (Space.MICROCODE, Space.REGISTERS):
            got, wanted = device.read(space), slow.state[space]
            assert np.array_equal(got, wanted), (
                f"tiles {tiles} seed {seed}: {space.name} differs at {np.argwhere(got != wanted)[:4].tolist()}")
    assert device.read(Space.REGISTERS).tolist() == slow.registers
    assert completion.nonfinite == slow.nonfinite
    assert completion.timing == predict(config, encode(program), 0, arguments)


@pytest.mark.skipif(not AVAILABLE, reason="needs a processor with AVX2")
@pytest.mark.parametrize("form", list(RowFormat))
@pytest.mark.parametrize("init", [0, 1])
def test_fast_multiply_is_the_portable_one(form: RowFormat, init: int) -> None:
    random = np.random.default_rng([int(form), init])
    config = small(16, rows=600, accumulators=256)
    state = random_state(random, config)
    # The extreme operand integers, which no quantizer makes all at once.
    state[Space.OPERANDS][:4, :16] = np.array([[255], [-255], [-256], [0]], np.int16).repeat(32, 1).view(np.uint32)
    program = [I(O.MULTIPLY, {"format": form, "init": init, "nj": 6, "nh": 3, "nr": 25, "row": 90, "row_j": -11,
                              "row_h": 70, "row_r": 2, "block_j": 2, "block_h": 5, "acc": 130, "acc_h": -60}),
               I(O.HALT)]
    results = []
    for portable in (False, True):
        device = FunctionalDevice(config, portable=portable)
        load(device, state, program)
        device.run(0)
        results.append(device.read(Space.ACCUMULATORS))
    assert np.array_equal(*results)
    assert not np.array_equal(results[0], state[Space.ACCUMULATORS])


def test_reduction_continues_across_instructions() -> None:
    config = small(4)
    device = FunctionalDevice(config)
    values = np.random.default_rng(5).standard_normal((24, 4)).astype(np.float32)
    device.write(Space.SCRATCH, values.view(np.uint32))
    whole = {"a": A.X, "x_i": 1, "reduce_init": 1, "reduce_emit": 1}
    for reduce, width in ((1, 1), (3, 2)):
        program = [
            I(O.VECTOR, {**whole, "inner": 24, "reduce": reduce, "r_dest": 0}),
            I(O.VECTOR, {**whole, "inner": 7, "reduce": reduce, "reduce_emit": 0}),
            I(O.VECTOR, {**whole, "inner": 17, "x": 7, "index": 7, "reduce": reduce, "reduce_init": 0, "r_dest": 4}),
            I(O.HALT)]
        device.write(Space.MICROCODE, encode(program))
        device.run(0)
        scalars = device.read(Space.SCALARS)
        assert scalars[:width].tolist() == scalars[4:4 + width].tolist()
    assert scalars[:1].view(np.float32)[0] == values.max() and scalars[1] == values.argmax()


@pytest.mark.parametrize("fn, a, b, wanted", [
    (Alu.ADD, 0xFFFF_FFFF, 2, 1), (Alu.SUB, 1, 3, 0xFFFF_FFFE), (Alu.MUL, 0x10001, 0x10001, 0x20001),
    (Alu.SHL, 3, 33, 6), (Alu.SHR, 0x8000_0000, 31, 1), (Alu.AND, 0xF0F0, 0xFF00, 0xF000),
    (Alu.MIN, 0xFFFF_FFFF, 1, 1), (Alu.MAX, 0xFFFF_FFFF, 1, 0xFFFF_FFFF)])
def test_alu(fn: Alu, a: int, b: int, wanted: int) -> None:
    device = FunctionalDevice(small(2))
    program = [I(O.ALU, {"fn": fn, "rd": 10, "ra": 1, "rb": 2}), I(O.ALU, {"fn": fn, "rd": 11, "ra": 1, "imm": b}),
               I(O.ALU, {"fn": Alu.ADD, "rd": 0, "imm": 7}), I(O.HALT)]
    device.write(Space.MICROCODE, encode(program))
    device.run(0, [a, b])
    assert device.read(Space.REGISTERS)[[0, 10, 11]].tolist() == [0, wanted, wanted]


def test_loops() -> None:
    device = FunctionalDevice(small(2))
    add = I(O.ALU, {"fn": Alu.ADD, "rd": 9, "ra": 9, "imm": 1})
    program = [I(O.LOOP, {"count": 2, "count_reg": 1}), I(O.LOOP, {"count": 3}), add, I(O.END), add, I(O.LOOP), add,
               I(O.END), I(O.END), I(O.HALT)]
    device.write(Space.MICROCODE, encode(program))
    device.run(0, [5])
    assert device.read(Space.REGISTERS)[9] == 7 * (3 + 1 + 1)


HALT = I(O.HALT)
REFUSED = [
    ([I(O.MULTIPLY, {"nj": 3, "row": 398, "row_j": 1}), HALT],
     r"microcode address 0: array rows are 0 to 399; this instruction reaches 398 to 400"),
    ([I(O.MULTIPLY, {"nj": 3, "row": 1, "row_j": -1}), HALT],
     r"microcode address 0: array rows are 0 to 399; this instruction reaches -1 to 1"),
    ([I(O.MULTIPLY, {"format": 1, "nr": 3, "acc": 124}), HALT],
     r"microcode address 0: accumulators are 0 to 127; this instruction reaches 124 to 129"),
    ([I(O.ALU, {"rd": 9}), I(O.STORE_ROW, {"block": 48}), HALT],
     r"microcode address 1: operand blocks are 0 to 47; this instruction reaches 48 to 48"),
    ([I(O.FETCH, {"nj": 9}), HALT],
     r"microcode address 0: row buffer entries are 0 to 7; this instruction reaches 0 to 8"),
    ([I(O.VECTOR, {"a": A.X, "x": 600, "inner": 41, "x_i": 1}), HALT],
     r"microcode address 0: scratch words are 0 to 639; this instruction reaches 600 to 640"),
    ([I(O.VECTOR, {"a": A.S, "p": 63, "p_o": 1, "outer": 2}), HALT],
     r"microcode address 0: scalars are 0 to 63; this instruction reaches 63 to 64"),
    ([I(O.VECTOR, {"a": A.S, "quantize": 1, "inner": 9}), HALT],
     r"microcode address 0: an inner loop that quantizes has a multiple of 32/T iterations; this one has not"),
    ([I(O.VECTOR, {"a": 7}), HALT],
     r"microcode address 0: a selector has one of its listed values; this word has another"),
    ([I(O.MULTIPLY, {"format": 3}), HALT],
     r"microcode address 0: this device does not decode the row format of this instruction"),
    ([I(O.LOOP)] * 5, r"microcode address 4: loops nest at most 4 deep; this LOOP is deeper"),
    ([I(O.END)], r"microcode address 0: an END needs an open LOOP; none is open"),
    ([I(O.ALU), I(O.VECTOR, {"a": A.S, "wait": 1})],
     r"microcode address 1: an instruction may wait only for tokens that earlier instructions give; this one would "
     r"wait for ever"),
]


@pytest.mark.parametrize("program, message", REFUSED)
def test_refused(program: list[Instruction], message: str) -> None:
    config = small(4)
    state = random_state(np.random.default_rng(1), config)
    device = FunctionalDevice(config)
    load(device, state, program)
    with pytest.raises(MachineError, match=f"^{message}$"):
        device.run(0)
    for space in (Space.ARRAY, Space.SCRATCH, Space.ACCUMULATORS, Space.OPERANDS, Space.ROW_BUFFER, Space.SCALARS):
        assert np.array_equal(device.read(space), state[space])


def test_refused_ends() -> None:
    device = FunctionalDevice(small(4, microcode=3))
    device.write(Space.MICROCODE, encode([I(O.ALU)] * 3))
    with pytest.raises(MachineError, match=r"^microcode address 3: a command ends with HALT; this one runs past the "
                                           r"last word of the microcode memory$"):
        device.run(0)
    device.write(Space.MICROCODE, np.full((1, 10), 0xF, np.uint32))
    with pytest.raises(MachineError, match=r"^microcode address 0: opcodes are 0 to 8; this word has another$"):
        device.run(0)
    device.write(Space.MICROCODE, encode([I(O.LOOP, {"count": 100}), I(O.END), HALT]))
    with pytest.raises(MachineError, match=r"^microcode address [01]: a command ends with HALT; this one exceeded "
                                           r"the limit of executed words$"):
        device.run(0, limit=50)
    with pytest.raises(MachineError, match=r"^a command takes up to 8 arguments; got 9$"):
        device.run(0, range(9))


def test_host_form() -> None:
    config = small(4)
    state = random_state(np.random.default_rng(3), config)
    device = FunctionalDevice(config)
    for space, words in state.items():
        device.write(space, words)
        assert np.array_equal(device.read(space), words), space
        assert np.array_equal(device.view(space), words), space
        assert np.array_equal(device.read(space, 3, 2), words[3:5])
    device.write(Space.ARRAY, np.arange(20, dtype=np.uint32).reshape(2, 10), address=5, tile=2)
    assert device.read(Space.ARRAY, 5, 2, tile=2).tolist() == np.arange(20).reshape(2, 10).tolist()
    assert np.array_equal(device.read(Space.ARRAY, 5, 2, tile=1), state[Space.ARRAY][5:7, :, 1])
    device.write(Space.REGISTERS, np.arange(5, 37, dtype=np.uint32))
    assert device.read(Space.REGISTERS)[:2].tolist() == [0, 6]
    device.reset()
    for space, words in state.items():
        assert not device.read(space).any() and words.any(), space


@pytest.mark.parametrize("call, message", [
    (lambda d: d.read(Space.SCRATCH, 630, 11), r"scratch has entries 0 to 639; got 630 to 640"),
    (lambda d: d.write(Space.SCALARS, np.zeros(2, np.uint32), 63), r"scalars has entries 0 to 63; got 63 to 64"),
    (lambda d: d.write(Space.ARRAY, np.zeros((1, 10, 3), np.uint32)),
     r"array: data of shape \(1, 10, 4\) was wanted; got \(1, 10, 3\)"),
    (lambda d: d.read(Space.SCALARS, tile=0), r"scalars belongs to no tile; got tile 0"),
    (lambda d: d.read(Space.ARRAY, tile=4), r"array has tiles 0 to 3; got tile 4"),
    (lambda d: d.write(Space.OPERANDS, np.full((1, 17), 0x100, np.uint32)),
     r"operand integers of 9 bits are -256 to 255; got 0 to 256"),
])
def test_host_refused(call: object, message: str) -> None:
    with pytest.raises(MachineError, match=f"^{message}$"):
        call(FunctionalDevice(small(4)))  # type: ignore[operator]


def test_too_many_tiles() -> None:
    with pytest.raises(MachineError, match=r"^the functional model runs up to 32 tiles; configuration 'paper' has "
                                           r"256: use the timing model for it$"):
        State(preset("paper"))


def test_memory_is_lazy() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    device = FunctionalDevice(replace(preset("w16"), rows=1 << 24))  # 10 GB of rows
    device.write(Space.ARRAY, np.ones((100, 10, 16), np.uint32), 1 << 20)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000
