"""The timing recurrence on programs small enough to work out by hand, from the distances of `hw.timing`."""

import numpy as np
import pytest

from hw.config import preset
from hw.isa import A, Instruction, Opcode, Reduce, decode_table, encode
from hw.sequence import MachineError
from hw.timemodel import TOKENS, Prediction, Stall, predict
from hw.timing import latencies

TINY = preset("tiny")
L = latencies(TINY)
I, O = Instruction, Opcode
HALT = I(O.HALT)

FIRST_PUSH = L.start + L.sequencer - 1
FIRST_STEP = FIRST_PUSH + L.push


def timed(*program: Instruction, arguments: tuple[int, ...] = ()) -> Prediction:
    return predict(TINY, encode([*program, HALT]), 0, arguments, record=True)


def vector(steps: int, **values: int) -> Instruction:
    return I(O.VECTOR, {"a": A.X, "inner": steps, **values})


def multiply(nj: int, nr: int, **values: int) -> Instruction:
    return I(O.MULTIPLY, {"nj": nj, "nr": nr, **values})


def test_halt_alone() -> None:
    assert timed().cycles == L.start + L.sequencer - 1 + L.halt


def test_control_words_cost_the_same() -> None:
    loop = [I(O.LOOP, {"count_reg": 1}), I(O.ALU, {"rd": 9}), I(O.END)]
    for turns in (1, 2, 7):
        # LOOP once, ALU and END in each turn, HALT.
        result = timed(*loop, arguments=(turns,))
        assert result.words == 1 + 2 * turns + 1
        assert result.cycles == L.start + L.sequencer * result.words - 1 + L.halt


def test_one_instruction() -> None:
    result = timed(vector(100))
    assert result.records["push"].tolist() == [FIRST_PUSH]
    assert result.records["first"].tolist() == [FIRST_STEP]
    assert result.records["last"].tolist() == [FIRST_STEP + 99]
    assert result.cycles == FIRST_STEP + 99 + L.vector_done + L.halt
    result = timed(vector(100, reduce=Reduce.SUM, reduce_emit=1))
    assert result.cycles == FIRST_STEP + 99 + max(L.vector_done, L.scalar_write) + L.halt
    assert timed(multiply(3, 20)).cycles == FIRST_STEP + 59 + L.matrix_done + L.halt


def test_steps() -> None:
    def steps(instruction: Instruction) -> int:
        record, = timed(instruction).records
        return int(record["last"] - record["first"] + 1)

    assert steps(multiply(5, 3, nh=4)) == 5 * max(12, L.accumulate)
    assert steps(multiply(5, 1)) == 5 * L.accumulate
    assert steps(I(O.FETCH, {"nj": 7})) == 7
    assert steps(I(O.STORE_ROW, {"nj": 7})) == 7
    assert steps(I(O.STORE_COLUMN, {"nj": 7})) == 7 * 32 // TINY.tiles
    assert steps(vector(7, outer=5)) == 35
    assert steps(vector(0, outer=0)) == 1


def test_back_to_back() -> None:
    result = timed(vector(50), vector(60), vector(1), vector(2))
    assert result.records["first"].tolist() == [FIRST_STEP + k for k in (0, 50, 110, 111)]
    assert result.records["stall"].tolist() == [Stall.SEQUENCER, 0, 0, 0]
    assert result.records["stalled"].tolist() == [FIRST_STEP, 0, 0, 0]


def test_sequencer_bounds_short_instructions() -> None:
    result = timed(vector(1), vector(1), vector(1))
    assert np.diff(result.records["first"]).tolist() == [L.sequencer] * 2
    assert result.records["stall"].tolist() == [Stall.SEQUENCER] * 3


def test_full_queue_holds_the_sequencer() -> None:
    many = TINY.queue + 3
    result = timed(*[vector(200)] * many)
    first, push = result.records["first"], result.records["push"]
    assert first.tolist() == [FIRST_STEP + 200 * k for k in range(many)]
    assert push[:TINY.queue].tolist() == [FIRST_PUSH + L.sequencer * k for k in range(TINY.queue)]
    assert push[TINY.queue] == max(FIRST_PUSH + L.sequencer * TINY.queue, first[0] + L.pop)
    assert push[TINY.queue + 1:].tolist() == (first[1:3] + L.pop).tolist()
    # The other engine's instruction behind them waits for the sequencer, not for its own queue.
    late = timed(*[vector(200)] * many, multiply(1, 30)).records[-1]
    assert late["push"] == push[-1] + L.sequencer
    assert late["first"] == late["push"] + L.push and late["stall"] == Stall.SEQUENCER


