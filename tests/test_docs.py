"""What the pages say exists: commands, targets, files, presets and variables."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

import wordline
from hw.config import PRESETS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = set(get_command(wordline.app).commands)
TARGETS = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))


def code(page: Path) -> str:
    """The parts of a page that are set as code."""
    text = page.read_text()
    return "\n".join(re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_and_targets_exist(page):
    named = set(re.findall(r"(?m)(?:^|[`$(] ?)wordline ([a-z]+)", code(page)))
    assert named <= COMMANDS
    assert set(re.findall(r"(?m)(?:^|`|\$ )make ([a-z]+)", code(page))) <= TARGETS


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_named_files_exist(page):
    for name in re.findall(r"`((?:hw|compiler|sim|runtime|bench|tests|docs|examples)/[\w/.]*)`", page.read_text()):
        assert (ROOT / name).exists(), name


def test_every_command_is_in_the_documentation():
    described = set(re.findall(r"\| `wordline ([a-z]+)", (ROOT / "docs" / "using.md").read_text()))
    assert described == COMMANDS


def test_every_target_is_in_the_readme():
    described = set(re.findall(r"`make ([a-z]+)`", (ROOT / "README.md").read_text()))
    assert TARGETS - {"help"} <= described


def test_presets_in_the_readme_are_those_of_the_table():
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| (\d) \|",
                      (ROOT / "README.md").read_text(), re.MULTILINE)
    found = {name: tuple(int(n.replace(",", "")) for n in numbers) for name, *numbers in rows}
    assert found == {c.name: (c.tiles, c.rows, c.scratch, c.accumulators, c.activation_bits)
                     for c in PRESETS.values()}
