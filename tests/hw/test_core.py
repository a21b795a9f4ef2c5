# amaranth: UnusedElaboratable=no
"""The core against the functional model, one hazard, distance or port at a time.

Random programs are in `tests.conformance`; here every program has one point. A program whose order depends on a
token, a fence or a chain is run a second time without it: then it must go wrong, or it would not show that the
distance is long enough.
"""

import re

import numpy as np
import pytest

from hw.config import ConfigError, HardwareConfig
from hw.core import Core
from hw.isa import A, Alu, B, C, D, Instruction, Opcode, Reduce, RowFormat, encode
from hw.memorymap import SPACE_TABLE, Space
from hw.tile import Tile
from hw.timing import latencies
from hw.top import sources
from sim.functional import FunctionalDevice
from tests.conformance.trial import TRIAL
from tests.hw.corebench import CoreBench, bench_sources
from tests.randomprogram import random_state

pytestmark = pytest.mark.rtl

SYNC = ("wait", "signal", "fence", "chain", "reduce_fence")
UPPER = TRIAL.scratch // 2
BLOCK_WORDS = TRIAL.lanes_per_block


def alu(fn: Alu = Alu.ADD, rd: int = 0, ra: int = 0, rb: int = 0, imm: int = 0) -> Instruction:
    return Instruction(Opcode.ALU, {"fn": fn, "rd": rd, "ra": ra, "rb": rb, "imm": imm})


def multiply(**values: int) -> Instruction:
    return Instruction(Opcode.MULTIPLY, {"format": RowFormat.Q8, "row_r": 1, "block_j": 1, **values})


def fetch(**values: int) -> Instruction:
    return Instruction(Opcode.FETCH, {"row_j": 1, **values})


def vector(**values: int) -> Instruction:
    return Instruction(Opcode.VECTOR, {"outer": 1, "a": A.X, "b": B.ONE, "c": C.ZERO, "d": D.ONE, "x_i": 1, "w_i": 1,
                                       **values})


def store(opcode: Opcode, **values: int) -> Instruction:
    return Instruction(opcode, {"row_j": 3, "block_j": 1, **values})


def loop(count: int, *body: Instruction, **values: int) -> list[Instruction]:
    return [Instruction(Opcode.LOOP, {"count": count, **values}), *body, Instruction(Opcode.END)]


# Right with their synchronisation, wrong without.
NEEDED: dict[str, list[Instruction]] = {
    "scratch word, fence": [
        vector(inner=9, w=1, w_word=UPPER),
        vector(inner=9, x=UPPER, w=1, w_word=UPPER + 20, fence=1)],
    "scratch words in order, chain": [
        vector(inner=10, w=1, w_word=UPPER),
        vector(inner=10, x=UPPER, w=1, w_word=UPPER + 20, chain=1)],
    "scalar, reduce_fence": [
        vector(inner=5, reduce=Reduce.SUM, reduce_init=1, reduce_emit=1, r_dest=3),
        vector(inner=5, b=B.S, p=3, w=1, w_word=UPPER, reduce_fence=1)],
    "scalar of another instruction before, reduce_fence": [
        vector(inner=5, reduce=Reduce.MAX, reduce_init=1, reduce_emit=1, r_dest=3),
        vector(inner=2),
        vector(inner=5, b=B.S, p=3, w=1, w_word=UPPER, reduce_fence=1)],
    "accumulators, token": [
        multiply(init=1, nj=2, nr=6, acc=2, row_j=20, signal=1),
        vector(a=A.ACC, z=2, z_i=1, inner=6, w=1, w_word=UPPER, wait=1)],
    "last accumulator, token": [
        multiply(init=1, nr=6, acc=2, signal=1),
        vector(a=A.ACC, z=7, inner=1, w=1, w_word=UPPER, wait=1)],
    "row buffer, token": [
        fetch(nj=3, row=5, acc=1, signal=1),
        vector(a=A.ROW_ELEMENT, b=B.ROW_SCALE, c=C.ROW_MINIMUM, z=3, inner=BLOCK_WORDS, w=1, w_word=UPPER, wait=1)],
    "row for all tiles, token": [
        alu(rd=9, imm=2), fetch(nj=3, row=5, acc=1, all=1, tile_reg=9, signal=1),
        vector(a=A.ROW_WORD, z=3, inner=8, w=1, w_word=UPPER, wait=1)],
    "operand block, token": [
        vector(inner=BLOCK_WORDS, quantize=1, block=7, signal=1),
        multiply(init=1, nr=5, block=7, wait=1)],
    "operand block into a row, token": [
        vector(inner=2 * BLOCK_WORDS, quantize=1, narrow=1, block=7, signal=1),
        store(Opcode.STORE_ROW, nj=1, block=8, row=11, wait=1)],
    "operand block into columns, token": [
        vector(inner=2 * BLOCK_WORDS, quantize=1, narrow=1, block=7, signal=1),
        store(Opcode.STORE_COLUMN, nj=2, block=7, row=11, row_r=5, wait=1)],
    "accumulators in another order, fence": [
        multiply(init=1, nr=6, acc=2),
        multiply(nr=1, acc=7, row=30, fence=1)],
    "accumulator still read, token": [
        vector(outer=5, a=A.ACC, z=2, z_o=1, inner=8, w=1, w_word=UPPER, w_o=8, signal=1),
        multiply(init=1, nr=5, acc=2, wait=1)],
    "operand block still read, token": [
        multiply(init=1, nj=30, nr=4, block=3, row_j=4, signal=1),
        vector(inner=2 * BLOCK_WORDS, quantize=1, block=31, wait=1)],
}

