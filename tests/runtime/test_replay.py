"""`wordline replay`: a recorded chat, done again on another device."""

import json

from typer.testing import CliRunner

import wordline
from hw.config import preset
from runtime.conformance.program import WORDS, small_image
from runtime.device import Device


def record(path) -> None:
    with Device.open(f"record:{path}@model:tiny") as device:
        device.load(small_image(preset("tiny")))
        device.submit("copy", source=0, target=4 * WORDS)
        device.read_argmax()


def test_a_recording_is_done_again(tmp_path):
    record(tmp_path / "run.rec")
    done = CliRunner().invoke(wordline.app, ["replay", str(tmp_path / "run.rec"), "-d", "model:", "--json"])
    facts = json.loads(done.stdout)
    assert done.exit_code == 0 and facts["identical"]
    assert (facts["commands"], facts["fences"], facts["reads"], facts["recorded_on"]) == (1, 1, 1, "model:tiny")
    assert facts["cycles"] > 2 * WORDS


def test_a_difference_is_an_exit_code(tmp_path):
    record(tmp_path / "run.rec")
    done = CliRunner().invoke(wordline.app, ["replay", str(tmp_path / "run.rec"), "-d", "null:"])
    assert done.exit_code == 1 and "null: differs from" in done.stdout
