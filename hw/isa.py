"""The instruction set: the one table of microcode instructions, fields, widths and meanings.

A microcode word is ten 32-bit words (320 bits), least significant first. Bits 0 to 3 are the opcode; the fields of
its format follow in the order of the tables below, without gaps. Nobody else knows a bit position: sequencer,
assembler, disassembler, functional model, timing model and the reference page are derived from here.

A field that ends in ``_reg`` names an integer register that the sequencer adds to the field of the same name before
it (``row`` + ``registers[row_reg]``); register 0 is always zero. All such sums wrap at 32 bits.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from hw.config import LINE_WORDS, REGISTERS
from hw.errors import WordlineError

__all__ = [
    "A", "Alu", "B", "C", "CONTROL", "D", "FORMATS", "FUNCTION_FIELDS", "FunctionKind", "Field", "Format",
    "Instruction", "IsaError", "MATRIX", "Opcode", "Reduce", "RowFormat", "TABLE_ENTRIES", "VECTOR", "decode",
    "decode_table", "encode", "FUNCTIONS", "format_of",
]

WORD_BITS = 32 * LINE_WORDS
_REGISTER = (REGISTERS - 1).bit_length()
"""Width of a field that names an integer register."""


class IsaError(WordlineError):
    """An instruction that does not exist or a value that does not fit its field."""


class Opcode(IntEnum):
    """What a microcode word does. The first six are the sequencer's own."""

    HALT = 0
    """End of the command: waits until both engines are idle, then completes."""
    ALU = 1
    """``registers[rd] = fn(registers[ra], registers[rb] + imm)``, 32 bits, wrapping."""
    LOOP = 2
    """Run the words up to the matching END ``count`` + ``registers[count_reg]`` times (at least once; four deep)."""
    END = 3
    """End of the innermost LOOP."""
    MULTIPLY = 4
    """Matrix: array rows times operand blocks into accumulators."""
    FETCH = 5
    """Matrix: array rows into the row buffer, each tile its own or one tile's to all."""
    STORE_ROW = 6
    """Matrix: operand blocks into q8 rows of one tile."""
    STORE_COLUMN = 7
    """Matrix: operand blocks into one byte column of rows in every tile, whose side bits become d = 1, m = 0."""
    VECTOR = 8
    """Vector: one pass of the lanes over outer x inner words."""


class Alu(IntEnum):
    """Integer operations of the sequencer (unsigned 32 bits)."""

    ADD = 0
    SUB = 1
    MUL = 2
    SHL = 3
    SHR = 4
    AND = 5
    MIN = 6
    MAX = 7


class RowFormat(IntEnum):
    """How the dot unit reads an array row."""

    Q8 = 0
    """One output row of 32 int8, side bits (d, m)."""
    Q4 = 1
    """Two output rows of 32 uint4, side bits (d0, m0, d1, m1)."""
    F4 = 2
    """Two output rows of 32 E2M1, as doubled integers, side bits as Q4."""


class A(IntEnum):
    """First factor of the lane."""

    ACC = 0
    """Accumulator at address Z."""
    X = 1
    Y = 2
    S = 3
    """Scalar register P."""
    ROW_ELEMENT = 4
    """Integer element of the row buffer entry at Z (see VECTOR ``z``), as fp32."""
    ROW_WORD = 5
    """fp32 word ``inner index mod 8`` of the lane's own row buffer entry at Z."""


class B(IntEnum):
    """Second factor of the lane."""

    ONE = 0
    X = 1
    Y = 2
    S = 3
    """Scalar register P."""
    A = 4
    """The first factor itself: a square."""
    ROW_SCALE = 5
    """Scale d of the row buffer entry at Z, as fp32."""


class C(IntEnum):
    """Addend of the lane."""

    ZERO = 0
    """-0.0, which changes nothing."""
    X = 1
    Y = 2
    S = 3
    """Scalar register Q."""
    ROW_MINIMUM = 4
    """Minimum m of the row buffer entry at Z, as fp32."""


class D(IntEnum):
    """Second multiplier's factor."""

    ONE = 0
    X = 1
    Y = 2
    S = 3
    """Scalar register R."""
    A = 4
    """The first factor."""
    E = 5
    """The function's result itself: a square."""


