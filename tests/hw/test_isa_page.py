"""The reference page in docs/ is the one that the table makes, and it shows what the table says."""

from pathlib import Path

from hw.isa import CONTROL, MATRIX, VECTOR
from hw.isa_page import isa_page

PAGE = Path(__file__).parents[2] / "docs" / "isa.md"


def test_page_in_docs_is_current():
    assert PAGE.read_text() == isa_page(), "run `make docs`"


def test_page_has_every_field_at_its_bits():
    page = isa_page()
    for form in (CONTROL, MATRIX, VECTOR):
        for f in form.fields:
            last = f.offset + f.width - 1
            bits = str(last) if f.width == 1 else f"{last}:{f.offset}"
            assert f"| {bits} | `{f.name}` | {f.width} | {'signed' if f.signed else ''} | {f.meaning} |" in page
