"""Packs blocks of weights into array rows, and reads them back.

An array row is ten 32-bit words: 0 to 7 the data, least significant first, 8 and 9 the side bits.

    q8      byte i: int8 element i          word 8: d, then m (16 bits each)   word 9: zero
    q4, f4  nibble i: element i of row A,   word 8: dA, then mA                word 9: dB, then mB
            nibble 32 + i: element i of row B
"""

import numpy as np

from hw.config import BLOCK, LINE_WORDS

__all__ = ["ROWS_PER_LINE", "pack_rows_q4", "pack_rows_q8", "unpack_rows"]

#: Output rows that share an array row.
ROWS_PER_LINE = {"q8": 1, "q4": 2, "f4": 2}


def _side(d: np.ndarray, m: np.ndarray) -> np.ndarray:
    return d.astype(np.uint32) | m.astype(np.uint32) << np.uint32(16)


def _check(codes: np.ndarray, d: np.ndarray, m: np.ndarray, dtypes: tuple[type, ...]) -> None:
    if codes.shape[-1:] != (BLOCK,) or d.shape != codes.shape[:-1] or m.shape != d.shape:
        raise ValueError(
            f"wanted codes of shape (..., {BLOCK}) with d and m of shape (...), found {codes.shape}, "
            f"{d.shape} and {m.shape}; split the contraction into blocks"
        )
    if codes.dtype not in dtypes or d.dtype != np.uint16 or m.dtype != np.uint16:
        raise ValueError(
            f"wanted {' or '.join(t.__name__ for t in dtypes)} codes with d and m as fp16 bits (uint16), "
            f"found {codes.dtype}, {d.dtype} and {m.dtype}; view the halves as uint16"
        )


def pack_rows_q8(codes: np.ndarray, d: np.ndarray, m: np.ndarray) -> np.ndarray:
    """int8 codes (..., 32), fp16 bits d and m (...) -> array rows, uint32 (..., 10)."""
    _check(codes, d, m, (np.int8,))
    rows = np.zeros((*d.shape, LINE_WORDS), "<u4")
    rows[..., :8] = np.ascontiguousarray(codes).view("<u4")
    rows[..., 8] = _side(d, m)
    return rows


def _nibble_words(codes: np.ndarray) -> np.ndarray:
    """Codes 0 to 15 (..., 32) -> (..., 4) uint32, element 0 in the lowest nibble."""
    pairs = np.ascontiguousarray(codes).view("<u2")  # element 2k in the low byte
    return ((pairs | pairs >> 4) & 0xFF).astype(np.uint8).view("<u4")


def pack_rows_q4(
    codes_a: np.ndarray, d_a: np.ndarray, m_a: np.ndarray,
    codes_b: np.ndarray, d_b: np.ndarray, m_b: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Two sets of 4-bit codes, uint8 (..., 32), with fp16 bits d and m (...) -> array rows, uint32 (..., 10).

    Serves `q4` and `f4`, which differ only in what a code means.
    """
    _check(codes_a, d_a, m_a, (np.uint8,))
    _check(codes_b, d_b, m_b, (np.uint8,))
    rows = np.empty((*d_a.shape, LINE_WORDS), "<u4")
    rows[..., 0:4] = _nibble_words(codes_a)
    rows[..., 4:8] = _nibble_words(codes_b)
    rows[..., 8] = _side(d_a, m_a)
    rows[..., 9] = _side(d_b, m_b)
    return rows


def unpack_rows(rows: np.ndarray, format: str) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Array rows, uint32 (..., 10) -> (codes, d, m) of each output row they hold: one for q8, else two."""
    if format not in ROWS_PER_LINE:
        raise ValueError(f"wanted a row format from {sorted(ROWS_PER_LINE)}, found {format!r}")
    data = np.ascontiguousarray(rows[..., :8].astype("<u4")).view(np.uint8)
    sides = (rows[..., 8], rows[..., 9])
    halves = [((side & 0xFFFF).astype(np.uint16), (side >> 16).astype(np.uint16)) for side in sides]
    if format == "q8":
        return [(data.view(np.int8), *halves[0])]
    nibbles = np.stack((data & 15, data >> 4), axis=-1).reshape(*data.shape[:-1], 2 * BLOCK)
    return [(nibbles[..., :BLOCK], *halves[0]), (nibbles[..., BLOCK:], *halves[1])]