class Reduce(IntEnum):
    """What the reduction tree makes of a segment (one outer iteration)."""

    NONE = 0
    SUM = 1
    MAX = 2
    ARGMAX = 3
    """Maximum to scalar ``r_dest`` (even), its element index as an integer to ``r_dest`` + 1."""
    TAKE = 4
    """The value of lane 0 in the last word."""


class FunctionKind(IntEnum):
    """Range reduction of a special function (definitions in `sim.numerics`)."""

    IDENTITY = 0
    EXP2 = 1
    RECIP = 2
    RSQRT = 3
    TABLE = 4
    SCALE = 5


FUNCTIONS = 16
"""Entries of the function table; entry 0 is the identity."""

TABLE_ENTRIES = 1024
"""Entries (c0, c1, c2) of the coefficient memory, shared by all functions."""

FUNCTION_FIELDS: tuple[tuple[str, int, bool], ...] = (
    ("kind", 3, False), ("base", 10, False), ("segments", 4, False), ("domain", 4, True),
    ("lo", 32, False), ("hi", 32, False),
)
"""(name, width, signed) of a function descriptor, least significant first; `segments` is a log2."""


@dataclass(frozen=True)
class Field:
    """One field of a format: its name, width in bits, sign and meaning. `offset` is set by the format."""

    name: str
    width: int
    meaning: str
    signed: bool = False
    offset: int = field(default=0, compare=False)

    @property
    def lowest(self) -> int:
        return -(1 << (self.width - 1)) if self.signed else 0

    @property
    def highest(self) -> int:
        return (1 << (self.width - self.signed)) - 1


@dataclass(frozen=True)
class Format:
    """The fields of one class of instructions, in order from bit 4."""

    name: str
    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        placed, offset = [], 4
        for f in self.fields:
            placed.append(Field(f.name, f.width, f.meaning, f.signed, offset))
            offset += f.width
        if offset > WORD_BITS:
            raise IsaError(f"format {self.name!r} must fit {WORD_BITS} bits; it has {offset}")
        object.__setattr__(self, "fields", tuple(placed))

    def __getitem__(self, name: str) -> Field:
        for f in self.fields:
            if f.name == name:
                return f
        raise IsaError(f"{self.name} has no field {name!r}; it has {', '.join(f.name for f in self.fields)}")


def _reg(name: str) -> Field:
    return Field(f"{name}_reg", _REGISTER, f"register added to `{name}`")


CONTROL = Format("control", (
    Field("fn", 3, "ALU: operation (`Alu`)"),
    Field("rd", _REGISTER, f"ALU: destination register (1 to {REGISTERS - 1})"),
    Field("ra", _REGISTER, "ALU: first register"),
    Field("rb", _REGISTER, "ALU: register added to `imm`"),
    Field("imm", 32, "ALU: immediate"),
    Field("count", 16, "LOOP: iterations"), _reg("count"),
))

_SYNC = (
    Field("wait", 4, "tokens of the other engine to take before the start"),
    Field("signal", 1, "give the other engine a token at the end"),
    Field("fence", 1, "start only when the results of all earlier instructions of this engine are written"),
)

MATRIX = Format("matrix", (
    *_SYNC,
    Field("format", 2, "MULTIPLY: row format (`RowFormat`)"),
    Field("init", 1, "MULTIPLY: the first block writes the accumulators instead of adding"),
    Field("nj", 12, "blocks along the contraction; rows of FETCH; blocks of the stores"), _reg("nj"),
    Field("nh", 8, "MULTIPLY: operand groups"),
    Field("nr", 12, "MULTIPLY: rows of a group"), _reg("nr"),
    Field("row", 24, "array row"), _reg("row"),
    Field("row_j", 20, "row step along the contraction, of FETCH and of the stores", signed=True),
    Field("row_h", 20, "row step between groups", signed=True),
    Field("row_r", 20, "row step inside a group; STORE_COLUMN: row step inside a block", signed=True),
    Field("block", 12, "operand block"), _reg("block"),
    Field("block_j", 12, "block step along the contraction and of the stores", signed=True),
    Field("block_h", 12, "block step between groups", signed=True),
    Field("acc", 12, "accumulator; FETCH: row buffer entry"), _reg("acc"),
    Field("acc_h", 12, "accumulator step between groups", signed=True),
    Field("all", 1, "FETCH: the row of tile `registers[tile_reg] mod tiles` to all tiles, else each tile its own"),
    Field("tile_reg", _REGISTER, "FETCH and STORE_ROW: register whose value mod tiles names the tile"),
    Field("column_reg", _REGISTER, "STORE_COLUMN: register whose value mod 32 names the byte"),
))

