"""The special-function unit equals its definition, bit for bit, on every kind and at every edge."""

import numpy as np
import pytest

from compiler.tables import fit, fitted, pack
from hw.isa import FUNCTION_FIELDS, TABLE_ENTRIES, FunctionKind
from hw.special import SpecialUnit
from sim import numerics
from tests.rtlbatch import Unit

pytestmark = pytest.mark.rtl

WILD = fit("wild", lambda x: 3.5 * np.sin(2 * x) - 1.25 * x, domain=2, segments=9)
FLAT = fit("flat", lambda x: np.exp2(-20.0 * (x + 0.125)) * 1e-6, domain=-3, segments=6)
WIDE = fit("wide", lambda x: 2.0 ** -6 * x, domain=7, segments=6)
FUNCTIONS = [*map(fitted, ("exp2", "recip", "rsqrt", "scale", "step")), WILD, FLAT, WIDE]


@pytest.fixture(scope="module")
def tables():
    """Coefficient columns (TABLE_ENTRIES,) int64 and descriptors by name, as the compiler places them."""
    coefficients, rows, numbers = pack(FUNCTIONS)
    columns = np.zeros((3, TABLE_ENTRIES), np.int64)
    columns[:, :len(coefficients)] = coefficients.view(np.int32).T
    descriptors = {}
    for name, number in numbers.items():
        word = int(rows[number, 0]) | int(rows[number, 1]) << 21 | int(rows[number, 2]) << 53
        values, offset = {}, 0
        for field, width, signed in FUNCTION_FIELDS:
            value = (word >> offset) & ((1 << width) - 1)
            values[field] = value - (1 << width) if signed and value >> (width - 1) else value
            offset += width
        descriptors[name] = values
    return columns, descriptors


@pytest.fixture(scope="module")
def unit(tables):
    unit = Unit(SpecialUnit(), "special")
    load(unit, tables[0])
    return unit


def load(unit, columns):
    """Write the whole coefficient memory, and read it back as the host does."""
    c0, c1, c2 = columns
    data = np.stack([c0 & 0xFFFF_FFFF, (c1 & 0xFFF_FFFF) | (c2 & 0xF) << 28, (c2 >> 4) & 0xFFFF], axis=1)
    unit.cycles(table_we=1, table_addr=np.arange(TABLE_ENTRIES), table_data=data.astype(np.uint32))
    read = unit.cycles(table_re=1, table_addr=np.arange(TABLE_ENTRIES))["table_q"]
    np.testing.assert_array_equal(read, data)


def arguments(rng, count=50_000):
    """fp32 words: anything, ordinary magnitudes, every power of two and its neighbours, the special ones."""
    anything = rng.integers(0, 1 << 32, count // 2, dtype=np.uint64).astype(np.uint32)
    ordinary = (rng.standard_normal(count // 2) * 2.0 ** rng.uniform(-12, 8, count // 2)).astype(np.float32)
    near = np.arange(256, dtype=np.int64)[:, None] * (1 << 23) + np.arange(-3, 4)
    near = np.concatenate([near.ravel(), near.ravel() + (1 << 31)]) % (1 << 32)
    edges = np.array([1, 128, 150, 149, 126, 127, 0.125, 0.25, 2, 4, 8, 1.5], np.float32).view(np.uint32)
    edges = (edges[:, None] + np.arange(-2, 3)).ravel()
    edges = np.concatenate([edges, edges | (1 << 31)])
    tiny = rng.integers(0, 1 << 23, 2000) | rng.integers(0, 2, 2000) << 31
    return np.concatenate([part.astype(np.uint32) for part in
                           (anything, ordinary.view(np.uint32), near, edges, tiny)])


def expected(x, descriptor, columns):
    f = dict(descriptor)
    lo, hi = (np.uint32(f.pop(k)).view(np.float32) for k in ("lo", "hi"))
    return numerics.evaluate_all(x.view(np.float32), f["kind"], f["base"], f["segments"], f["domain"], lo, hi,
                                 *columns).view(np.uint32)


@pytest.mark.parametrize("name", ["identity", *(f.name for f in FUNCTIONS)])
def test_equals_definition(unit, tables, name):
    columns, descriptors = tables
    x = arguments(np.random.default_rng(7))
    y = unit.run(x=x, **descriptors[name])["y"]
    np.testing.assert_array_equal(y, expected(x, descriptors[name], columns), err_msg=name)


def test_every_subnormal_power_of_exp2(unit, tables):
    """Results from 2^-151 to 2^-120, where a single rounding differs from two."""
    columns, descriptors = tables
    x = np.linspace(-151, -120, 60_000).astype(np.float32).view(np.uint32)
    y = unit.run(x=x, **descriptors["exp2"])["y"]
    np.testing.assert_array_equal(y, expected(x, descriptors["exp2"], columns))
    assert (y[x > np.float32(-150.0).view(np.uint32)] == 0).all()


def test_descriptor_may_change_every_cycle(unit, tables):
    columns, descriptors = tables
    rng = np.random.default_rng(8)
    x = arguments(rng)
    rng.shuffle(x)
    names = list(descriptors)
    which = rng.integers(0, len(names), len(x))
    inputs = {field: np.array([descriptors[n][field] for n in names])[which]
              for field, _, _ in FUNCTION_FIELDS}
    y = unit.run(x=x, **inputs)["y"]
    for n, name in enumerate(names):
        mine = which == n
        np.testing.assert_array_equal(y[mine], expected(x[mine], descriptors[name], columns), err_msg=name)


@pytest.mark.parametrize("kind", [FunctionKind.EXP2, FunctionKind.TABLE])
def test_any_coefficients(unit, tables, kind):
    """Tables nobody fits, values of both signs and of every size, and addresses that wrap."""
    rng = np.random.default_rng(9)
    sizes = rng.integers(0, 20, (3, TABLE_ENTRIES))
    columns = [rng.integers(-(1 << bits - 1), 1 << bits - 1, TABLE_ENTRIES) >> size
               for bits, size in zip((32, 28, 20), sizes, strict=True)]
    descriptor = {"kind": int(kind), "base": 900, "segments": 9, "domain": 3, "lo": 0, "hi": 0xFF800000}
    x = rng.uniform(-8, 8, 50_000).astype(np.float32).view(np.uint32)
    load(unit, columns)
    try:
        y = unit.run(x=x, **descriptor)["y"]
    finally:
        load(unit, tables[0])
    np.testing.assert_array_equal(y, expected(x, descriptor, columns))
