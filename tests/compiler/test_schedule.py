"""Footprints, dependences, order, tokens and loops of instruction streams."""

import networkx as nx
import numpy as np
import pytest

from compiler.emitter import Emitter, MachineOp, Pool
from compiler.errors import PlacementError
from compiler.footprint import footprint, steps
from compiler.roll import Code, roll
from compiler.schedule import Schedule, conflicts, dependences, schedule_window
from compiler.synchronize import synchronize
from hw.config import preset
from hw.isa import A, Alu, B, D, Instruction, Opcode, Reduce, encode
from hw.memorymap import Space
from hw.timemodel import predict
from hw.timing import latencies
from sim.functional import FunctionalDevice

CONFIG = preset("tiny")
TIMES = latencies(CONFIG)

FOOTPRINTS = {
    "q8 product": (Instruction(Opcode.MULTIPLY, dict(init=1, nj=3, nh=1, nr=5, row=100, row_j=5, row_r=1, block=2,
                                                     block_j=1, acc=8)),
                   {("array", 100, 115), ("operands", 2, 5)}, {("accumulators", 8, 13)}),
    "q4 product adds": (Instruction(Opcode.MULTIPLY, dict(format=1, nj=1, nh=1, nr=5, row=7, row_r=1, acc=8)),
                        {("array", 7, 12), ("operands", 0, 1), ("accumulators", 8, 18)}, {("accumulators", 8, 18)}),
    "length from a register": (Instruction(Opcode.MULTIPLY, dict(init=1, nj=1, nh=2, nr_reg=5, row=0, row_r=1, acc=0,
                                                                 acc_h=20, block_h=4)),
                               {("array", 0, 16), ("operands", 0, 1), ("operands", 4, 5)},
                               {("accumulators", 0, 16), ("accumulators", 20, 36)}),
    "store": (Instruction(Opcode.STORE_ROW, dict(nj=2, row=50, row_j=10, row_reg=5, block=3, block_j=1)),
              {("operands", 3, 5)}, {("array", 51, 77)}),
    "fetch": (Instruction(Opcode.FETCH, dict(nj=4, row=50, row_j=1, acc=6)), {("array", 50, 54)},
              {("row_buffer", 6, 10)}),
    "vector": (Instruction(Opcode.VECTOR, dict(outer=2, inner=8, a=A.ACC, z=4, z_o=8, z_i=1, b=B.X, x=30, x_i=1,
                                               d=D.S, r=9, r_o=1, w=1, w_word=90, w_o=10, w_i=1, quantize=1, block=5,
                                               block_o=1, reduce=Reduce.SUM, reduce_init=1, reduce_emit=1, r_dest=20,
                                               r_dest_o=1)),
               {("scratch", 30, 38), ("accumulators", 4, 20), ("scalars", 9, 11)},
               {("scratch", 90, 98), ("scratch", 100, 108), ("operands", 5, 7), ("scalars", 20, 22),
                ("partials", 0, 1)}),
}


@pytest.mark.parametrize("name", FOOTPRINTS)
def test_footprint(name):
    instruction, reads, writes = FOOTPRINTS[name]
    found = footprint(instruction, {5: (1, 16)}, CONFIG)
    assert set(found.reads) == reads
    assert set(found.writes) == writes


def test_steps_pad_short_passes_and_follow_registers():
    product = Instruction(Opcode.MULTIPLY, dict(nj=3, nh=1, nr_reg=5))
    assert steps(product, {5: (1, 16)}, CONFIG, TIMES.accumulate) == (3 * TIMES.accumulate, 48)
    column = Instruction(Opcode.STORE_COLUMN, dict(nj=3))
    assert steps(column, {}, CONFIG, TIMES.accumulate) == (3 * CONFIG.lanes_per_block,) * 2


def _stream() -> Emitter:
    """A product of one block into four accumulators, drained, normed, quantized again; and unrelated vector work."""
    e = Emitter(CONFIG, {})
    window = e.window("test")
    e.label = "first"
    e.multiply("q8", init=1, nj=1, nr=8, row=0, row_j=8, row_r=1, block=0, acc=0)
    e.vector(inner=8, a=A.ACC, z=0, z_i=1, w=1, w_word=100, w_i=1)
    e.vector(inner=8, a=A.X, x=100, x_i=1, b=B.A, reduce=Reduce.SUM, reduce_init=1, reduce_emit=1, r_dest=3)
    e.vector(inner=8, a=A.X, x=100, x_i=1, b=B.S, p=3, quantize=1, block=1)
    e.label = "second"
    e.multiply("q8", init=1, nj=1, nr=8, row=8, row_j=8, row_r=1, block=1, acc=0)
    e.label = "unrelated"
    e.vector(inner=30, a=A.X, x=200, x_i=1, w=1, w_word=300, w_i=1)
    assert len(window.ops) == 6
    return e


def test_dependences_name_their_reason():
    graph = dependences(_stream().windows[0].ops)
    found = {(a, b): d["why"] for a, b, d in graph.edges(data=True)}
    assert found == {(0, 1): "accumulators", (1, 2): "scratch", (1, 3): "scratch", (2, 3): "scalars",
                     (3, 4): "operands", (0, 4): "order", (1, 4): "order"}
    assert nx.is_directed_acyclic_graph(graph)


def test_scheduler_fills_the_wait_for_the_scalar():
    e = _stream()
    order = schedule_window(e.windows[0], Schedule(CONFIG, TIMES, {}))
    place = {n: k for k, n in enumerate(order)}
    assert place[5] < place[3], "unrelated work belongs into a wait"
    for earlier, later in dependences(e.windows[0].ops).edges:
        assert place[earlier] < place[later]


