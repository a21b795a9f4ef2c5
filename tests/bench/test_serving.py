"""The load test of the server, in small: it ends by itself and says that nothing was lost."""

import json
import sys

from bench import serving


def test_streams_are_counted(monkeypatch, tmp_path, capsys) -> None:
    output = tmp_path / "serving.json"
    monkeypatch.delenv("WORDLINE_RECORD", raising=False)
    monkeypatch.setattr(sys, "argv", ["serving", "--seconds", "1", "--clients", "6", "--slots", "2", "--tokens", "8",
                                      "--output", str(output)])
    serving.main()
    facts = json.loads(output.read_text())
    assert facts == json.loads(capsys.readouterr().out)
    assert facts["benchmark"] == "serving" and facts["finished"] > 0
    assert facts["lost"] == facts["wrong"] == facts["slots_leaked"] == facts["queue_left"] == 0
