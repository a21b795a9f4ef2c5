"""Weight types into blocks and rows: equal to the gguf library, exact where promised, else a stated loss."""

import re

import gguf
import libgguf
import numpy as np
import pytest
from gguf.quants import dequantize as gguf_dequantize
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.errors import ModelFileError
from compiler.quant import DECODERS, Blocks, carry, dequantize, supported_types
from compiler.rowformat import pack_rows_q4, pack_rows_q8, unpack_rows
from hw.config import BLOCK

#: Type -> row format and the least signal-to-noise ratio in dB, None for exact: NUMERICS "File types".
ROW_FORMATS = {
    "Q8_0": ("q8", None),
    "Q5_0": ("q8", None),
    "Q5_1": ("q8", None),
    "Q5_K": ("q8", 60),
    "Q4_0": ("q4", None),
    "Q4_1": ("q4", None),
    "Q4_K": ("q4", 60),
    "Q6_K": ("q8", 44),
    "IQ4_NL": ("q8", None),
    "MXFP4": ("f4", None),
    "F16": ("q8", 44),
    "BF16": ("q8", 44),
    "F32": ("q8", 44),
}
ROWS, LENGTH = 24, 512


def encode(values: np.ndarray, type_name: str) -> np.ndarray:
    kind = gguf.GGMLQuantizationType[type_name]
    if type_name in ("F32", "F16"):
        data = values.astype(np.float32 if type_name == "F32" else np.float16)
    else:
        data = libgguf.quantize_rows(values, kind)
    return np.ascontiguousarray(data).view(np.uint8).reshape(len(values), -1)


