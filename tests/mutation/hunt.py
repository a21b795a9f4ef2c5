"""Look for a random program that shows each fault planted in the core."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tests.conformance.trial import TRIAL, Trial, random_case
from tests.hw.corebench import CoreBench
from tests.mutation.faults import FAULTS, Fault
from tests.mutation.plant import planted_sources

__all__ = ["Catch", "hunt"]


@dataclass(frozen=True)
class Catch:
    """What became of a fault: the test that showed it and what it said, or None for both."""

    fault: Fault
    by: str | None
    what: str | None


def hunt(numbers: Iterable[int], programs: int, done: Callable[[Catch], None] = lambda _: None) -> list[Catch]:
    """Plant the faults one after the other and run programs until one differs from the model.

    `numbers` count from 0 in `FAULTS`. First all programs run without a fault, which must show nothing: raises
    `AssertionError` if one does.
    """
    bench = CoreBench(TRIAL, planted_sources("core", TRIAL, FAULTS))
    trial = Trial(TRIAL, bench)
    cases = [random_case(seed, TRIAL) for seed in range(programs)]
    bench.plant(0)
    for case in cases:
        what = trial.difference(case)
        assert what is None, f"without a fault, seed {case.seed} must show nothing: {what}"
    catches = []
    for number in numbers:
        bench.plant(number + 1)
        catch = Catch(FAULTS[number], None, None)
        for case in cases:
            what = trial.difference(case)
            if what is not None:
                catch = Catch(FAULTS[number], f"random program {case.seed}", what)
                break
        catches.append(catch)
        done(catch)
    return catches