VECTOR = Format("vector", (
    *_SYNC,
    Field("chain", 1, "start no sooner than the vector latency after the start of the previous instruction, so that "
                      "its words can be read in the order in which they were issued"),
    Field("reduce_fence", 1, "start only when the scalars of all earlier instructions are written"),
    Field("outer", 10, "outer iterations o"),
    Field("inner", 12, "inner iterations i"), _reg("inner"),
    Field("x", 16, "scratch word of operand X"), _reg("x"),
    Field("x_o", 12, "its step with o", signed=True), Field("x_i", 1, "its step with i"),
    Field("y", 16, "scratch word of operand Y"), _reg("y"),
    Field("y_o", 12, "its step with o", signed=True), Field("y_i", 1, "its step with i"),
    Field("z", 12, "accumulator, or row buffer entry (which steps with o only)"), _reg("z"),
    Field("z_o", 12, "its step with o", signed=True), Field("z_i", 1, "its step with i (accumulators)"),
    Field("a", 3, "first factor (`A`)"),
    Field("b", 3, "second factor (`B`)"),
    Field("c", 3, "addend (`C`)"),
    Field("c_negate", 1, "subtract the addend"),
    Field("d", 3, "second multiplier's factor (`D`)"),
    Field("p", 6, "scalar P, for A and B"), Field("p_o", 1, "its step with o"),
    Field("q", 6, "scalar Q, for C"), Field("q_o", 1, "its step with o"),
    Field("r", 6, "scalar R, for D"), Field("r_o", 1, "its step with o"),
    Field("function", 4, "special function between addition and second multiplication; 0 is the identity"),
    Field("row_format", 2, "ROW_ELEMENT: format of the row (`RowFormat`)"),
    Field("half_reg", _REGISTER, "ROW_ELEMENT of a two-row format: register whose bit 0 names the half"),
    Field("w", 1, "write scratch"), Field("w_early", 1, "write the value before the second multiplication"),
    Field("w_word", 16, "scratch word written"), _reg("w_word"),
    Field("w_o", 12, "its step with o", signed=True), Field("w_i", 1, "its step with i"),
    Field("w_single", 1, "write in one tile only"),
    Field("w_tile_reg", _REGISTER, "register whose value mod tiles names that tile"),
    Field("quantize", 1, "send the words to the quantizer"),
    Field("quantize_early", 1, "send the value before the second multiplication"),
    Field("narrow", 1, "8-bit blocks for the KV cache instead of operand width"),
    Field("given", 1, "block exponent from scalar `scale` (a power of two) instead of the block's maximum"),
    Field("scale", 6, "that scalar"), Field("scale_o", 1, "its step with o"),
    Field("block", 12, "operand block of the first word; steps by one a block"), _reg("block"),
    Field("block_o", 12, "step of the first block with o", signed=True),
    Field("reduce", 3, "reduction (`Reduce`)"),
    Field("reduce_early", 1, "reduce the value before the second multiplication"),
    Field("absolute", 1, "reduce the absolute value"),
    Field("reduce_init", 1, "begin the reduction afresh at each o"),
    Field("reduce_emit", 1, "write the scalar at the end of each o"),
    Field("r_dest", 6, "scalar written"), Field("r_dest_o", 1, "its step with o (2 for ARGMAX)"),
    Field("mask", 1, "elements at or beyond `registers[length_reg]` count as zero, and not at all in reductions"),
    Field("length_reg", _REGISTER, "register with the length in elements"),
    Field("index", 16, "word index of i = 0, for mask and argmax: element = (index + i) * tiles + tile"),
    _reg("index"),
))