def random_values(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((ROWS, LENGTH)).astype(np.float32)


def random_blocks(type_name: str, seed: int = 0) -> np.ndarray:
    """Blocks of random bits: every code, negative and subnormal scales, finite all the same."""
    rng = np.random.default_rng(seed)
    elements, size, _ = DECODERS[type_name]
    raw = rng.integers(0, 256, (ROWS, LENGTH // elements, size), np.uint8)
    halves = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
    if type_name == "MXFP4":
        raw[..., 0] = rng.integers(105, 143, raw.shape[:-1])
        return raw.reshape(ROWS, -1)
    for at in halves.get(type_name, (0,)):
        raw[..., at + 1] &= 0xBB if type_name != "Q4_0" else 0xAF  # bounds the exponent, keeps the sign
        if type_name.endswith("_K"):
            raw[..., at + 1] &= 0x9F  # times a scale it must still fit fp16
    return raw.reshape(ROWS, -1)


def test_the_table_names_every_supported_type() -> None:
    assert set(ROW_FORMATS) == set(supported_types())


@pytest.mark.parametrize("type_name", ROW_FORMATS)
def test_dequantize_equals_the_gguf_library(type_name: str) -> None:
    sources = [encode(random_values(), type_name)]
    if type_name in DECODERS:
        sources.append(random_blocks(type_name))
    for raw in sources:
        view = {"F32": "<f4", "F16": "<f2"}.get(type_name, "u1")
        wanted = gguf_dequantize(raw.view(view), gguf.GGMLQuantizationType[type_name])
        np.testing.assert_array_equal(dequantize("w", type_name, raw), wanted)


@pytest.mark.parametrize("type_name", ROW_FORMATS)
def test_carry(type_name: str) -> None:
    row_format, decibels = ROW_FORMATS[type_name]
    raw = encode(random_values(), type_name)
    blocks = carry("w", type_name, raw)
    values = dequantize("w", type_name, raw)
    assert blocks.format == row_format and blocks.length == LENGTH
    assert blocks.codes.shape == (ROWS, LENGTH // BLOCK, BLOCK)
    assert blocks.codes.dtype == (np.int8 if row_format == "q8" else np.uint8)
    assert blocks.d.shape == blocks.m.shape == (ROWS, LENGTH // BLOCK)
    error = np.abs(blocks.values() - values).max()
    if decibels is None:
        assert error == 0 and blocks.loss.exact
    else:
        assert 0 < error <= blocks.loss.worst * np.abs(values).max() * 1.001
        assert blocks.loss.snr_db > decibels


@pytest.mark.parametrize("type_name", [name for name in DECODERS if ROW_FORMATS[name][1] is None])
def test_carry_is_exact_for_any_block(type_name: str) -> None:
    raw = random_blocks(type_name, 1)
    blocks = carry("w", type_name, raw)
    assert blocks.format == ROW_FORMATS[type_name][0] and blocks.loss.exact
    np.testing.assert_array_equal(blocks.values(), dequantize("w", type_name, raw))


def half(value: float) -> np.ndarray:
    return np.array([value], "<f2").view(np.uint8)


def test_q4_0_whose_minimum_overflows_is_exact_in_q8() -> None:
    raw = np.concatenate([half(10000.0), np.arange(16, dtype=np.uint8) * 17])[None]
    blocks = carry("w", "Q4_0", raw)
    assert blocks.format == "q8" and blocks.loss.exact
    np.testing.assert_array_equal(blocks.values()[0, :16], (np.arange(16) - 8) * 10000.0)


def test_mxfp4_scale_outside_fp16_goes_to_q8_and_zeros_do_not_count() -> None:
    def block(exponent: int, codes: int) -> np.ndarray:
        return np.array([exponent, *[codes] * 16], np.uint8)[None]

    assert carry("w", "MXFP4", np.hstack([block(120, 0x72), block(3, 0x80)])).format == "f4"
    far = carry("w", "MXFP4", block(145, 0x72))  # 2^18 times 1 and 6
    assert far.format == "q8"
    wanted = np.array([1, 6]) * 2.0**18
    np.testing.assert_allclose(far.values()[0, [0, 16]], wanted, rtol=0, atol=wanted[1] / 254)


def test_a_length_that_is_no_multiple_of_a_block_is_padded_with_zero_codes() -> None:
    values = random_values()[:, :100]
    blocks = carry("w", "F32", np.ascontiguousarray(values).view(np.uint8))
    assert blocks.length == 100 and blocks.codes.shape == (ROWS, 4, BLOCK)
    assert not blocks.codes[:, 3, 4:].any()
    assert blocks.values().shape == values.shape
    assert np.abs(blocks.values() - values).max() < 0.02


def test_zeros_are_exact() -> None:
    blocks = carry("w", "F32", np.zeros((2, 4 * BLOCK), np.uint8))
    assert blocks.loss.exact and not blocks.values().any()


REFUSED = {
    "type": (
        "Q2_K",
        np.zeros((1, 84), np.uint8),
        "tensor 'w': wanted one of the types F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, "
        "IQ4_NL, MXFP4, found Q2_K; convert the model to one of these types",
    ),
    "NaN": (
        "F32",
        np.array([[1.0] * 32, [np.nan] * 32], "<f4").view(np.uint8),
        "tensor 'w': wanted finite weights, found an infinity or NaN in row 1; "
        "the file is damaged, bring it again",
    ),
    "infinite scale": (
        "Q8_0",
        np.concatenate([half(np.inf), np.ones(32, np.uint8)])[None],
        "tensor 'w': wanted finite weights, found an infinity or NaN in row 0; "
        "the file is damaged, bring it again",
    ),
    "MXFP4 NaN": (
        "MXFP4",
        np.full((1, 17), 255, np.uint8),
        "tensor 'w': wanted finite weights, found an infinity or NaN in row 0; "
        "the file is damaged, bring it again",
    ),
    "too large": (
        "F32",
        np.full((1, 32), 1e9, "<f4").view(np.uint8),
        "tensor 'w': wanted weights up to 8.31901e+06, found 1e+09; "
        "an fp16 scale cannot hold them, scale the weights down",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    type_name, raw, message = REFUSED[name]
    with pytest.raises(ModelFileError, match=f"^{re.escape(message)}$"):
        carry("w", type_name, raw)


def test_q8_row_bits() -> None:
    codes = np.arange(-16, 16, dtype=np.int8)
    row = pack_rows_q8(codes, np.uint16(0x1234), np.uint16(0xABCD))
    number = sum(int(word) << 32 * i for i, word in enumerate(row))
    assert [number >> 8 * i & 0xFF for i in range(32)] == [int(code) & 0xFF for code in codes]
    assert number >> 256 == 0xABCD1234


def test_q4_row_bits() -> None:
    a, b = np.arange(32, dtype=np.uint8) % 16, (np.arange(32, dtype=np.uint8) * 7 + 3) % 16
    halves = [np.uint16(value) for value in (0x1111, 0x2222, 0x3333, 0x4444)]
    row = pack_rows_q4(a, halves[0], halves[1], b, halves[2], halves[3])
    number = sum(int(word) << 32 * i for i, word in enumerate(row))
    assert [number >> 4 * i & 15 for i in range(64)] == [*a, *b]
    assert number >> 256 == 0x4444_3333_2222_1111


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["q8", "q4", "f4"]))
def test_unpack_is_the_inverse(seed: int, row_format: str) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 1 << 32, (3, 2, 10), np.uint32)
    if row_format == "q8":
        rows[..., 9] = 0
    parts = unpack_rows(rows, row_format)
    again = pack_rows_q8(*parts[0]) if row_format == "q8" else pack_rows_q4(*parts[0], *parts[1])
    np.testing.assert_array_equal(again, rows)


def test_rows_of_a_carried_matrix_hold_its_values() -> None:
    raw = encode(random_values(), "Q4_1")
    blocks = carry("w", "Q4_1", raw)
    top, low = (slice(None, None, 2), slice(1, None, 2))
    rows = pack_rows_q4(*[part[side] for side in (top, low) for part in (blocks.codes, blocks.d, blocks.m)])
    assert rows.shape == (ROWS // 2, LENGTH // BLOCK, 10)
    values = np.empty((ROWS, LENGTH), np.float32)
    for side, (codes, d, m) in zip((top, low), unpack_rows(rows, "q4"), strict=True):
        values[side] = Blocks("q4", LENGTH, codes, d, m).values()
    np.testing.assert_array_equal(values, dequantize("w", "Q4_1", raw))


def test_wrong_arrays_are_refused() -> None:
    codes, d = np.zeros((2, 32), np.int8), np.zeros(2, np.uint16)
    with pytest.raises(ValueError, match=r"^wanted codes of shape \(\.\.\., 32\) with d and m of shape"):
        pack_rows_q8(codes[:, :31], d, d)
    with pytest.raises(ValueError, match=r"^wanted uint8 codes with d and m as fp16 bits"):
        pack_rows_q4(codes, d, d, codes, d, d)
    with pytest.raises(ValueError, match=r"^wanted a row format from \['f4', 'q4', 'q8'\], found 'q5'$"):
        unpack_rows(np.zeros((1, 10), np.uint32), "q5")
