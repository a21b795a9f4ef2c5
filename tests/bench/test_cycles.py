"""Cycles do not get worse unseen: every case equals the recorded baseline, exactly."""

import json

import pytest

from bench.cycles import BASELINE, CASES, changes, measure, picture

RECORDED = json.loads(BASELINE.read_text())


@pytest.mark.parametrize("name", CASES)
def test_cycles_are_the_recorded_ones(name):
    found = measure(CASES[name])
    different = list(changes(RECORDED[name], found))
    assert not different, ("cycles changed; if they should, record them with `python -m bench.cycles --record`:\n"
                           + "\n".join(different))


def test_a_slower_operator_is_named():
    old = RECORDED["small, mixed width, tiny"]
    new = json.loads(json.dumps(old))
    new["31"]["cycles"] += 7
    new["31"]["operators"]["layers.attend"] += 7
    assert [c.split(": ", 1)[1].split(" cycles ")[1] for c in changes(old, new)] == [
        f"({7 / old['31']['cycles']:+.2%}): layers.attend +7"]


def test_the_picture_has_a_line_for_every_case_and_position():
    drawn = picture([("a", RECORDED), ("b", RECORDED)])
    assert drawn.count("<polyline") == sum(len(run) for run in RECORDED.values())
