"""Judges of binary32: exact fractions and Berkeley SoftFloat, and the operands hard to get right."""

import os
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import softfloatpy

__all__ = [
    "CANONICAL_NAN", "VECTORS", "assert_equal", "canonical_bits", "judged", "nearest", "random_pairs", "special_values",
]

CANONICAL_NAN = 0x7FC0_0000

VECTORS = int(os.environ.get("WORDLINE_VECTORS", 200_000))
"""Random vectors a unit is given; 2,000,000 for the long form."""


def special_values() -> np.ndarray:
    """Every kind of number and both sides of every border between kinds, with either sign."""
    fields = [0, 1, 2, 23, 24, 25, 63, 64, 102, 103, 126, 127, 128, 150, 151, 230, 253, 254, 255]
    fractions = [0x000000, 0x000001, 0x400000, 0x7FFFFE, 0x7FFFFF]
    positive = [field << 23 | fraction for field in fields for fraction in fractions]
    positive += [0x3F800002, 0x00000003, 0x34000000, 0x33FFFFFF, 0x7F800001 | 0x2AAAAA]
    return np.array([sign << 31 | bits for bits in positive for sign in (0, 1)], np.uint32)


def random_pairs(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of four kinds in equal shares: any bits, close exponents, near ties, and small results."""
    rng = np.random.default_rng(seed)
    count //= 4

    def words() -> np.ndarray:
        return rng.integers(0, 1 << 32, count, dtype=np.uint32)

    def of_exponent(field: np.ndarray) -> np.ndarray:
        return (words() & 0x807F_FFFF) | (field.astype(np.uint32) << 23)

    pairs = [(words(), words())]
    # Close exponents: cancellation, and every distance of the aligning shift.
    a = words()
    field = (a >> 23 & 255).astype(np.int64)
    pairs.append((a, of_exponent(np.clip(field + rng.integers(-28, 29, count), 0, 255))))
    # Near ties: few significant bits at both ends of the significand.
    few = np.array([0, 1, 2, 3, 0x400000, 0x400001, 0x600000, 0x7FFFFF, 0x7FFFFE, 0x3FFFFF], np.uint32)
    field = rng.integers(1, 255, count)
    near = np.clip(field + rng.integers(-26, 27, count), 0, 254)
    pairs.append(((of_exponent(field) & 0xFF80_0000) | rng.choice(few, count),
                  (of_exponent(near) & 0xFF80_0000) | rng.choice(few, count)))
    # Products around the smallest normal and the smallest subnormal, sums of subnormals.
    field = rng.integers(0, 128, count)
    pairs.append((of_exponent(field), of_exponent(np.clip(rng.integers(100, 130, count) - field, 0, 255))))
    x, y = (np.concatenate(side) for side in zip(*pairs, strict=True))
    order = rng.integers(0, 2, x.size).astype(bool)  # which operand is which must not matter
    return np.where(order, x, y), np.where(order, y, x)


def judged(operation, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """SoftFloat's result bits, its NaNs made canonical."""
    def floats(bits: np.ndarray) -> list:
        raw = bits.astype(">u4").tobytes()
        return [softfloatpy.Float32.from_bytes(raw[i:i + 4]) for i in range(0, len(raw), 4)]

    return canonical_bits(operation(x, y) for x, y in zip(floats(a), floats(b), strict=True))


def canonical_bits(results: Iterable[softfloatpy.Float32]) -> np.ndarray:
    """Bits of SoftFloat's numbers, uint32, its NaNs made canonical."""
    bits = np.frombuffer(b"".join(result.to_bytes() for result in results), ">u4").astype(np.uint32)
    bits[(bits & 0x7FFF_FFFF) > 0x7F80_0000] = CANONICAL_NAN
    return bits


def assert_equal(o: np.ndarray, expected: np.ndarray, a: np.ndarray, b: np.ndarray, seed: int) -> None:
    wrong = np.flatnonzero(o != expected)
    shown = [f"{a[i]:#010x}, {b[i]:#010x}: {o[i]:#010x}, not {expected[i]:#010x}" for i in wrong[:5]]
    assert not wrong.size, f"{wrong.size} of {o.size} results (seed {seed}):\n" + "\n".join(shown)


def nearest(value: Fraction) -> int:
    """binary32 bits of the number nearest to a fraction, ties to even, by exact arithmetic."""
    sign, value = int(value < 0) << 31, abs(value)
    unit = -149  # of the last place
    while value >= Fraction(2) ** (unit + 24):
        unit += 1
    count = round(value / Fraction(2) ** unit)  # Python rounds ties of a Fraction to even
    if count == 1 << 24:
        count, unit = 1 << 23, unit + 1
    if unit + 23 > 127:
        return sign | 0x7F80_0000
    return sign | (count if count < 1 << 23 else (unit + 150) << 23 | (count & 0x7F_FFFF))
