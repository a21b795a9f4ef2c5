"""What registers hold before reset does not matter: builds with unknown contents agree with the model."""

import pytest

from tests.conformance.trial import Trial, config_of, random_case
from tests.hw.corebench import CoreBench

FLAGS = ("--x-initial", "unique", "--x-assign", "unique")


@pytest.mark.rtl
@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_unknown_contents(seed: int) -> None:
    config = config_of(2)
    trial = Trial(config, CoreBench(config, extra_flags=FLAGS, seed=seed, quick=True))
    for program in range(6):
        assert trial.difference(random_case(program, config)) is None
