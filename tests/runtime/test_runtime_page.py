"""The program in docs/runtime.md runs, on a small model in place of the large one."""

import re
from pathlib import Path

from compiler.compile import compile_model
from hw import image as images
from hw.config import preset
from tests.models.random_gguf import write_random_model

PAGE = Path(__file__).parents[2] / "docs" / "runtime.md"


def test_the_program_of_the_page_runs(tmp_path, monkeypatch, capsys):
    path = write_random_model(tmp_path / "small.gguf", layers=1).path
    image = compile_model(path, preset("tiny"), context=256)
    monkeypatch.setattr(images, "load", lambda name: image)
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(program, str(PAGE), "exec"), {})
    cycles, best, shape = re.fullmatch(r"(\d+) (\d+) \((\d+),\)\n", capsys.readouterr().out).groups()
    assert int(cycles) > 1000 and 0 <= int(best) < int(shape) == image.logits[1]