# Right as they are.
PLAIN: dict[str, list[Instruction]] = {
    "nothing": [],
    "row stored, row fetched": [store(Opcode.STORE_ROW, nj=2, row=8), fetch(nj=6, row=8)],
    "columns stored, rows multiplied": [
        alu(rd=9, imm=21), store(Opcode.STORE_COLUMN, nj=2, row=8, row_r=1, column_reg=9),
        multiply(init=1, nr=12, row=8, block=5)],
    "accumulators continued": [
        multiply(init=1, nj=3, nr=4, row_j=4), multiply(nj=3, nr=4, row=12, row_j=4, block=3),
        multiply(nj=3, nr=4, row=24, row_j=4, block=6)],
    "pass of one row": [multiply(init=1, nj=7, nr=1, row_j=1), multiply(nj=2, nr=1, row=7, row_j=1, block=7)],
    "pass of three rows in groups": [multiply(init=1, nj=4, nh=3, nr=1, row_j=3, row_h=1, block_h=2, acc_h=2)],
    "two output rows": [multiply(format=RowFormat.Q4, init=1, nj=3, nr=2, row_j=2),
                        multiply(format=RowFormat.F4, init=1, nj=3, nr=3, row=40, row_j=3, acc=20)],
    "formats in a row": [multiply(format=f, init=1, nr=4, acc=8 * n)
                         for n, f in enumerate((RowFormat.Q8, RowFormat.F4, RowFormat.Q4, RowFormat.Q8))],
    "more instructions than a queue holds": [vector(inner=3, w=1, w_word=UPPER + 3 * n, x=n) for n in range(15)],
    "engines beside each other": [
        *(multiply(init=1, nr=9, acc=16 * n, row=n) for n in range(6)),
        *(vector(outer=3, x_o=5, w_o=5, inner=5, w=1, w_word=UPPER + 15 * n) for n in range(6))],
    "counts of zero": [multiply(init=1), vector(w=1, w_word=UPPER), fetch(row=3)],
    "register used by the next word": [
        alu(rd=9, imm=3), alu(Alu.MUL, rd=9, ra=9, imm=7), alu(Alu.SHL, rd=10, ra=9, imm=2),
        alu(Alu.SUB, rd=11, ra=10, rb=9, imm=1), alu(Alu.AND, rd=12, ra=11, imm=0x3C),
        alu(Alu.MIN, rd=13, ra=12, rb=9), alu(Alu.MAX, rd=14, ra=12, rb=9), alu(Alu.SHR, rd=15, ra=14, imm=33),
        vector(inner=2, w=1, w_word=UPPER, w_word_reg=14)],
    "four loops": loop(2, *loop(3, alu(rd=9, ra=9, imm=1), *loop(1, *loop(0, alu(rd=10, ra=10, rb=9)), count_reg=9))),
    "loop around an instruction": [
        alu(rd=9, imm=UPPER),
        *loop(5, vector(inner=3, x_i=1, w=1, w_word_reg=9), alu(rd=9, ra=9, imm=3))],
    "sum over two instructions": [
        vector(inner=7, reduce=Reduce.SUM, reduce_init=1),
        vector(inner=6, x=7, reduce=Reduce.SUM, reduce_emit=1, r_dest=8)],
    "position of the maximum over two instructions": [
        vector(inner=7, reduce=Reduce.ARGMAX, absolute=1, reduce_init=1),
        vector(inner=6, x=7, index=7, reduce=Reduce.ARGMAX, absolute=1, reduce_emit=1, r_dest=8)],
    "length in the middle of a word": [
        alu(rd=9, imm=TRIAL.tiles * 6 + 3),
        vector(outer=2, x_o=9, inner=8, mask=1, index=2, length_reg=9, w=1, w_word=UPPER, w_o=8, quantize=1, block_o=1,
               reduce=Reduce.SUM, reduce_init=1, reduce_emit=1, r_dest_o=1)],
    "tokens in advance": [
        *(vector(inner=1, signal=1) for _ in range(9)), multiply(init=1, nr=4, wait=9)],
}


