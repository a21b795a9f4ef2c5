"""Function tables: measured errors of the machine's own evaluation, layout in memory, every refusal."""

import numpy as np
import pytest

from compiler import tables
from compiler.tables import CATALOGUE, TableError, choose, fit, fitted, pack
from hw.isa import FUNCTION_FIELDS, TABLE_ENTRIES, FunctionKind
from sim import numerics


def descriptor_fields(row):
    word = int(row[0]) | int(row[1]) << 21 | int(row[2]) << 53
    fields, offset = {}, 0
    for name, width, signed in FUNCTION_FIELDS:
        value = (word >> offset) & ((1 << width) - 1)
        fields[name] = value - (1 << width) if signed and value >> (width - 1) else value
        offset += width
    return fields


def run(function, x, others=()):
    """What the machine makes of float32 `x`, with the function placed behind some others."""
    coefficients, rows, numbers = pack([*others, function])
    columns = np.zeros((3, TABLE_ENTRIES), np.int64)
    columns[:, :len(coefficients)] = coefficients.view(np.int32).T
    f = descriptor_fields(rows[numbers[function.name]])
    lo, hi = (np.uint32(f[k]).view(np.float32) for k in ("lo", "hi"))
    return numerics.evaluate_all(x, f["kind"], f["base"], f["segments"], f["domain"], lo, hi, *columns)


def ulps(got, exact):
    """Distance in units of the exact result's last place; subnormal results count the smallest step."""
    step = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    return np.abs(got.astype(np.float64) - exact) / step


def significands(exponents):
    """Every float32 significand at some exponents."""
    fraction = np.arange(1 << 23, dtype=np.uint32)
    return np.concatenate([fraction | np.uint32(e + 127 << 23) for e in exponents]).view(np.float32)


@pytest.mark.parametrize("name, exponents, exact", [
    ("recip", (0,), lambda x: 1.0 / x),
    ("rsqrt", (0, 1), lambda x: 1.0 / np.sqrt(x)),
])
def test_reciprocals_within_two_ulp_on_every_significand(name, exponents, exact):
    x = significands(exponents)
    worst = ulps(run(fitted(name), x), exact(x.astype(np.float64))).max()
    print(f"{name}: {worst:.3f} ulp over {len(x)} arguments")
    assert worst <= 2
    # The compiler's own figure, from a sample, is what it says.
    assert fitted(name).ulp == pytest.approx(worst, abs=0.2)


def test_exp2_within_two_ulp():
    """Every argument from 2^-3 to 1, and a dense sample of all others that give a finite result."""
    rng = np.random.default_rng(1)
    x = np.concatenate([significands((-1, -2, -3))[::2], rng.uniform(-150, 128, 1 << 21).astype(np.float32)])
    x = x[x < 128]
    worst = ulps(run(fitted("exp2"), x), np.exp2(x.astype(np.float64))).max()
    print(f"exp2: {worst:.3f} ulp over {len(x)} arguments")
    assert worst <= 2


def test_exp2_of_integers_is_exact():
    x = np.arange(-149, 128).astype(np.float32)
    np.testing.assert_array_equal(run(fitted("exp2"), x), np.exp2(x.astype(np.float64)).astype(np.float32))


@pytest.mark.parametrize("name", list(CATALOGUE))
@pytest.mark.parametrize("tolerance", [tables.TOLERANCE, 1e-5])
def test_catalogue_keeps_its_word(name, tolerance):
    function = fitted(name, tolerance=tolerance)
    assert function.error <= tolerance
    end = 2.0 ** function.domain
    inside = np.linspace(-end, end, 300_001).astype(np.float32)
    outside = (end * 2.0 ** np.linspace(0, 4, 201)).astype(np.float32)
    x = np.concatenate([inside, outside, -outside])
    exact = CATALOGUE[name].function(x.astype(np.float64))
    got = run(function, x).astype(np.float64)
    # Neither sample need hold the very worst place.
    assert np.abs(got - exact).max() == pytest.approx(function.error, rel=0.1, abs=1e-12)


