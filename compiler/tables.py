"""Function tables: piecewise quadratics with integer coefficients, fitted, judged and placed in memory.

The special-function unit computes ``y = c0 + t*(c1 + t*c2)`` in units of 2^-27, with the place ``t`` in a
segment as a 21-bit fraction and both products rounded half up. A fit is near-minimax: the quadratic through
the Chebyshev nodes of the segment, rounded, then the best of its integer neighbours, with the remaining error
centred by ``c0``.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hw.errors import WordlineError
from hw.isa import FUNCTION_FIELDS, FUNCTIONS, TABLE_ENTRIES, FunctionKind

__all__ = ["CATALOGUE", "Curve", "FittedFunction", "TableError", "choose", "descriptor", "exp2", "fit",
           "fitted", "identity", "pack", "recip", "rsqrt", "scale", "together"]

FRACTION = 27
"""Fraction bits of a value."""

PLACE = 21
"""Fraction bits of the place in a segment."""

WIDTHS = (32, 28, 20)
"""Signed widths of c0, c1, c2."""

SAMPLES = 129
"""Places of every segment at which the integer polynomial is fitted to the function."""

JUDGED = 1 << 19
"""Places of a whole table at which it is compared with the function, rounding to fp32 included."""

TOLERANCE = 2.0 ** -22
"""Error that `choose` allows if nobody says otherwise: two fp32 steps of a value just below one."""

Real = Callable[[np.ndarray], np.ndarray]


class TableError(WordlineError, ValueError):
    """A function that does not fit the coefficients, the memory or the function table."""


@dataclass(frozen=True)
class Curve:
    """A function to fit: float64 in and out, and its limits below and above the fitted domain."""

    function: Real
    lo: float
    hi: float
    meaning: str


@dataclass(frozen=True, eq=False)
class FittedFunction:
    """A function of the special-function unit.

    Parameters
    ----------
    name : str
        What programs call it.
    kind : FunctionKind
        Its range reduction.
    segments : int
        Log2 of the number of segments.
    domain : int
        A table covers ``[-2**domain, 2**domain)``; 0 for other kinds.
    lo, hi : float
        Results below and above the domain.
    coefficients : ndarray of int64
        (n, 3): c0, c1, c2 of every segment.
    error : float
        Largest absolute error before the rounding to fp32: of the value for a table (clamped parts included),
        of the reduced value otherwise.
    ulp : float
        For exp2 and the reciprocals: largest error after rounding, in units of the result's last place; 0 for
        others.
    """

    name: str
    kind: FunctionKind
    segments: int
    domain: int
    lo: float
    hi: float
    coefficients: np.ndarray
    error: float
    ulp: float = 0.0

    def __str__(self) -> str:
        judged = f"error {self.error:.2e}" + (f", {self.ulp:.2f} ulp" if self.ulp else "")
        where = f"on [-2^{self.domain}, 2^{self.domain}) " if self.kind == FunctionKind.TABLE else ""
        size = f"{len(self.coefficients):4} segments"
        return f"{self.name:14} {self.kind.name.lower():8} {size} {where}{judged}"


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 + 0.5 * np.tanh(0.5 * x)


def _gelu_tanh_gate(x: np.ndarray) -> np.ndarray:
    return _sigmoid(2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * x ** 3))


def _gelu_gate(x: np.ndarray) -> np.ndarray:
    return 0.5 * np.vectorize(math.erfc)(-x / math.sqrt(2.0))


CATALOGUE: dict[str, Curve] = {
    "sigmoid": Curve(_sigmoid, 0.0, 1.0, "silu(x) = x * sigmoid(x)"),
    "tanh": Curve(np.tanh, -1.0, 1.0, "soft caps"),
    "gelu_tanh": Curve(_gelu_tanh_gate, 0.0, 1.0, "gelu(x) = x * gelu_tanh(x), tanh approximation"),
    "gelu": Curve(_gelu_gate, 0.0, 1.0, "gelu(x) = x * gelu(x), exact"),
    "step": Curve(lambda x: (x >= 0.0) * 1.0, 0.0, 1.0, "relu(x) = x * step(x)"),
    "softplus_tail": Curve(lambda x: np.log1p(np.exp(-np.abs(x))), 0.0, 0.0,
                           "softplus(x) = max(x, 0) + softplus_tail(x)"),
}
"""Functions that models ask for by name. More is one line: hardware does not change."""


def evaluate(coefficients: np.ndarray, t: np.ndarray) -> np.ndarray:
    """The unit's integer polynomial: coefficients (..., n, 3) at places `t` (k) -> int64 (..., n, k)."""
    c0, c1, c2 = (coefficients[..., k, None] for k in range(3))
    half = np.int64(1 << (PLACE - 1))
    slope = c1 + ((c2 * t + half) >> PLACE)
    return c0 + ((slope * t + half) >> PLACE)