@pytest.fixture(scope="module")
def bench() -> CoreBench:
    return CoreBench(TRIAL)


@pytest.fixture(scope="module")
def model() -> FunctionalDevice:
    return FunctionalDevice(TRIAL)


def load(bench: CoreBench, model: FunctionalDevice, program: list[Instruction]) -> None:
    state = random_state(np.random.default_rng(7), TRIAL, odd=0.0)
    state[Space.MICROCODE] = np.zeros(SPACE_TABLE[Space.MICROCODE].shape(TRIAL), np.uint32)
    words = encode([*program, Instruction(Opcode.HALT)])
    state[Space.MICROCODE][:len(words)] = words
    for space, data in state.items():
        bench.write(space, data)
        model.write(space, data)


def differing(bench: CoreBench, model: FunctionalDevice) -> list[str]:
    """Names of the spaces that differ."""
    return [space.name for space in Space if not np.array_equal(bench.read(space), model.view(space))]


@pytest.mark.parametrize("name", [*NEEDED, *PLAIN])
def test_program(bench: CoreBench, model: FunctionalDevice, name: str) -> None:
    load(bench, model, (NEEDED | PLAIN)[name])
    wanted = model.run(0, (5, 6))
    assert bench.run(0, (5, 6)) == (wanted.cycles, wanted.nonfinite)
    assert differing(bench, model) == []


@pytest.mark.parametrize("name", NEEDED)
def test_synchronisation_is_needed(bench: CoreBench, model: FunctionalDevice, name: str) -> None:
    load(bench, model, [Instruction(i.opcode, {k: v for k, v in i.values.items() if k not in SYNC})
                        for i in NEEDED[name]])
    wanted = model.run(0)
    cycles, _ = bench.run(0)
    assert cycles == wanted.cycles
    assert differing(bench, model) != []


@pytest.mark.long
def test_clocks_that_never_sleep_change_nothing(model: FunctionalDevice) -> None:
    """Boards without clock gates run all parts all the time."""
    sources = bench_sources(TRIAL)
    gate = "assign gated = clk & open;"
    assert gate in sources["wordline_ram.v"]
    sources["wordline_ram.v"] = sources["wordline_ram.v"].replace(gate, "assign gated = clk;")
    awake = CoreBench(TRIAL, sources)
    for program in (NEEDED | PLAIN).values():
        load(awake, model, program)
        wanted = model.run(0, (5, 6))
        assert awake.run(0, (5, 6)) == (wanted.cycles, wanted.nonfinite)
        assert differing(awake, model) == []


@pytest.mark.parametrize("space", list(Space))
def test_host_reads_what_it_wrote(bench: CoreBench, model: FunctionalDevice, space: Space) -> None:
    random = np.random.default_rng(int(space))
    state = random_state(random, TRIAL)
    data = state.get(space)
    if data is None:
        data = random.integers(0, 1 << 32, SPACE_TABLE[space].shape(TRIAL), dtype=np.uint32)
    before = {other: bench.read(other) for other in Space if other != space}
    bench.write(space, data)
    model.write(space, data)
    np.testing.assert_array_equal(bench.read(space), model.view(space))
    for other, content in before.items():
        np.testing.assert_array_equal(bench.read(other), content, err_msg=other.name)


