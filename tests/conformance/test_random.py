"""Fifty random programs on the core's Verilog and the functional model; what shrinking makes of a failure."""

import pytest

from hw.isa import Opcode
from tests.conformance.plan import Plan, size
from tests.conformance.shrink import report, shrink
from tests.conformance.trial import TRIAL, Case, Trial, random_case

PROGRAMS = 50


@pytest.fixture(scope="module")
def trial() -> Trial:
    return Trial(TRIAL)


@pytest.mark.rtl
@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_program(trial: Trial, seed: int) -> None:
    case = random_case(seed, TRIAL)
    what = trial.difference(case)
    if what is not None:
        small = shrink(case, lambda c: trial.legal(c) and trial.difference(c) is not None, budget=200)
        pytest.fail(report(small, trial.difference(small) or what))


def test_programs_use_everything() -> None:
    opcodes, tokens, shared = set(), 0, 0
    for seed in range(PROGRAMS):
        program = random_case(seed, TRIAL).program
        opcodes |= {i.opcode for i in program}
        tokens += sum(i["wait"] for i in program if i.opcode >= Opcode.MULTIPLY)
        shared += sum(i["chain"] for i in program if i.opcode == Opcode.VECTOR)
    assert opcodes == set(Opcode)
    assert tokens > PROGRAMS and shared > PROGRAMS // 5


def test_a_failure_shrinks_to_what_causes_it() -> None:
    """The cause is a multiplication in a loop behind another one: nothing else stays."""
    def multiplies(case: Case) -> bool:
        return sum(i.opcode == Opcode.MULTIPLY for i in case.program) > 1

    case = next(c for seed in range(100) if multiplies(c := random_case(seed, TRIAL)) and size(c.plan) > 20)
    small = shrink(case, multiplies)
    assert multiplies(small) and size(small.plan) == 2
    assert isinstance(small.plan, Plan)
    text = report(small, "a reason")
    assert text.startswith(f"seed {case.seed}, arguments {case.arguments}: a reason\nafter the program\n    0 alu")
    assert text.count("multiply") == 2