def _fit_segments(name: str, function: Real, starts: np.ndarray,
                  width: float, grid: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coefficients (n, 3) of the segments ``[start, start + width)``, exact values, and errors.

    `grid` is the step to whose multiples the machine rounds an argument down: the fit aims at the middle of it.
    """
    middle = starts[:, None] + grid / 2
    nodes = 0.5 - 0.5 * np.cos(np.pi * (np.arange(3) + 0.5) / 3)
    unit = float(1 << FRACTION)
    values = function(middle + width * nodes) * unit
    real = np.linalg.solve(np.vander(nodes, 3, increasing=True), values.T).T

    t = np.linspace(0, (1 << PLACE) - 1, SAMPLES).round().astype(np.int64)
    exact = function(middle + width * (t / (1 << PLACE))) * unit
    c2 = np.rint(real[:, 2])
    # A step of c2 is best met by the opposite step of c1: t^2 is nearly t - 1/8.
    c1 = np.rint(real[:, 1] + real[:, 2] - c2)
    best = np.zeros((len(starts), 3), np.int64)
    least = np.full(len(starts), np.inf)
    for up2 in (-1, 0, 1):
        for up1 in (-1, 0, 1):
            candidate = np.stack([np.zeros(len(starts)), c1 + up1 - up2, c2 + up2], axis=1).astype(np.int64)
            rest = exact - evaluate(candidate, t)
            candidate[:, 0] = np.rint((rest.max(axis=1) + rest.min(axis=1)) / 2)
            worst = np.abs(rest - candidate[:, :1]).max(axis=1)
            better = worst < least
            best[better], least[better] = candidate[better], worst[better]
    for k, bits in enumerate(WIDTHS):
        limit = 1 << (bits - 1)
        if np.abs(best[:, k]).max() >= limit:
            at = int(np.abs(best[:, k]).argmax())
            raise TableError(f"c{k} of {name!r} must stay within ±{limit - 1}; it is {best[at, k]} "
                             f"in the segment at {starts[at]:g}: use more segments or a smaller domain")
    # A place is a whole number of grid steps; the argument may be anywhere up to the next.
    steps = round(width / grid) if grid else 1 << PLACE
    place = np.linspace(0, steps - 1, JUDGED // len(starts)).round().astype(np.int64)
    got = (evaluate(best, place * ((1 << PLACE) // steps)) / unit).astype(np.float32)
    exact = function(starts[:, None] + width / steps * place)
    errors = np.abs(got - exact)
    if grid:
        later = function(starts[:, None] + width / steps * (place + 0.999))
        errors = np.maximum(errors, np.abs(got - later))
    return best, exact, errors


def fit(name: str, function: Real, *, domain: int, segments: int, lo: float | None = None,
        hi: float | None = None) -> FittedFunction:
    """A table of ``2**segments`` quadratics on ``[-2**domain, 2**domain)``.

    `lo` and `hi` default to the function's values at the two ends.
    """
    if not -8 <= domain <= 7:
        raise TableError(f"domain of {name!r} must be -8 to 7; got {domain!r}")
    if not 6 <= segments <= 10:
        raise TableError(f"segments of {name!r} must be a log2 from 6 to 10; got {segments!r}")
    end = 2.0 ** domain
    width = 2 * end / (1 << segments)
    low, high = (np.float32(function(np.array([x]))[0]) if limit is None else np.float32(limit)
                 for x, limit in ((-end, lo), (end, hi)))
    starts = -end + width * np.arange(1 << segments)
    coefficients, _, errors = _fit_segments(name, function, starts, width, 2.0 ** (domain + 1 - FRACTION))
    # What the clamps cost, as far out as a function that has a limit is still on its way.
    outside = end * 2.0 ** np.linspace(0, 4, 65)
    clamped = float(max(np.abs(function(-outside) - low).max(), np.abs(function(outside) - high).max()))
    return FittedFunction(name, FunctionKind.TABLE, segments, domain, float(low), float(high), coefficients,
                          max(float(errors.max()), clamped))


def choose(name: str, curve: Curve, *, tolerance: float = TOLERANCE, most: int = 10) -> FittedFunction:
    """The smallest table of a curve within the tolerance: the smallest domain, then the fewest segments.

    If ``2**most`` segments are not enough, the best table of that size; its `error` says how good it is.
    """
    def attempt(domain: int, segments: int) -> FittedFunction | TableError:
        try:
            return fit(name, curve.function, domain=domain, segments=segments, lo=curve.lo, hi=curve.hi)
        except TableError as error:
            return error

    tried = [attempt(domain, most) for domain in range(-2, 6)]
    fits = [f for f in tried if isinstance(f, FittedFunction)]
    if not fits:
        raise tried[0]  # type: ignore[misc]
    best = min(fits, key=lambda f: (max(f.error, tolerance), f.domain))
    for segments in range(6, most):
        smaller = attempt(best.domain, segments)
        if isinstance(smaller, FittedFunction) and smaller.error <= max(tolerance, best.error):
            return smaller
    return best


def fitted(name: str, *, tolerance: float = TOLERANCE) -> FittedFunction:
    """The function called `name`: one of the unit's own, or a table of the catalogue."""
    own = {"identity": identity, "exp2": exp2, "recip": recip, "rsqrt": rsqrt, "scale": scale}
    if name in own:
        return own[name]()
    if name not in CATALOGUE:
        raise TableError(f"function {name!r} has no table; there are {', '.join((*own, *CATALOGUE))}: "
                         "add a Curve to compiler.tables.CATALOGUE")
    return choose(name, CATALOGUE[name], tolerance=tolerance)


def together(names: Iterable[str], *, tolerance: float = TOLERANCE) -> list[FittedFunction]:
    """Functions of one program; if the tables do not fit the memory, the tolerance doubles until they do."""
    names = list(dict.fromkeys(names))
    while True:
        functions = [fitted(name, tolerance=tolerance) for name in names]
        if sum(len(f.coefficients) for f in functions) <= TABLE_ENTRIES or tolerance >= 1.0:
            return functions
        tolerance *= 2.0


def identity() -> FittedFunction:
    """The argument itself."""
    return FittedFunction("identity", FunctionKind.IDENTITY, 0, 0, 0.0, 0.0, np.zeros((0, 3), np.int64), 0.0)


def scale() -> FittedFunction:
    """The power of two that scales a value to about 64: ``2**(floor(log2 |x|) - 6)``, an fp16 number."""
    return FittedFunction("scale", FunctionKind.SCALE, 0, 0, 0.0, 0.0, np.zeros((0, 3), np.int64), 0.0)


def exp2() -> FittedFunction:
    """2^x in 64 segments of the fraction."""
    return _reduced("exp2", FunctionKind.EXP2, np.exp2, np.arange(64) / 64, 1 / 64, 6)


def recip() -> FittedFunction:
    """1/x in 128 segments of the significand."""
    return _reduced("recip", FunctionKind.RECIP, lambda x: 1.0 / x, 1 + np.arange(128) / 128, 1 / 128, 7)


def rsqrt() -> FittedFunction:
    """1/sqrt(x) in 64 segments of the significand for even exponents and 64 for odd ones."""
    starts = 1 + np.arange(64) / 64
    even = _reduced("rsqrt", FunctionKind.RSQRT, lambda x: 1.0 / np.sqrt(x), starts, 1 / 64, 6)
    odd = _reduced("rsqrt", FunctionKind.RSQRT, lambda x: 1.0 / np.sqrt(2.0 * x), starts, 1 / 64, 6)
    return FittedFunction("rsqrt", FunctionKind.RSQRT, 6, 0, 0.0, 0.0,
                          np.concatenate([even.coefficients, odd.coefficients]), max(even.error, odd.error),
                          max(even.ulp, odd.ulp))


def _reduced(name: str, kind: FunctionKind, function: Real, starts: np.ndarray, width: float,
             segments: int) -> FittedFunction:
    coefficients, exact, errors = _fit_segments(name, function, starts, width)
    ulp = float((errors / np.spacing(exact.astype(np.float32))).max())
    return FittedFunction(name, kind, segments, 0, 0.0, 0.0, coefficients, float(errors.max()), ulp)


def pack(functions: Iterable[FittedFunction]) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
    """Coefficient memory and function table of a program.

    Returns the coefficients, uint32 (n, 3), sign-extended; the descriptors, uint32 (m, 4), entry 0 the
    identity; and the table entry of every function by name. Raises `TableError` for what does not fit.
    """
    chosen: Sequence[FittedFunction] = [f for f in functions if f.kind != FunctionKind.IDENTITY]
    entries = sum(len(f.coefficients) for f in chosen)
    if entries > TABLE_ENTRIES:
        sizes = ", ".join(f"{f.name} {len(f.coefficients)}" for f in chosen)
        raise TableError(f"function tables must fit {TABLE_ENTRIES} entries; these take {entries} ({sizes}): "
                         "allow a larger error")
    if len(chosen) >= FUNCTIONS:
        raise TableError(f"a program has at most {FUNCTIONS - 1} functions beside the identity; "
                         f"got {len(chosen)}: compile fewer into one image")
    rows = [descriptor(identity(), 0)]
    numbers = {"identity": 0}
    base = 0
    for f in chosen:
        if f.name in numbers:
            raise TableError(f"functions need different names; {f.name!r} came twice")
        numbers[f.name] = len(rows)
        rows.append(descriptor(f, base))
        base += len(f.coefficients)
    coefficients = np.concatenate([np.zeros((0, 3), np.int64), *(f.coefficients for f in chosen)])
    return coefficients.astype(np.int32).view(np.uint32), np.array(rows, np.uint32), numbers


def descriptor(f: FittedFunction, base: int) -> list[int]:
    """The four words of a function table entry whose coefficients begin at `base`."""
    lo, hi = (int(np.float32(limit).view(np.uint32)) for limit in (f.lo, f.hi))
    values = {"kind": int(f.kind), "base": base % TABLE_ENTRIES, "segments": f.segments, "domain": f.domain,
              "lo": lo, "hi": hi}
    word = offset = 0
    for field, width, _ in FUNCTION_FIELDS:
        word |= (values[field] & ((1 << width) - 1)) << offset
        offset += width
    first = sum(width for field, width, _ in FUNCTION_FIELDS if field not in ("lo", "hi"))
    return [word & ((1 << first) - 1), lo, hi, 0]