def test_tokens() -> None:
    result = timed(multiply(1, 100, signal=1), vector(5, wait=1, signal=1), multiply(1, 40, wait=1))
    a, b, c = result.records
    assert b["first"] == a["last"] + L.matrix_done and b["stall"] == Stall.TOKEN
    assert c["first"] == b["last"] + L.vector_done and c["stall"] == Stall.TOKEN
    # The last of three counts; tokens not taken stay.
    result = timed(multiply(1, 10, signal=1), multiply(1, 20, signal=1), multiply(1, 30, signal=1),
                   multiply(1, 40, signal=1), vector(5, wait=3), vector(5, wait=1))
    assert result.records["first"][4] == result.records["last"][2] + L.matrix_done
    assert result.records["first"][5] == result.records["last"][3] + L.matrix_done
    # A token that is long there holds nothing.
    result = timed(multiply(1, 10, signal=1), vector(200), vector(5, wait=1))
    assert result.records["stall"][2] == Stall.NONE


def test_fences() -> None:
    a, b = timed(vector(50), vector(10, fence=1)).records
    assert b["first"] == a["last"] + L.vector_write and b["stall"] == Stall.FENCE
    a, b = timed(multiply(1, 50), multiply(1, 10, fence=1)).records
    assert b["first"] == a["last"] + L.matrix_done and b["stall"] == Stall.FENCE
    a, b = timed(vector(L.vector_write - 4), vector(10, chain=1)).records
    assert b["first"] == max(a["first"] + L.vector_write, b["push"] + L.push)
    assert b["stall"] == Stall.CHAIN and b["stalled"] == 4
    a, b = timed(vector(L.vector_write + 9), vector(10, chain=1)).records
    assert b["first"] == a["last"] + 1 and b["stall"] == Stall.NONE


def test_reduce_fence_looks_for_the_latest_scalar() -> None:
    emit = {"reduce": Reduce.SUM, "reduce_emit": 1}
    a, b, c, d = timed(vector(40, **emit), vector(2), vector(2, reduce=Reduce.SUM), vector(3, reduce_fence=1)).records
    assert d["first"] == a["last"] + L.scalar_write and d["stall"] == Stall.REDUCE_FENCE
    a, b = timed(vector(40), vector(3, reduce_fence=1)).records
    assert b["first"] == a["last"] + 1


def test_engines_run_beside_each_other() -> None:
    result = timed(multiply(4, 100), vector(300))
    assert result.cycles == max(FIRST_STEP + 399 + L.matrix_done,
                                FIRST_STEP + L.sequencer + 299 + L.vector_done) + L.halt
    assert (result.matrix_busy, result.vector_busy, result.row_reads) == (400, 300, 400)


def test_lengths_from_registers() -> None:
    long = timed(multiply(1, 10, nr_reg=1, nj_reg=2), arguments=(20, 4))
    assert long.row_reads == 5 * 30 == long.matrix_busy


def test_decoded_table_is_as_good() -> None:
    words = encode([multiply(2, 9, signal=1), vector(5, wait=1), HALT])
    assert predict(TINY, words, 0) == predict(TINY, decode_table(words), 0)


def test_all_cycles_have_a_cause() -> None:
    result = timed(multiply(3, 40, signal=1), I(O.STORE_ROW, {"nj": 5}), multiply(2, 1, fence=1),
                   vector(30, wait=1, signal=1), multiply(1, 50, wait=1))
    matrix = result.records[result.records["engine"] == 0]
    steps = matrix["last"] - matrix["first"] + 1
    assert matrix["stall"].tolist() == [Stall.SEQUENCER, Stall.NONE, Stall.FENCE, Stall.TOKEN]
    assert (steps - matrix["useful"]).tolist() == [0, 5, 2 * (L.accumulate - 1), 0]
    after = result.cycles - (matrix["last"][-1] + 1)
    assert steps.sum() + matrix["stalled"].sum() + after == result.cycles
    assert result.row_reads == matrix["useful"].sum() and result.utilisation == result.row_reads / result.cycles


def test_refused() -> None:
    with pytest.raises(MachineError, match=r"^microcode address 1: an instruction may wait only for tokens that "
                                           r"earlier instructions give; this one would wait for ever$"):
        timed(multiply(1, 1, signal=1), vector(1, wait=2))
    give = [I(O.LOOP, {"count": TOKENS + 1}), vector(1, signal=1), I(O.END)]
    with pytest.raises(MachineError, match=rf"^microcode address 1: at most {TOKENS} tokens may be given and not yet "
                                           r"taken; this instruction gives one more$"):
        timed(*give)
