"""The registry of kernels: every way to lower an operation, under one interface.

A kernel is a function of (context, node) that emits instructions. The first one registered for an operation is the
default; `compiler.dispatch` prices the others against it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from compiler.context import Context
from compiler.ir import Node, Op

__all__ = ["Kernel", "kernel", "kernels_of", "the_kernel"]

Emit = Callable[[Context, Node], None]


@dataclass(frozen=True)
class Kernel:
    """One way to carry out an operation: `origin` is "hand" or "generated" (`compiler.expression`)."""

    op: Op
    name: str
    origin: str
    emit: Emit
    meaning: str


_KERNELS: dict[Op, dict[str, Kernel]] = {}


def kernel(op: Op, name: str, origin: str = "hand") -> Callable[[Emit], Emit]:
    """Register a function as a kernel; its docstring is what reports say of it."""
    def register(emit: Emit) -> Emit:
        known = _KERNELS.setdefault(op, {})
        if name in known:
            raise ValueError(f"{op.value} has a kernel {name!r} already")
        known[name] = Kernel(op, name, origin, emit, (emit.__doc__ or "").split("\n")[0])
        return emit
    return register


def kernels_of(op: Op) -> tuple[Kernel, ...]:
    """All kernels of an operation, the default first; none for operations without instructions of their own."""
    return tuple(_KERNELS.get(op, {}).values())


def the_kernel(op: Op, name: str | None) -> Kernel | None:
    """The kernel of that name, the default for None; None where the operation needs none."""
    known = _KERNELS.get(op)
    if known is None:
        return None
    return known[name] if name is not None else next(iter(known.values()))
