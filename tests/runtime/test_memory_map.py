"""The picture of the memories has every region, in place and to scale."""

import xml.etree.ElementTree as ET

from compiler.compile import compile_model
from hw.config import preset
from runtime.memory_map import LABEL, WIDTH, memory_map
from tests.models.random_gguf import write_random_model

SVG = "{http://www.w3.org/2000/svg}"


def test_every_region_is_drawn_to_scale(tmp_path):
    write_random_model(tmp_path / "model.gguf", seed=1, context=256)
    image = compile_model(tmp_path / "model.gguf", preset("tiny"), context=64, effort=1, checked=False)
    drawn = {}
    for rect in ET.fromstring(memory_map(image)).iter(f"{SVG}rect"):
        title = rect.find(f"{SVG}title")
        if title is not None and title.text:
            drawn[title.text.split(":")[0]] = (float(rect.get("x")), float(rect.get("width")))
    for memory, capacity in (("rows", image.config.rows), ("words", image.config.scratch)):
        for name, base, size in image.report["regions"][memory]:
            x, width = drawn[name]
            assert abs(x - LABEL - base * WIDTH / capacity) < 0.01
            assert abs(width - max(0.3, size * WIDTH / capacity)) < 0.01
