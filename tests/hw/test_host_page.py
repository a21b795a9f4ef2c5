"""The page of the host port in docs/ is the one that the memory map makes."""

from pathlib import Path

from hw.host_page import host_page
from hw.memorymap import Register, Space

PAGE = Path(__file__).parents[2] / "docs" / "host.md"


def test_page_in_docs_is_current():
    assert PAGE.read_text() == host_page(), "run `make docs`"


def test_page_has_every_register_and_space():
    page = host_page()
    for register in Register:
        assert f"| {int(register):#04x} | `{register.name}` |" in page
    for space in Space:
        assert f"| {int(space)} | `{space.name}` |" in page
