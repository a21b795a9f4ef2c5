"""Decodes the weight types of model files, and carries them into blocks that array rows can hold.

A block is 32 elements along the contraction; its element is `d q + m` with an integer code `q` and the fp16
numbers `d` and `m`. A file's blocks are carried verbatim where a row format holds them exactly; the rest
goes to `q8`, never to fewer bits. Block layouts are those of ggml's ggml-common.h; the decoder of a type
says which row format it takes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from compiler.errors import ModelFileError
from hw.config import BLOCK

__all__ = ["Blocks", "Loss", "carry", "dequantize", "supported_types"]

FP16_MAX = 65504.0

#: Values of IQ4_NL's sixteen codes (ggml's kvalues_iq4nl).
IQ4_NL_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)
#: Twice the values of E2M1's sixteen codes (OCP Microscaling Formats 1.0, table 5).
E2M1_DOUBLED = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)


@dataclass(frozen=True)
class Loss:
    """What carrying a tensor changed.

    `worst` is the largest error of an element as a share of the largest magnitude in the tensor; `snr_db` is
    the power of the values over the power of the errors, infinite when every element is held exactly.
    """

    worst: float
    snr_db: float

    @property
    def exact(self) -> bool:
        return self.worst == 0.0


EXACT = Loss(0.0, float("inf"))


@dataclass(frozen=True)
class Blocks:
    """A matrix as array rows hold it, before rows are paired and packed.

    `format`: "q8" (`codes` int8), "q4" (uint4 in uint8) or "f4" (E2M1 codes in uint8, whose integer value is
    the doubled element, so that `d` is half the block's scale). `codes` (out, blocks, 32); `d` and `m`: fp16
    bit patterns, uint16 (out, blocks). `length` is the contraction length before padding to whole blocks.
    """

    format: str
    length: int
    codes: np.ndarray = field(repr=False)
    d: np.ndarray = field(repr=False)
    m: np.ndarray = field(repr=False)
    loss: Loss = EXACT

    def integers(self) -> np.ndarray:
        """The integers that the dot unit multiplies: int8 (out, blocks, 32)."""
        return E2M1_DOUBLED[self.codes] if self.format == "f4" else self.codes.astype(np.int8, copy=False)

    def values(self) -> np.ndarray:
        """The weights that the rows stand for: float32 (out, length)."""
        scale, low = (half.view(np.float16).astype(np.float32)[..., None] for half in (self.d, self.m))
        values = self.integers().astype(np.float32) * scale + low
        return values.reshape(len(values), -1)[:, : self.length]


@dataclass(frozen=True)
class _Affine:
    """Decoded blocks: value = scale * codes + low, the numbers still as the file's type makes them.

    `codes` int8 or uint8 (out, groups, size); `scale`, `low` float32 (out, groups). `width` is the row
    format that holds the codes as they are.
    """

    width: str
    codes: np.ndarray
    scale: np.ndarray
    low: np.ndarray | None = None

    def values(self) -> np.ndarray:
        with np.errstate(over="ignore"):  # the largest MXFP4 scales; `_near` names the tensor
            values = self.codes.astype(np.float32) * self.scale[..., None]
        if self.low is not None:
            values += self.low[..., None]
        return values.reshape(len(values), -1)


def _half(raw: np.ndarray) -> np.ndarray:
    """Two bytes of little-endian fp16 at the end of `raw` (..., 2) -> float32 (...)."""
    return np.ascontiguousarray(raw).view("<f2")[..., 0].astype(np.float32)


def _nibbles(raw: np.ndarray) -> np.ndarray:
    """Low nibbles, then high nibbles: (..., n) uint8 -> (..., 2n)."""
    return np.concatenate((raw & 15, raw >> 4), axis=-1)


def _fifth_bits(raw: np.ndarray) -> np.ndarray:
    """32 bits in four bytes -> (..., 32) uint8, each 0 or 16."""
    return np.unpackbits(np.ascontiguousarray(raw), axis=-1, bitorder="little") << 4


def _q4_0(b: np.ndarray) -> _Affine:
    scale = _half(b[..., :2])
    return _Affine("q4", _nibbles(b[..., 2:]), scale, -8 * scale)


def _q4_1(b: np.ndarray) -> _Affine:
    return _Affine("q4", _nibbles(b[..., 4:]), _half(b[..., :2]), _half(b[..., 2:4]))


def _q5_0(b: np.ndarray) -> _Affine:
    codes = (_nibbles(b[..., 6:]) | _fifth_bits(b[..., 2:6])).view(np.int8) - np.int8(16)
    return _Affine("q8", codes, _half(b[..., :2]))


def _q5_1(b: np.ndarray) -> _Affine:
    codes = _nibbles(b[..., 8:]) | _fifth_bits(b[..., 4:8])
    return _Affine("q8", codes.view(np.int8), _half(b[..., :2]), _half(b[..., 2:4]))


def _q8_0(b: np.ndarray) -> _Affine:
    return _Affine("q8", b[..., 2:].view(np.int8), _half(b[..., :2]))


def _iq4_nl(b: np.ndarray) -> _Affine:
    return _Affine("q8", IQ4_NL_VALUES[_nibbles(b[..., 2:])], _half(b[..., :2]))


def _six_bit_scales(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scales and minima of a 256-element block: 12 bytes -> two float32 (..., 8) (get_scale_min_k4)."""
    first, second, last = packed[..., 0:4], packed[..., 4:8], packed[..., 8:12]
    scales = np.concatenate((first & 63, (last & 15) | (first >> 6 << 4)), axis=-1)
    minima = np.concatenate((second & 63, (last >> 4) | (second >> 6 << 4)), axis=-1)
    return scales.astype(np.float32), minima.astype(np.float32)


def _per_group(values: np.ndarray, size: int) -> np.ndarray:
    """(out, superblocks, ...) -> (out, groups, size)."""
    return np.ascontiguousarray(values).reshape(len(values), -1, size)


def _k_scales(b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scale and low of each 32 of a Q4_K or Q5_K block: float32 (out, blocks)."""
    scales, minima = _six_bit_scales(b[..., 4:16])
    scale = _half(b[..., 0:2])[..., None] * scales
    low = -(_half(b[..., 2:4])[..., None] * minima)
    return scale.reshape(len(b), -1), low.reshape(len(b), -1)


def _k_nibbles(raw: np.ndarray) -> np.ndarray:
    """128 bytes of a 256-element block -> (out, superblocks, 8, 32): each 32 bytes hold two groups."""
    quarter = raw.reshape(*raw.shape[:2], 4, 1, 32)
    return np.concatenate((quarter & 15, quarter >> 4), axis=3).reshape(*raw.shape[:2], 8, 32)


def _q4_k(b: np.ndarray) -> _Affine:
    return _Affine("q4", _per_group(_k_nibbles(b[..., 16:]), 32), *_k_scales(b))


def _q5_k(b: np.ndarray) -> _Affine:
    fifth = b[..., None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None] & 1
    codes = _k_nibbles(b[..., 48:]) | fifth << 4
    return _Affine("q8", _per_group(codes, 32).view(np.int8), *_k_scales(b))


def _q6_k(b: np.ndarray) -> _Affine:
    # Each half of 128 elements: 64 bytes of low nibbles, 32 bytes of four 2-bit tops; scales are per 16.
    halves = b.shape[:2] + (2,)
    low = b[..., :128].reshape(*halves, 1, 64)
    low = np.concatenate((low & 15, low >> 4), axis=-2).reshape(*halves, 4, 32)
    top = b[..., 128:192].reshape(*halves, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    codes = (low | top << 4).view(np.int8) - np.int8(32)
    scale = _half(b[..., 208:])[..., None] * b[..., 192:208].view(np.int8).astype(np.float32)
    return _Affine("q8", _per_group(codes, 16), scale.reshape(len(b), -1))


def _mxfp4(b: np.ndarray) -> _Affine:
    # The scale is 2^(e - 127), and 255 is NaN; the codes stand for doubled elements.
    exponent = b[..., 0].astype(np.int32)
    scale = np.where(exponent == 255, np.float32(np.nan), np.ldexp(np.float32(1), exponent - 128))
    return _Affine("f4", _nibbles(b[..., 1:]), scale)


#: Type -> (elements of a file block, its bytes, its decoder).
DECODERS: dict[str, tuple[int, int, Callable[[np.ndarray], _Affine]]] = {
    "Q4_0": (32, 18, _q4_0),
    "Q4_1": (32, 20, _q4_1),
    "Q5_0": (32, 22, _q5_0),
    "Q5_1": (32, 24, _q5_1),
    "Q8_0": (32, 34, _q8_0),
    "Q4_K": (256, 144, _q4_k),
    "Q5_K": (256, 176, _q5_k),
    "Q6_K": (256, 210, _q6_k),
    "IQ4_NL": (32, 18, _iq4_nl),
    "MXFP4": (32, 17, _mxfp4),
}
FLOATS = ("F32", "F16", "BF16")


def supported_types() -> tuple[str, ...]:
    """Names of the weight types that can be carried."""
    return (*FLOATS, *DECODERS)


def _floats(type_name: str, raw: np.ndarray) -> np.ndarray:
    raw = np.ascontiguousarray(raw)
    if type_name == "F32":
        return raw.view("<f4").astype(np.float32)
    if type_name == "F16":
        return raw.view("<f2").astype(np.float32)
    return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)


def _decode(type_name: str, raw: np.ndarray) -> _Affine:
    _, size, decoder = DECODERS[type_name]
    return decoder(raw.reshape(len(raw), -1, size))


def _require_supported(name: str, type_name: str) -> None:
    if type_name not in supported_types():
        raise ModelFileError(
            f"tensor {name!r}: wanted one of the types {', '.join(supported_types())}, found {type_name}; "
            "convert the model to one of these types"
        )


def dequantize(name: str, type_name: str, raw: np.ndarray) -> np.ndarray:
    """Encoded rows, uint8 (out, bytes of a row) -> float32 (out, in), by the formula of the file's type."""
    _require_supported(name, type_name)
    if type_name in FLOATS:
        return _floats(type_name, raw)
    decoded = _decode(type_name, raw)
    if decoded.width == "f4":
        decoded = _Affine("q8", E2M1_DOUBLED[decoded.codes], decoded.scale)
    return decoded.values()


def _to_half(values: np.ndarray | None, like: np.ndarray) -> tuple[np.ndarray, bool] | None:
    """fp16 bits of float32 `values` and whether none was rounded; None when one overflows."""
    if values is None:
        return np.zeros(like.shape, np.uint16), True
    if np.max(np.abs(values), initial=0) > FP16_MAX:
        return None
    half = values.astype(np.float16)
    return half.view(np.uint16), bool(np.array_equal(half.astype(np.float32), values))


def _loss(values: np.ndarray, held: np.ndarray) -> Loss:
    """The difference of two float32 (out, in)."""
    error = held - values
    peak = float(np.max(np.abs(values), initial=0))
    worst = float(np.max(np.abs(error), initial=0))
    if worst == 0.0:
        return EXACT
    power = float(np.sum(np.square(values), dtype=np.float64))
    noise = float(np.sum(np.square(error), dtype=np.float64))
    return Loss(worst / peak, 10 * float(np.log10(power / noise)) if noise else float("inf"))


def _near(name: str, values: np.ndarray) -> Blocks:
    """Symmetric int8 with an fp16 scale for each block of float32 (out, in)."""
    rows, length = values.shape
    padded = np.zeros((rows, -(-length // BLOCK) * BLOCK), np.float32)
    padded[:, :length] = values
    blocks = padded.reshape(rows, -1, BLOCK)
    peak = np.maximum(blocks.max(axis=-1), -blocks.min(axis=-1))
    if np.max(peak, initial=0) / 127 > FP16_MAX:
        raise ModelFileError(
            f"tensor {name!r}: wanted weights up to {FP16_MAX * 127:g}, found {np.max(peak):g}; "
            "an fp16 scale cannot hold them, scale the weights down"
        )
    scale = (peak / np.float32(127)).astype(np.float16)
    step = scale.astype(np.float32)
    inverse = np.divide(np.float32(1), step, out=np.zeros_like(step), where=step > 0)
    codes = np.clip(np.rint(blocks * inverse[..., None]), -127, 127).astype(np.int8)
    d = scale.view(np.uint16)
    held = Blocks("q8", length, codes, d, np.zeros_like(d))
    return Blocks("q8", length, codes, d, np.zeros_like(d), _loss(values, held.values()))


def carry(name: str, type_name: str, raw: np.ndarray) -> Blocks:
    """Encoded rows, uint8 (out, bytes of a row), as blocks for array rows.

    Raises `ModelFileError` for a type without a row format and for numbers that are not finite.
    """
    _require_supported(name, type_name)
    if type_name in FLOATS:
        values = _floats(type_name, raw)
        _require_finite(name, values)
        return _near(name, values)
    decoded = _decode(type_name, raw)
    _require_finite(name, decoded.scale, decoded.low)
    length = decoded.codes.shape[1] * decoded.codes.shape[2]
    scale = decoded.scale
    if decoded.width == "f4":  # the scale of a block of zeros is of no matter and need not fit
        scale = np.where(E2M1_DOUBLED[decoded.codes].any(axis=-1), scale, np.float32(0))
    d, m = _to_half(scale, scale), _to_half(decoded.low, scale)
    if (
        m is None and d is not None and type_name == "Q4_0"
    ):  # -8 d does not fit, the centred codes do without it
        return Blocks("q8", length, decoded.codes.view(np.int8) - np.int8(8), d[0], np.zeros_like(d[0]))
    f4_rounded = decoded.width == "f4" and (d is None or not d[1])
    if d is None or m is None or f4_rounded or decoded.codes.shape[-1] != BLOCK:
        return _near(name, dequantize(name, type_name, raw))
    blocks = Blocks(decoded.width, length, decoded.codes, d[0], m[0])
    if d[1] and m[1]:
        return blocks
    loss = _loss(decoded.values(), blocks.values())
    return Blocks(decoded.width, length, decoded.codes, d[0], m[0], loss)


def _require_finite(name: str, *parts: np.ndarray | None) -> None:
    for part in parts:
        if part is not None and not np.isfinite(part).all():
            bad = int(np.argmax(~np.isfinite(part).all(axis=-1)))
            raise ModelFileError(
                f"tensor {name!r}: wanted finite weights, found an infinity or NaN in row {bad}; "
                "the file is damaged, bring it again"
            )
