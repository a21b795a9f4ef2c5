"""`njit` for code whose meaning hangs on more than its own file: compiled once, kept on disk, never stale.

Numba keeps a compiled function until the file that holds it changes. The interpreters of microcode also depend on the
instruction table, on the latencies and on functions of other files; so their compiled form is kept in a folder named
after the contents of all files of `hw` and `sim` that such code can take part in.
"""

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from llvmlite import binding as llvm

from hw.paths import cache_directory

__all__ = ["FEATURES", "njit"]

_ROOT = Path(__file__).parent.parent
_PARTS = ("hw/config.py", "hw/isa.py", "hw/columns.py", "hw/jit.py", "hw/sequence.py", "hw/timemodel.py",
          "hw/latency.py", "hw/timing.py", "sim/functional*.py", "sim/kernels*.py", "sim/numerics*.py")

FEATURES: dict[str, bool] = dict(llvm.get_host_cpu_features())
"""Instruction set extensions of this processor by LLVM's names."""


@cache
def _folder() -> str:
    digest = hashlib.sha256(llvm.get_host_cpu_name().encode())
    for pattern in _PARTS:
        for path in sorted(_ROOT.glob(pattern)):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return str(cache_directory() / "numba" / digest.hexdigest()[:16])


def njit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """`numba.njit` with its compiled form kept on disk; IEEE arithmetic as written, integer errors as in C.

    Such functions make no arrays: all working space comes from outside. So nothing needs reference counts, whose atomic
    additions took a third of a model's time.
    """
    if function is None:
        return lambda f: njit(f, **options)
    options = {"cache": True, "fastmath": False, "error_model": "numpy", "_nrt": False, **options}
    settings: Any = numba.config
    usual = settings.CACHE_DIR
    settings.CACHE_DIR = _folder()
    try:
        return numba.njit(**options)(function)
    finally:
        settings.CACHE_DIR = usual
