"""Single instructions: the rules for the fields of one word, and what it touches, as templates over its
registers."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from compiler.check import kernel
from compiler.check.control import Complaint
from hw.config import BLOCK, HardwareConfig
from hw.image import Image
from hw.isa import FUNCTION_FIELDS, FUNCTIONS, A, B, C, D, FunctionKind, Opcode, Reduce, RowFormat

__all__ = ["ACCESSES", "COUNTS", "ROWS", "Template", "template"]

COUNTS = ("one", "two", "outer", "inner", "blocks", "nj", "nh", "nr")
"""Counts of an instruction that loops of an access run over."""
_ONE, _TWO, _OUTER, _INNER, _BLOCKS, _NJ, _NH, _NR = range(len(COUNTS))

NO_TIME, BY_WORD, BY_SEGMENT, FIRST_PASS, LAST_PASS = range(5)
"""When the elements of an access happen: for tokens alone; at each step; at the end of each outer iteration;
in the first or in the last pass of a MULTIPLY."""

ACCESSES = ("space", "writes", "base", "reg", "outer", "outer_step", "inner", "inner_step", "time", "needs",
            "single", "even")
ROWS = ("row", "reg", "nj", "row_j", "nh", "row_h", "nr", "row_r")

_FIRST_TABLED = {FunctionKind.EXP2, FunctionKind.RECIP, FunctionKind.RSQRT, FunctionKind.TABLE}


@dataclass
class Template:
    """What one microcode word does, before registers are added.

    `counts` (base, register) for each of `COUNTS`; `accesses` rows of `ACCESSES`, reads first; `rows` the
    fields `ROWS` of its access to the array, None if it has none; `fetches` whether these rows may depend on
    the token.
    """

    opcode: Opcode
    fields: dict[str, int]
    counts: list[tuple[int, int]]
    accesses: list[tuple[int, ...]]
    rows: tuple[int, ...] | None
    registers: dict[str, int]

    @property
    def vector(self) -> bool:
        return self.opcode == Opcode.VECTOR

    @property
    def stores(self) -> bool:
        return self.opcode in (Opcode.STORE_ROW, Opcode.STORE_COLUMN)


def template(image: Image, address: int, opcode: int, f: dict[str, int], complain: Complaint) -> Template:
    """The template of a word; reports fields that no instruction may have."""
    def say(kind: str, problem: str) -> None:
        complain(address, kind, problem)

    registers = {name: register for name, register in f.items() if name.endswith("_reg") and register}
    counts = [(1, 0), (2, 0)] + [(1, 0)] * (len(COUNTS) - 2)
    if opcode == Opcode.VECTOR:
        counts[_OUTER] = (f["outer"], 0)
        counts[_INNER] = (f["inner"], f["inner_reg"])
        _vector_rules(image, f, say)
        return Template(Opcode.VECTOR, f, counts, _vector_accesses(f), None, registers)
    counts[_NJ] = (f["nj"], f["nj_reg"])
    if opcode == Opcode.MULTIPLY:
        counts[_NH] = (f["nh"], 0)
        counts[_NR] = (f["nr"], f["nr_reg"])
    elif opcode == Opcode.STORE_COLUMN:
        counts[_NR] = (image.config.lanes_per_block, 0)
    _matrix_rules(image.config, opcode, f, say)
    rows = (f["row"], f["row_reg"], _NJ, f["row_j"], _NH, f["row_h"] if opcode == Opcode.MULTIPLY else 0, _NR,
            f["row_r"] if opcode in (Opcode.MULTIPLY, Opcode.STORE_COLUMN) else 0)
    return Template(Opcode(opcode), f, counts, _matrix_accesses(image.config, opcode, f), rows, registers)


Say = Callable[[str, str], None]


def _matrix_rules(config: HardwareConfig, opcode: int, f: dict[str, int], say: Say) -> None:
    if opcode == Opcode.MULTIPLY:
        if f["format"] > max(RowFormat):
            say("format", f"row formats are 0 to {max(RowFormat)}; this instruction has {f['format']}")
        elif RowFormat(f["format"]).name.lower() not in config.formats:
            say("format", f"this device decodes {', '.join(config.formats)}; this instruction multiplies "
                f"{RowFormat(f['format']).name.lower()} rows")
        if f["format"] != RowFormat.Q8 and f["nh"] > 1 and f["acc_h"] % 2:
            say("even", "rows of a two-row format fill pairs of accumulators; acc_h must be even, it is "
                        f"{f['acc_h']}")


def _vector_rules(image: Image, f: dict[str, int], say: Say) -> None:
    config = image.config
    for name, choices in (("a", A), ("b", B), ("c", C), ("d", D), ("reduce", Reduce), ("row_format",
                                                                                       RowFormat)):
        if f[name] > max(choices):
            say("selector", f"{name} is 0 to {max(choices)}; this instruction has {f[name]}")
    row = f["a"] in (A.ROW_ELEMENT, A.ROW_WORD) or f["b"] == B.ROW_SCALE or f["c"] == C.ROW_MINIMUM
    if row and f["a"] == A.ACC:
        say("selector", "z is an accumulator or a row buffer entry; this instruction uses it as both")
    known = f["row_format"] <= max(RowFormat)
    if row and known and RowFormat(f["row_format"]).name.lower() not in config.formats:
        say("format", f"this device has rows of {', '.join(config.formats)}; this instruction reads "
            f"{RowFormat(f['row_format']).name.lower()} rows")
    if f["a"] == A.ROW_ELEMENT and (f["inner_reg"] or max(f["inner"], 1) * config.tiles > max(BLOCK,
                                                                                              config.tiles)):
        say("element", f"a row has {BLOCK} elements, {config.lanes_per_block} words of {config.tiles} "
                       "lanes; inner may be no "
            f"more and no register, it is {f['inner']}")
    if f["reduce"] == Reduce.ARGMAX and f["reduce_emit"] and f["r_dest"] % 2:
        say("even", f"argmax writes a pair of scalars; r_dest must be even, it is {f['r_dest']}")
    if f["function"]:
        _function_rules(image, f["function"], say)


def _function_rules(image: Image, number: int, say: Say) -> None:
    table = np.asarray(image.functions)
    if number >= min(len(table), FUNCTIONS) or not table[number].any():
        say("function", f"the image has functions 0 to {len(table) - 1}; this instruction applies {number}, "
                        "which is not there")
        return
    offset, values = 0, {}
    for name, width, _ in FUNCTION_FIELDS:
        if name not in ("lo", "hi"):
            values[name] = int(table[number, 0]) >> offset & ((1 << width) - 1)
            offset += width
    if values["kind"] > max(FunctionKind):
        say("function", f"kinds of function are 0 to {max(FunctionKind)}; function {number} has "
                        f"{values['kind']}")
    elif FunctionKind(values["kind"]) in _FIRST_TABLED and values["base"] >= len(image.tables):
        say("function", f"the coefficient table has {len(image.tables)} entries; function {number} begins "
                        f"at {values['base']}")
    elif (values["kind"] == FunctionKind.TABLE
          and values["base"] + (1 << values["segments"]) > len(image.tables)):
        say("function", f"the coefficient table has {len(image.tables)} entries; function {number} needs "
                        "those up to "
            f"{values['base'] + (1 << values['segments'])}")


def _matrix_accesses(config: HardwareConfig, opcode: int, f: dict[str, int]) -> list[tuple[int, ...]]:
    if opcode == Opcode.FETCH:
        return [(kernel.ROW_BUFFER, 1, f["acc"], f["acc_reg"], _NJ, 1, _ONE, 0, NO_TIME, 0, 0, 0)]
    if opcode in (Opcode.STORE_ROW, Opcode.STORE_COLUMN):
        needs = kernel.GIVEN if opcode == Opcode.STORE_COLUMN else 0
        if config.activation_bits > 8:
            needs |= kernel.NARROW
        return [(kernel.OPERANDS, 0, f["block"], f["block_reg"], _NJ, f["block_j"], _ONE, 0, NO_TIME, needs,
                 0, 0)]
    out: list[tuple[int, ...]] = [
        (kernel.OPERANDS, 0, f["block"], f["block_reg"], _NJ, f["block_j"], _NH, f["block_h"], NO_TIME, 0,
         0, 0)]
    halves = (0,) if f["format"] == RowFormat.Q8 else (0, 1)
    for writes in ((1,) if f["init"] else (0, 1)):
        for half in halves:
            out.append((kernel.ACCUMULATORS, writes, f["acc"] + half, f["acc_reg"], _NH, f["acc_h"], _NR,
                        len(halves),
                        LAST_PASS if writes else FIRST_PASS, 0, 0, len(halves) - half - 1))
    return out


def _vector_accesses(f: dict[str, int]) -> list[tuple[int, ...]]:
    out: list[tuple[int, ...]] = []
    chosen = (f["a"], f["b"], f["c"], f["d"])
    for port, code in (("x", A.X), ("y", A.Y)):
        if code in chosen:
            out.append((kernel.SCRATCH, 0, f[port], f[f"{port}_reg"], _OUTER, f[f"{port}_o"], _INNER,
                        f[f"{port}_i"], BY_WORD,
                        0, 0, 0))
    if f["a"] == A.ACC:
        out.append((kernel.ACCUMULATORS, 0, f["z"], f["z_reg"], _OUTER, f["z_o"], _INNER, f["z_i"], BY_WORD,
                    0, 0, 0))
    if f["a"] in (A.ROW_ELEMENT, A.ROW_WORD) or f["b"] == B.ROW_SCALE or f["c"] == C.ROW_MINIMUM:
        out.append((kernel.ROW_BUFFER, 0, f["z"], f["z_reg"], _OUTER, f["z_o"], _ONE, 0, BY_WORD, 0, 0, 0))
    for used, name in ((f["a"] == A.S or f["b"] == B.S, "p"), (f["c"] == C.S, "q"), (f["d"] == D.S, "r"),
                       (f["quantize"] and f["given"], "scale")):
        if used:
            out.append((kernel.SCALARS, 0, f[name], 0, _OUTER, f[f"{name}_o"], _ONE, 0, BY_WORD, 0, 0, 0))
    if f["w"]:
        out.append((kernel.SCRATCH, 1, f["w_word"], f["w_word_reg"], _OUTER, f["w_o"], _INNER, f["w_i"],
                    BY_WORD, 0,
                    f["w_single"], 0))
    if f["quantize"]:
        kinds = kernel.NARROW * f["narrow"] | kernel.GIVEN * f["given"] | kernel.CUT * f["mask"]
        out.append((kernel.OPERANDS, 1, f["block"], f["block_reg"], _OUTER, f["block_o"], _BLOCKS, 1, NO_TIME,
                    kinds, 0, 0))
    if f["reduce"] and f["reduce_emit"]:
        pair = f["reduce"] == Reduce.ARGMAX
        out.append((kernel.SCALARS, 1, f["r_dest"], 0, _OUTER, f["r_dest_o"] * (1 + pair), _TWO if pair
                    else _ONE, 1,
                    BY_SEGMENT, 0, 0, 0))
    return out