def test_synchronize_orders_every_conflict_and_nothing_else():
    e = _stream()
    final = synchronize(e.windows[0].ops, {}, CONFIG, TIMES)
    keys = ("wait", "signal", "chain", "fence", "reduce_fence")
    bits = [{k for k in keys if i.values.get(k)} for i in final]
    # product -> drain; drain -> squares in order (chain); squares -> scalar; quantized block -> second product.
    assert bits == [{"signal"}, {"wait"}, {"chain"}, {"chain", "reduce_fence", "signal"}, {"wait"}, set()]


def test_reversed_reader_needs_a_fence_not_a_chain():
    e = Emitter(CONFIG, {})
    e.window("test")
    e.vector(inner=8, a=A.X, x=0, x_i=1, w=1, w_word=100, w_i=1)
    e.vector(outer=8, inner=1, a=A.X, x=107, x_o=-1, w=1, w_word=200, w_o=1)
    final = synchronize(e.windows[0].ops, {}, CONFIG, TIMES)
    assert final[1]["fence"] == 1 and final[1]["chain"] == 0


def test_pool_goes_round_and_says_what_does_not_fit():
    pool = Pool("operands", 2, 10)
    first, second = pool.take(3, "a"), pool.take(3, "b")
    assert (first, second) == (2, 5)
    pool.free(first)
    assert pool.take(2, "c") == 8, "goes on behind the last one while there is room"
    assert pool.take(3, "d") == 2
    with pytest.raises(PlacementError, match=r"^cannot place 'e' \(1 operands\): 8 there are, 0 of them free; use a "
                                             r"preset with more operands or a shorter context$"):
        pool.take(1, "e")


def _layers(count: int) -> list[Code]:
    """Windows that copy one scratch word each, `base` and a register both stepping."""
    return [Code([], [Instruction(Opcode.VECTOR, dict(outer=1, inner=2, a=A.X, x=10 * k, x_i=1, w=1, w_word=500 + 3 * k,
                                                      w_word_reg=2, w_i=1, fence=1)),
                      Instruction(Opcode.VECTOR, dict(outer=1, inner=1, a=A.X, x=700, x_reg=2, w=1, w_word=600 + k,
                                                      fence=1))],
                 ["copy", "mark"]) for k in range(count)]


def _run(words: list[Instruction]) -> tuple[np.ndarray, int]:
    device = FunctionalDevice(CONFIG)
    rng = np.random.default_rng(5)
    device.write(Space.SCRATCH, rng.standard_normal((CONFIG.scratch, CONFIG.tiles)).astype(np.float32).view(np.uint32))
    device.write(Space.MICROCODE, encode(words))
    device.run(0, (0, 7))
    return device.read(Space.SCRATCH), int(device.read(Space.REGISTERS)[2])


@pytest.mark.parametrize("free", [(12, 13, 14, 15), (12, 13)])
def test_rolled_program_does_what_the_unrolled_one_does(free):
    rolled = roll(_layers(20), free, 1000)
    flat = [i for code in _layers(20) for i in code.body] + [Instruction(Opcode.HALT)]
    assert len(rolled.words) < 15 if len(free) == 4 else len(rolled.words) == len(flat)
    loops = [w.opcode for w in rolled.words].count(Opcode.LOOP)
    assert loops == (1 if len(free) == 4 else 0), "too few registers: the run stays unrolled"
    got, register = _run(rolled.words)
    want, _ = _run(flat)
    assert np.array_equal(got, want)
    assert register == 7, "a register that the loop borrowed is given back"


def test_a_program_too_long_is_refused():
    with pytest.raises(PlacementError, match="^the program has 41 words; the microcode memory holds 40: use a preset "
                                             "with more microcode$"):
        roll(_unlike(20), (12,), 40)


def _unlike(count: int) -> list[Code]:
    return [Code([Instruction(Opcode.ALU, dict(fn=Alu.ADD, rd=1, imm=k))],
                 [Instruction(Opcode.VECTOR, dict(outer=1, inner=1 + k % 2))], ["x"]) for k in range(count)]


def test_conflicts_are_symmetric_in_address_not_in_time():
    a = MachineOp(Instruction(Opcode.HALT), "", footprint(FOOTPRINTS["fetch"][0], {}, CONFIG))
    b = MachineOp(Instruction(Opcode.HALT), "", footprint(FOOTPRINTS["vector"][0], {}, CONFIG))
    assert conflicts(a, b) is None
    assert conflicts(a, a) == "order"


def test_a_schedule_overlaps_what_program_order_serializes():
    e = Emitter(CONFIG, {})
    window = e.window("test")
    for k in range(3):      # product, drain, product of the next operand, ...: independent chains, badly interleaved
        e.multiply("q8", init=1, nj=1, nr=30, row=0, row_j=30, row_r=1, block=k, acc=30 * k)
        e.vector(inner=24, a=A.ACC, z=30 * k, z_i=1, quantize=1, block=10 + 3 * k)
        e.multiply("q8", init=1, nj=3, nr=8, row=0, row_j=8, row_r=1, block=10 + 3 * k, acc=100 + 8 * k)
    order = [window.ops[n] for n in schedule_window(window, Schedule(CONFIG, TIMES, {}))]
    cycles = [predict(CONFIG, encode([*synchronize(ops, {}, CONFIG, TIMES), Instruction(Opcode.HALT)]), 0).cycles
              for ops in (window.ops, order)]
    assert cycles[1] < 0.8 * cycles[0]
