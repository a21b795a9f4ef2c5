"""Planted faults: some are found by what the plain test suite runs, and every one still has its place."""

from pathlib import Path

import pytest

import hw.config
from tests.mutation.faults import FAULTS, Fault
from tests.mutation.hostfaults import HOST_FAULTS
from tests.mutation.hosthunt import hunt_host
from tests.mutation.hunt import hunt
from tests.mutation.plant import PlantError, patched

QUICK = ("fp32: ties round up, not to even", "engine: one token less is enough", "sequencer: a loop runs once more")
QUICK_HOST = ("registers: the interrupt needs no enable", "window: the address stays in a burst")


@pytest.mark.parametrize("faults", [FAULTS, HOST_FAULTS], ids=["core", "host"])
def test_every_fault_has_its_place(faults: tuple[Fault, ...]) -> None:
    assert len(faults) >= 20 and len({fault.name for fault in faults}) == len(faults)
    sources = {file: (Path(hw.config.__file__).parent / file).read_text() for file in {f.file for f in faults}}
    for number, fault in enumerate(faults, 1):
        sources[fault.file] = patched(number, fault, sources[fault.file])
        assert f"planted(m, {number}, {fault.wrong}, " in sources[fault.file]


def test_a_fault_without_its_place_is_refused() -> None:
    with pytest.raises(PlantError, match=r"^the text of fault 'none' must occur once in hw/ram.py; it occurs 0 times: "
                                         r"change tests/mutation/faults.py or hostfaults.py with the source$"):
        patched(1, Fault("none", "ram.py", "a «+» b", "-"), "a - b")


@pytest.mark.rtl
def test_three_faults_are_found() -> None:
    catches = hunt([n for n, fault in enumerate(FAULTS) if fault.name in QUICK], programs=6)
    assert [catch.fault.name for catch in catches] == list(QUICK)
    assert [catch.fault.name for catch in catches if catch.by is None] == []


@pytest.mark.rtl
def test_two_faults_of_the_host_port_are_found() -> None:
    catches = hunt_host([n for n, fault in enumerate(HOST_FAULTS) if fault.name in QUICK_HOST])
    assert [catch.fault.name for catch in catches] == list(QUICK_HOST)
    assert [catch.by for catch in catches] == ["`tests.cocotb.hostport.interrupts`",
                                               "`tests.cocotb.hostport.bursts_reach_every_space`"]


@pytest.mark.rtl
@pytest.mark.long
def test_all_faults_are_found() -> None:
    catches = [*hunt(range(len(FAULTS)), programs=100), *hunt_host(range(len(HOST_FAULTS)))]
    assert [catch.fault.name for catch in catches if catch.by is None] == []
