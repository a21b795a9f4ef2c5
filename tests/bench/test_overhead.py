"""What the host may cost, in CPU time on a device that does nothing; the bounds of docs/runtime.md."""

from bench.overhead import measured


def test_submits_and_decode_steps_stay_below_their_bounds():
    found = measured("tiny", count=500, turns=5)
    assert found["submit"] <= 5 and found["submit_command_buffer"] <= 5
    assert found["decode_step_session_greedy"] <= 50 and found["decode_step_engine"] <= 50
