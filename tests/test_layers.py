"""Imports point one way: each part imports only what is more basic than itself."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PARTS = ("hw", "compiler", "sim", "runtime", "fpga", "bench", "tests", "wordline")

CONTRACT = (
    "hw.isa", "hw.config", "hw.latency", "hw.timing", "hw.timemodel", "hw.image", "hw.roofline", "hw.memorymap",
    "hw.errors", "hw.paths",
)
"""The modules of `hw` that describe the machine without being it."""

ALLOWED = {
    "hw": ("hw",),
    "compiler": ("compiler", *CONTRACT),
    "sim": ("sim", "hw"),
    "runtime": ("runtime", "sim", *CONTRACT),
    "fpga": ("fpga", "hw"),
}
"""What a file of each folder may import from the project: a module, or everything below a folder."""

TABLES = {
    # Facts about the machine that all parts share know nothing but each other.
    "hw/errors.py": (), "hw/paths.py": ("hw.errors",), "hw/config.py": ("hw.errors",),
    "hw/isa.py": ("hw.config", "hw.errors"),
}


def imports(source: str) -> Iterator[str]:
    """Modules imported anywhere in a file, inside functions too; `from a import b` gives a and a.b."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: import names from the root"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def forbidden(source: str, allowed: tuple[str, ...]) -> list[str]:
    """Project modules that a file imports and may not."""
    modules = []
    for name in imports(source):
        if name.split(".")[0] not in PARTS or name in ("hw", "compiler", "sim", "runtime", "fpga"):
            continue  # a bare folder is an empty package; its modules appear as folder.module
        if not any(name == a or name.startswith(f"{a}.") for a in allowed):
            modules.append(name)
    return modules


def files(part: str) -> list[Path]:
    return sorted((ROOT / part).rglob("*.py"))


@pytest.mark.parametrize("part", ALLOWED)
def test_a_part_imports_only_what_is_more_basic(part):
    bad = {str(path.relative_to(ROOT)): found for path in files(part)
           if (found := forbidden(path.read_text(), ALLOWED[part]))}
    assert not bad


@pytest.mark.parametrize("name", TABLES)
def test_the_tables_know_nobody(name):
    assert forbidden((ROOT / name).read_text(), TABLES[name]) == []


def test_every_module_says_what_it_is_for():
    silent = [str(path.relative_to(ROOT)) for part in ("hw", "compiler", "sim", "runtime", "fpga", "bench")
              for path in files(part) if not ast.get_docstring(ast.parse(path.read_text()))]
    assert not silent


@pytest.mark.parametrize("source, found", [
    ("from compiler.graph import Node", ["compiler.graph", "compiler.graph.Node"]),
    ("import compiler.graph", ["compiler.graph"]),
    ("def f():\n    from compiler import graph", ["compiler.graph"]),
    ("import wordline", ["wordline"]),
    ("from hw.sequencer import Sequencer", ["hw.sequencer", "hw.sequencer.Sequencer"]),
    ("from hw import sequencer", ["hw.sequencer"]),
    ("from hw import isa", []),
    ("from hw.isa import Opcode", []),
    ("from runtime.session import Session\nimport numpy", []),
    ("from sim.functional import Model", []),
])
def test_the_check_itself_in_runtime(source, found):
    assert forbidden(source, ALLOWED["runtime"]) == found
