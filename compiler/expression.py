"""Generates passes from elementwise formulas: the largest part that one pass of the lanes can do, again and again.

A lane computes ``f(a*b + c) * d``. `emit` matches a formula against that form from the top (maximal munch); what does
not fit goes to temporary scratch in a pass of its own. Formulas are trees of the few nodes below over vectors of one
length.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.emitter import Emitter, Pool
from hw.isa import A, B, C, D

__all__ = ["Add", "Apply", "Expression", "Mul", "Scalar", "Vector", "emit"]


@dataclass(frozen=True)
class Vector:
    """Words of "scratch" or "accumulators" from `base`, one after the other."""

    memory: str
    base: int


@dataclass(frozen=True)
class Scalar:
    """A scalar register."""

    register: int


@dataclass(frozen=True)
class Mul:
    left: "Expression"
    right: "Expression"


@dataclass(frozen=True)
class Add:
    left: "Expression"
    right: "Expression"


@dataclass(frozen=True)
class Apply:
    """A special function, by its number in the function table."""

    function: int
    argument: "Expression"


Expression = Vector | Scalar | Mul | Add | Apply
_LEAVES = (Vector, Scalar)
_SCALAR = int(A.S)
_SCRATCH = {"x": int(A.X), "y": int(A.Y)}
# The four selections name their common sources alike, so that a leaf's code does not depend on its place.
assert all((of.S, of.X, of.Y) == (_SCALAR, _SCRATCH["x"], _SCRATCH["y"]) for of in (A, B, C, D))


class _Ports:
    """The operand ports of one pass: two scratch reads, one accumulator read, three scalars."""

    def __init__(self) -> None:
        self.fields: dict[str, int] = {}
        self.scratch: list[int] = []
        self.accumulator: int | None = None

    def take(self, leaf: Expression, place: str) -> bool:
        """Give `leaf` to the place "a", "b", "c" or "d"; False when the ports do not reach."""
        if isinstance(leaf, Scalar):
            port = {"a": "p", "b": "p", "c": "q", "d": "r"}[place]
            if self.fields.setdefault(port, leaf.register) != leaf.register:
                return False
            self.fields[place] = _SCALAR
            return True
        assert isinstance(leaf, Vector)
        if leaf.memory == "accumulators":
            if place != "a" or self.accumulator is not None:
                return False
            self.accumulator = leaf.base
            self.fields |= {"a": A.ACC, "z": leaf.base, "z_i": 1}
            return True
        if leaf.base not in self.scratch:
            if len(self.scratch) == 2:
                return False
            self.scratch.append(leaf.base)
        port = "xy"[self.scratch.index(leaf.base)]
        self.fields |= {port: leaf.base, f"{port}_i": 1, place: _SCRATCH[port]}
        return True


def _match(e: Expression) -> dict[str, int] | None:
    """The fields of the one pass that computes `e`, or None."""
    ports = _Ports()
    last: Expression | None = None
    inner = e
    if isinstance(e, Mul) and isinstance(e.left, (Apply, Add, Mul)) and isinstance(e.right, _LEAVES):
        last, inner = e.right, e.left
    if isinstance(inner, Apply):
        ports.fields["function"] = inner.function
        inner = inner.argument
    addend = None
    if isinstance(inner, Add) and isinstance(inner.right, _LEAVES):
        addend, inner = inner.right, inner.left
    if isinstance(inner, _LEAVES):
        ok = ports.take(inner, "a")
    elif isinstance(inner, Mul) and isinstance(inner.left, _LEAVES) and isinstance(inner.right, _LEAVES):
        ok = ports.take(inner.left, "a")
        if inner.left == inner.right:
            ports.fields["b"] = B.A
        else:
            ok = ok and ports.take(inner.right, "b")
    else:
        return None
    first = inner if isinstance(inner, _LEAVES) else inner.left
    ok = ok and (addend is None or ports.take(addend, "c"))
    if last is not None and ok:
        if last == first:
            ports.fields["d"] = D.A
        else:
            ok = ports.take(last, "d")
    return ports.fields if ok else None


def _children(e: Expression) -> list[Expression]:
    if isinstance(e, Apply):
        return [e.argument]
    return [e.left, e.right] if isinstance(e, (Mul, Add)) else []


def _replace(e: Expression, old: Expression, new: Expression) -> Expression:
    if e == old:
        return new
    if isinstance(e, Apply):
        return Apply(e.function, _replace(e.argument, old, new))
    if isinstance(e, (Mul, Add)):
        return type(e)(_replace(e.left, old, new), _replace(e.right, old, new))
    return e


def emit(emitter: Emitter, temporary: Pool, e: Expression, words: int, destination: Mapping[str, int]) -> int:
    """Emit the passes that compute `words` words of `e`; the last one has the `destination` fields as well.

    Returns the number of passes. Intermediate values take words of `temporary` until the end of the window.
    """
    passes = 1
    fields = _match(e)
    while fields is None:
        # The deepest part that one pass can do, largest first, becomes a vector in scratch.
        candidates: list[tuple[int, Expression, dict[str, int]]] = []
        stack = [(0, e)]
        while stack:
            depth, part = stack.pop()
            found = None if isinstance(part, _LEAVES) or part is e else _match(part)
            if found is not None:
                candidates.append((-depth, part, found))
            else:
                stack += [(depth + 1, child) for child in _children(part)]
        if candidates:
            _, part, found = max(candidates, key=lambda c: c[0])
        else:       # only leaves that no port takes together: move one of them
            part = next(p for p in _children(e) if isinstance(p, _LEAVES))
            found = _match(part) or {}
        base = temporary.take(words, "an intermediate value")
        emitter.vector(inner=words, **found, w=1, w_word=base, w_i=1)
        e = _replace(e, part, Vector("scratch", base))
        passes += 1
        fields = _match(e)
    emitter.vector(inner=words, **fields, **destination)
    return passes