def test_catalogue_has_the_textbook_functions():
    """A few values from outside: tables of erf, tanh and the logistic function."""
    textbook = [
        ("tanh", 1.0, 0.76159416), ("sigmoid", 2.0, 0.88079708), ("gelu", 1.0, 0.84134475),
        ("gelu_tanh", 1.0, 0.84119199), ("softplus_tail", 0.0, 0.69314718),
        ("step", -0.0, 1.0), ("step", -1e-30, 0.0),
    ]
    for name, x, y in textbook:
        assert float(run(fitted(name), np.array([x], np.float32))[0]) == pytest.approx(y, abs=3e-7), name


def test_domain_of_a_coarse_table_is_no_larger_than_a_fine_one():
    fine, coarse = (choose("tanh", CATALOGUE["tanh"], tolerance=t) for t in (1e-6, 1e-3))
    assert (coarse.domain, coarse.segments) <= (fine.domain, fine.segments)
    assert len(coarse.coefficients) < len(fine.coefficients)


def test_pack_places_one_behind_the_other():
    functions = [fitted(n) for n in ("identity", "exp2", "recip", "rsqrt", "scale")]
    functions.append(fit("wave", np.sin, domain=1, segments=7))
    coefficients, rows, numbers = pack(functions)
    assert numbers == {"identity": 0, "exp2": 1, "recip": 2, "rsqrt": 3, "scale": 4, "wave": 5}
    assert coefficients.dtype == rows.dtype == np.uint32
    assert (coefficients.shape, rows.shape) == ((64 + 128 + 128 + 128, 3), (6, 4))
    facts = [descriptor_fields(row) for row in rows]
    assert [f["base"] for f in facts] == [0, 0, 64, 192, 320, 320]
    assert [f["kind"] for f in facts] == [FunctionKind[n] for n in
                                          ("IDENTITY", "EXP2", "RECIP", "RSQRT", "SCALE", "TABLE")]
    assert (facts[5]["segments"], facts[5]["domain"]) == (7, 1)
    assert np.uint32(facts[5]["hi"]).view(np.float32) == np.float32(np.sin(2.0))
    np.testing.assert_array_equal(coefficients.view(np.int32)[64:192], fitted("recip").coefficients)


def test_functions_of_one_program_share_the_memory():
    names = ["exp2", "recip", "rsqrt", "tanh", "gelu_tanh", "tanh"]
    functions = tables.together(names)
    assert [f.name for f in functions] == ["exp2", "recip", "rsqrt", "tanh", "gelu_tanh"]
    assert len(pack(functions)[0]) <= TABLE_ENTRIES
    assert max(f.error for f in functions) < 1e-5
    # What fits anyway is not made worse.
    assert tables.together(["sigmoid"])[0].error == fitted("sigmoid").error


def test_same_input_same_bytes():
    assert pack([fitted("gelu")])[0].tobytes() == pack([fitted("gelu")])[0].tobytes()


def test_prints_as_a_column():
    assert str(fitted("step")) == "step           table      64 segments on [-2^-2, 2^-2) error 0.00e+00"


REFUSED = [
    (lambda: fitted("swish"),
     r"function 'swish' has no table; there are identity, exp2, recip, rsqrt, scale, sigmoid, tanh, "
     r"gelu_tanh, gelu, step, softplus_tail: add a Curve to compiler\.tables\.CATALOGUE"),
    (lambda: fit("f", np.sin, domain=8, segments=6), r"domain of 'f' must be -8 to 7; got 8"),
    (lambda: fit("f", np.sin, domain=0, segments=5), r"segments of 'f' must be a log2 from 6 to 10; got 5"),
    (lambda: fit("f", lambda x: 20.0 * x, domain=0, segments=10),
     r"c0 of 'f' must stay within ±2147483647; it is -2684354540 in the segment at -1: use more segments or "
     r"a smaller domain"),
    (lambda: pack([fit(n, np.sin, domain=2, segments=9) for n in "abc"]),
     r"function tables must fit 1024 entries; these take 1536 \(a 512, b 512, c 512\): allow a larger error"),
    (lambda: pack([fitted("scale")] * 2), r"functions need different names; 'scale' came twice"),
    (lambda: pack([fitted("scale")] * 16),
     r"a program has at most 15 functions beside the identity; got 16: compile fewer into one image"),
]


@pytest.mark.parametrize("attempt, text", REFUSED, ids=range(len(REFUSED)))
def test_refusals(attempt, text):
    with pytest.raises(TableError, match=f"^{text}$"):
        attempt()