FORMATS: dict[Opcode, Format] = {
    op: CONTROL if op < Opcode.MULTIPLY else VECTOR if op == Opcode.VECTOR else MATRIX for op in Opcode
}

_NAMES = {op: frozenset(f.name for f in form.fields) for op, form in FORMATS.items()}


def format_of(opcode: int) -> Format:
    """The format of an opcode; raises `IsaError` for one that does not exist."""
    try:
        return FORMATS[Opcode(opcode)]
    except ValueError:
        raise IsaError(f"opcode {opcode} does not exist; opcodes are 0 to {max(Opcode)}") from None


@dataclass(frozen=True)
class Instruction:
    """An opcode with the values of its fields; a field not given is zero."""

    opcode: Opcode
    values: Mapping[str, int] = field(default_factory=dict)

    def __getitem__(self, name: str) -> int:
        value = self.values.get(name)
        if value is None:
            if name not in _NAMES[self.opcode]:
                FORMATS[self.opcode][name]  # raises, naming the fields there are
            return 0
        return value

    def __str__(self) -> str:
        shown = " ".join(f"{f.name}={self.values[f.name]}" for f in format_of(self.opcode).fields
                         if self.values.get(f.name, 0))
        return f"{self.opcode.name.lower():12} {shown}".rstrip()


def encode(instructions: Iterable[Instruction]) -> np.ndarray:
    """Microcode words, uint32 (n, 10); raises `IsaError` for a value that does not fit its field."""
    rows = []
    for instruction in instructions:
        form = format_of(instruction.opcode)
        word = int(instruction.opcode)
        known = {f.name: f for f in form.fields}
        for name, value in instruction.values.items():
            f = known.get(name) or form[name]
            value = int(value)
            if not f.lowest <= value <= f.highest:
                raise IsaError(f"{instruction.opcode.name} field {name!r} takes {f.lowest} to {f.highest}; got {value}")
            word |= (value & ((1 << f.width) - 1)) << f.offset
        rows.append(word.to_bytes(4 * LINE_WORDS, "little"))
    return np.frombuffer(b"".join(rows), "<u4").reshape(-1, LINE_WORDS).copy()


def decode(words: np.ndarray) -> list[Instruction]:
    """Instructions of microcode words, uint32 (n, 10); zero fields are left out."""
    out = []
    for row in np.ascontiguousarray(words, dtype="<u4").reshape(-1, LINE_WORDS):
        word = int.from_bytes(row.tobytes(), "little")
        form = format_of(word & 15)
        values = {}
        for f in form.fields:
            value = (word >> f.offset) & ((1 << f.width) - 1)
            if f.signed and value >> (f.width - 1):
                value -= 1 << f.width
            if value:
                values[f.name] = value
        out.append(Instruction(Opcode(word & 15), values))
    return out


def decode_table(words: np.ndarray) -> np.ndarray:
    """All fields of microcode words at once, int64 (n, 1 + most fields): column 0 the opcode, then the format's fields.

    The functional and the timing model run from this table.
    """
    words = np.ascontiguousarray(words, dtype="<u4").reshape(-1, LINE_WORDS).astype(np.uint64)
    words = np.concatenate([words, np.zeros((len(words), 2), np.uint64)], axis=1)
    columns = 1 + max(len(f.fields) for f in (CONTROL, MATRIX, VECTOR))
    table = np.zeros((len(words), columns), np.int64)
    table[:, 0] = (words[:, 0] & np.uint64(15)).astype(np.int64)
    for form in (CONTROL, MATRIX, VECTOR):
        of_form = np.isin(table[:, 0], [int(op) for op, f in FORMATS.items() if f is form])
        for column, f in enumerate(form.fields, 1):
            k, shift = divmod(f.offset, 32)
            pair = words[:, k] | (words[:, k + 1] << np.uint64(32))
            value = ((pair >> np.uint64(shift)) & np.uint64((1 << f.width) - 1)).astype(np.int64)
            if f.signed:
                value = np.where(value >> (f.width - 1), value - (1 << f.width), value)
            table[of_form, column] = value[of_form]
    return table
