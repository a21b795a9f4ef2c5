"""`njit` for code whose meaning hangs on more than its own file: compiled once, kept on disk, never stale.

Numba keeps a compiled function until the file that holds it changes. The interpreters of microcode also depend on the
instruction table, on the latencies and on functions of other files; so their compiled form is kept in a folder named
after the contents of all files of `hw` and `sim` that such code can take part in.
"""

import hashlib
import shutil
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from llvmlite import binding as llvm

from hw.paths import cache_directory

__all__ = ["FEATURES", "njit"]

_KEEP_SECONDS = 7 * 24 * 3600
_ROOT = Path(__file__).parent.parent
_PARTS = ("hw/config.py", "hw/isa.py", "hw/columns.py", "hw/jit.py", "hw/sequence.py", "hw/timemodel.py",
          "hw/timing.py", "sim/functional*.py", "sim/kernels*.py", "sim/numerics*.py")

_settings: Any = numba.config


def _features() -> frozenset[str]:
    if _settings.CPU_NAME is not None:
        # Numba was told to compile for another processor.
        named = (_settings.CPU_FEATURES or "").split(",")
        return frozenset(name.removeprefix("+") for name in named if name.startswith("+"))
    return frozenset(name for name, there in dict(llvm.get_host_cpu_features()).items() if there)


FEATURES: frozenset[str] = _features()
"""Instruction set extensions that compiled code may use, by LLVM's names."""


@cache
def _folder() -> str:
    digest = hashlib.sha256(f"{_settings.CPU_NAME or llvm.get_host_cpu_name()} {sorted(FEATURES)}".encode())
    for pattern in _PARTS:
        for path in sorted(_ROOT.glob(pattern)):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    folder = cache_directory() / "numba"
    for old in folder.glob("*"):
        # What earlier sources left behind and nobody can have open any more.
        if old.stat().st_mtime < time.time() - _KEEP_SECONDS:
            shutil.rmtree(old, ignore_errors=True)
    current = folder / digest.hexdigest()[:16]
    current.mkdir(parents=True, exist_ok=True)
    current.touch()
    return str(current)


def njit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """`numba.njit` with its compiled form kept on disk; IEEE arithmetic as written, integer errors as in C.

    Such functions make no arrays: all working space comes from outside. So nothing needs reference counts, whose atomic
    additions took a third of a model's time.
    """
    if function is None:
        return lambda f: njit(f, **options)
    # Without the interpreter lock, so that a server answers while a device computes.
    options = {"cache": True, "fastmath": False, "error_model": "numpy", "nogil": True, "_nrt": False, **options}
    usual = _settings.CACHE_DIR
    _settings.CACHE_DIR = _folder()
    try:
        return numba.njit(**options)(function)
    finally:
        _settings.CACHE_DIR = usual
