"""Planted faults: three are found by the programs of the plain test suite, and every one still has its place."""

from pathlib import Path

import pytest

import hw.config
from tests.mutation.faults import FAULTS, Fault
from tests.mutation.hunt import hunt
from tests.mutation.plant import PlantError, patched

QUICK = ("fp32: ties round up, not to even", "engine: one token less is enough", "sequencer: a loop runs once more")


def test_every_fault_has_its_place() -> None:
    assert len(FAULTS) >= 20 and len({fault.name for fault in FAULTS}) == len(FAULTS)
    for number, fault in enumerate(FAULTS, 1):
        source = (Path(hw.config.__file__).parent / fault.file).read_text()
        assert f"planted(m, {number}, {fault.wrong}, " in patched(number, fault, source)


def test_a_fault_without_its_place_is_refused() -> None:
    with pytest.raises(PlantError, match=r"^the text of fault 'none' must occur once in hw/ram.py; it occurs 0 times: "
                                         r"change tests/mutation/faults.py with the source$"):
        patched(1, Fault("none", "ram.py", "a «+» b", "-"), "a - b")


@pytest.mark.rtl
def test_three_faults_are_found() -> None:
    catches = hunt([n for n, fault in enumerate(FAULTS) if fault.name in QUICK], programs=6)
    assert [catch.fault.name for catch in catches] == list(QUICK)
    assert [catch.fault.name for catch in catches if catch.seed is None] == []


@pytest.mark.rtl
@pytest.mark.long
def test_all_faults_are_found() -> None:
    assert [catch.fault.name for catch in hunt(range(len(FAULTS)), programs=100) if catch.seed is None] == []