@pytest.mark.parametrize("space", [Space.ARRAY, Space.ROW_BUFFER, Space.MICROCODE, Space.FUNCTIONS, Space.OPERANDS])
def test_host_writes_parts_of_a_line(bench: CoreBench, space: Space) -> None:
    """Words everywhere, single bytes in the array."""
    random = np.random.default_rng(3)
    old = bench.read(space)
    strobed = [2] if space == Space.FUNCTIONS else [1, 6]
    strobe = sum(0xF << 4 * word for word in strobed)
    if space == Space.ARRAY:
        strobe &= 0x5 << 4 * strobed[0] | 0x8 << 4 * strobed[1]
    data = np.full_like(old, random.integers(0, 1 << 32, dtype=np.uint32)) if space != Space.OPERANDS else \
        np.full_like(old, 0x0012_FFF3)
    bench.write(space, data, strobe=strobe)
    wanted = old.copy()
    per_line = [strobed] if space != Space.OPERANDS else [strobed, [10 + word for word in strobed]]
    for words in per_line:
        for word in words:
            enabled = sum(0xFF << 8 * n for n in range(4) if strobe >> 4 * (word % 10) + n & 1)
            wanted[:, word] = (old[:, word] & ~np.uint32(enabled)) | (data[:, word] & np.uint32(enabled))
    np.testing.assert_array_equal(bench.read(space), wanted)


def test_reset_ends_a_command_and_keeps_the_memories(bench: CoreBench, model: FunctionalDevice) -> None:
    load(bench, model, loop(60_000, vector(inner=9, w=1, w_word=UPPER), multiply(init=1, nj=9, nr=9, row_j=1)))
    with pytest.raises(RuntimeError, match=r"^the command at 0 should end within 3000 cycles; it did not$"):
        bench.run(0, limit=3000)
    bench.reset()
    for space in (Space.ARRAY, Space.OPERANDS, Space.MICROCODE, Space.TABLES):
        np.testing.assert_array_equal(bench.read(space), model.view(space), err_msg=space.name)
    load(bench, model, NEEDED["operand block, token"])
    assert bench.run(0)[0] == model.run(0).cycles
    assert differing(bench, model) == []


def test_flag_for_words_that_are_not_finite(bench: CoreBench, model: FunctionalDevice) -> None:
    program = [vector(inner=BLOCK_WORDS, quantize=1)]
    load(bench, model, program)
    scratch = model.view(Space.SCRATCH).copy()
    for word, flag in ((0x7F80_0000, True), (0xFF80_0000, True), (0x7FC0_0000, True), (0x7F7F_FFFF, False)):
        scratch[5, 2] = word
        bench.write(Space.SCRATCH, scratch)
        model.write(Space.SCRATCH, scratch)
        assert bench.run(0)[1] == model.run(0).nonfinite == flag


def test_tiles_share_their_simulation(bench: CoreBench) -> None:
    """One C++ function for all copies of the tile: when they differ, a simulation of 16 tiles is twice as slow."""
    text = "".join(file.read_text() for file in (bench.path.parent / "cpp").glob("Vtop_tile__*.cpp"))
    owners = re.findall(r"^void Vtop_tile___\w+?__DOT__tile_(\d+)__\d+\(Vtop_tile\* vlSelf\) {", text, re.MULTILINE)
    assert owners and set(owners) == {"0"}


def test_no_more_than_32_tiles() -> None:
    many = HardwareConfig("many", tiles=64, rows=64)
    for part in (Core, Tile, sources):
        with pytest.raises(ConfigError, match=r"^Verilog is made of devices of 1 to 32 tiles; 'many' has 64: use a "
                                              r"smaller preset$"):
            part(many)


def test_the_distances_are_those_of_the_pipelines() -> None:
    """Numbers that a person has counted in the drawing of docs/machine.md."""
    counted = latencies(TRIAL)
    assert (counted.accumulate, counted.matrix_done, counted.vector_write, counted.vector_done) == (4, 11, 15, 17)
