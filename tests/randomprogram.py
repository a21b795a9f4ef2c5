"""Random states and random legal programs, for tests that hold two devices equal.

Programs are serial: every instruction waits, by fence or token, until its predecessor's results are written, so that
a pipelined device and one that runs instruction by instruction must agree. Which words are read and written is
random, but no instruction reads what it writes at an earlier element.
"""

from typing import Any

import numpy as np

from hw.config import BLOCK, REGISTERS, SCALARS, HardwareConfig
from hw.isa import (
    FUNCTION_FIELDS,
    FUNCTIONS,
    TABLE_ENTRIES,
    A,
    Alu,
    B,
    C,
    D,
    FunctionKind,
    Instruction,
    Opcode,
    Reduce,
    RowFormat,
)
from hw.memorymap import SPACE_TABLE, Space

__all__ = ["ARGUMENTS", "random_floats", "random_instruction", "random_program", "random_state"]

ARGUMENTS = 4
"""Random programs take so many arguments, any integers."""

POWERS = 8  # the last scalars hold powers of two, for given block exponents, and are never written
SAFE_REGISTERS = range(ARGUMENTS + 1, 9)  # zero, for programs only write registers from 9 on

Values = dict[str, int]


def random_floats(random: np.random.Generator, shape: tuple[int, ...], odd: float = 0.02) -> np.ndarray:
    """float32 of many magnitudes; a share `odd` of them zero, subnormal, huge, infinite, NaN, or a power of two."""
    values = random.standard_normal(shape) * np.exp2(random.integers(-12, 6, shape))
    values = values.astype(np.float32).view(np.uint32)
    strange = np.array([0, 0x8000_0000, 1, 0x807F_FFFF, 0x0060_0001, 0x8081_0003, 0x7F7F_FFFF, 0x7F80_0000,
                        0xFF80_0000, 0x7FC0_0000, 0xFFC1_2345,
                        *(sign | (127 + e) << 23 for sign in (0, 0x8000_0000) for e in range(-3, 5))],
                       np.uint32)
    chosen = random.random(shape) < odd
    return np.where(chosen, strange[random.integers(0, len(strange), shape)], values).view(np.float32)


def random_state(random: np.random.Generator, config: HardwareConfig, odd: float = 0.02) -> dict[Space, np.ndarray]:
    """Contents of every space but microcode, in host form."""
    shapes = {space: info.shape(config) for space, info in SPACE_TABLE.items()}
    state = {space: random.integers(0, 1 << 32, shapes[space], dtype=np.uint32)
             for space in (Space.ARRAY, Space.ROW_BUFFER)}
    for space in (Space.ARRAY, Space.ROW_BUFFER):
        sides = (random.standard_normal((len(state[space]), 2, config.tiles, 2)) * 0.1).astype(np.float16)
        sides.view(np.uint16)[random.random(sides.shape) < odd] = 0x7C00
        packed = sides.view(np.uint16).astype(np.uint32)
        state[space][:, 8:] = packed[..., 0] | packed[..., 1] << 16
    for space in (Space.SCRATCH, Space.ACCUMULATORS, Space.SCALARS):
        state[space] = random_floats(random, shapes[space], odd).view(np.uint32)
    # The last four are near the ends of the domains below.
    powers = np.concatenate([random.integers(-20, 10, POWERS - 4), random.integers(-3, 5, 4)])
    state[Space.SCALARS][-POWERS:] = np.exp2(powers).astype(np.float32).view(np.uint32)

    reach = 1 << (config.activation_bits - 1)
    q = random.integers(1 - reach, reach, (config.operands, BLOCK)).astype(np.int16)
    e = random.integers(-20, 10, config.operands)
    tail = (q.sum(1) & 0xFFFF) | (e & 0xFF) << 16
    state[Space.OPERANDS] = np.concatenate([q.view(np.uint32), tail[:, None].astype(np.uint32)], axis=1)

    state[Space.TABLES] = np.stack([random.integers(-1 << (bits - 1), 1 << (bits - 1), TABLE_ENTRIES)
                                    for bits in (29, 24, 18)], axis=1).astype(np.int32).view(np.uint32)
    functions = np.zeros((FUNCTIONS, 4), np.uint32)
    for n in range(1, FUNCTIONS):
        kind = FunctionKind(n % len(FunctionKind))
        values = {"kind": kind, "base": int(random.integers(0, TABLE_ENTRIES)), "domain": int(random.integers(-3, 5)),
                  "segments": int(random.integers(6, 11)) if kind == FunctionKind.TABLE else 0}
        offset = 0
        for name, width, _ in FUNCTION_FIELDS[:-2]:
            functions[n, 0] |= (values[name] & ((1 << width) - 1)) << offset
            offset += width
        functions[n, 1:3] = random_floats(random, (2,), 0).view(np.uint32)
    state[Space.FUNCTIONS] = functions
    return state


def _base(random: np.random.Generator, size: int, *steps: tuple[int, int]) -> int:
    """A random first address from which all ``sum(k * step)``, k < count, stay inside `size`."""
    low = sum(min(0, (count - 1) * step) for count, step in steps)
    high = sum(max(0, (count - 1) * step) for count, step in steps)
    return int(random.integers(-low, size - high))


def _multiply(random: np.random.Generator, config: HardwareConfig) -> Values:
    form = RowFormat[str(random.choice(config.formats)).upper()]
    outputs = 1 if form == RowFormat.Q8 else 2
    nj, nh, nr = (int(n) for n in random.integers(1, 5, 3))
    row_j, row_h, row_r = (int(n) for n in random.integers(-9, 10, 3))
    block_j, block_h = (int(n) for n in random.integers(-3, 4, 2))
    acc_h = int(random.choice([-1, 1])) * 2 * ((nr * outputs + 1) // 2 + int(random.integers(0, 3)))
    return {"format": form, "init": int(random.integers(0, 2)), "nj": nj, "nh": nh, "nr": nr,
            "row": _base(random, config.rows, (nj, row_j), (nh, row_h), (nr, row_r)),
            "row_j": row_j, "row_h": row_h, "row_r": row_r,
            "block": _base(random, config.operands, (nj, block_j), (nh, block_h)), "block_j": block_j,
            "block_h": block_h,
            # Even, for the two rows of a format share a pair of accumulators.
            "acc": _base(random, config.accumulators - 1, (nh, acc_h), (nr, outputs)) & ~1, "acc_h": acc_h}


def _matrix(random: np.random.Generator, config: HardwareConfig, opcode: Opcode) -> Values:
    if opcode == Opcode.MULTIPLY:
        return _multiply(random, config)
    nj = int(random.integers(1, 5))
    row_j, row_r, block_j = (int(n) for n in random.integers(-9, 10, 3))
    inner = (BLOCK // config.tiles, row_r) if opcode == Opcode.STORE_COLUMN else (1, 0)
    values = {"nj": nj, "row": _base(random, config.rows, (nj, row_j), inner), "row_j": row_j}
    if opcode == Opcode.FETCH:
        return values | {"acc": _base(random, config.row_buffer, (nj, 1)), "all": int(random.integers(0, 2)),
                         "tile_reg": int(random.integers(0, REGISTERS))}
    values |= {"block": _base(random, config.operands, (nj, block_j)), "block_j": block_j}
    if opcode == Opcode.STORE_ROW:
        return values | {"tile_reg": int(random.integers(0, REGISTERS))}
    return values | {"row_r": row_r, "column_reg": int(random.integers(0, REGISTERS))}


def _pick(random: np.random.Generator, choices: Any) -> int:
    return int(random.choice([int(c) for c in choices]))


def _vector(random: np.random.Generator, config: HardwareConfig) -> Values:
    words = config.lanes_per_block
    quantize = int(random.integers(0, 2))
    outer = int(random.integers(1, 4))
    inner = words * int(random.integers(1, 4)) if quantize else int(random.integers(1, 12))
    v: Values = {
        "outer": outer, "inner": inner, "a": _pick(random, A), "b": _pick(random, B), "c": _pick(random, C),
        "c_negate": int(random.integers(0, 2)), "d": _pick(random, D),
        "function": int(random.integers(0, FUNCTIONS)) if random.random() < 0.5 else 0,
        "row_format": _pick(random, [RowFormat[f.upper()] for f in config.formats]),
        "half_reg": int(random.integers(0, REGISTERS)),
    }
    for name in ("x", "y"):
        o, i = int(random.integers(-15, 16)), int(random.integers(0, 2))
        v |= {name: _base(random, config.scratch // 2, (outer, o), (inner, i)), f"{name}_o": o, f"{name}_i": i}
    from_row = v["a"] in (A.ROW_ELEMENT, A.ROW_WORD) or v["b"] == B.ROW_SCALE or v["c"] == C.ROW_MINIMUM
    if from_row and v["a"] == A.ACC:
        v["a"] = int(A.X)
    o, i = int(random.integers(-2, 3)), int(random.integers(0, 2))
    z = _base(random, config.row_buffer, (outer, o)) if from_row \
        else _base(random, config.accumulators, (outer, o), (inner, i))
    v |= {"z": z, "z_o": o, "z_i": i}
    for name in ("p", "q", "r"):
        o = int(random.integers(0, 2))
        v |= {name: _base(random, SCALARS, (outer, o)), f"{name}_o": o}
    if random.integers(0, 2):
        # Words written lie in the upper half, apart from those read, and each is written once.
        i = 1
        o = inner + int(random.integers(0, 3))
        half = config.scratch // 2
        v |= {"w": 1, "w_early": int(random.integers(0, 2)), "w_o": o, "w_i": i,
              "w_word": half + _base(random, config.scratch - half, (outer, o), (inner, i)),
              "w_single": int(random.integers(0, 2)), "w_tile_reg": int(random.integers(0, REGISTERS))}
    if quantize:
        o = inner // words + int(random.integers(0, 2))
        v |= {"quantize": 1, "quantize_early": int(random.integers(0, 2)), "narrow": int(random.integers(0, 2)),
              "given": int(random.integers(0, 2)), "scale": SCALARS - POWERS + int(random.integers(0, POWERS - 3)),
              "scale_o": int(random.integers(0, 2)), "block_o": o,
              "block": _base(random, config.operands, (outer, o), (inner // words, 1))}
    if random.integers(0, 2):
        reduce = _pick(random, list(Reduce)[1:])
        width = 2 if reduce == Reduce.ARGMAX else 1
        o = int(random.integers(0, 2))
        dest = _base(random, SCALARS - POWERS, (outer, width * o), (width, 1))
        v |= {"reduce": reduce, "reduce_early": int(random.integers(0, 2)), "absolute": int(random.integers(0, 2)),
              "reduce_init": 1, "reduce_emit": 1, "r_dest": dest & ~1 if width == 2 else dest, "r_dest_o": o}
        if {int(A.S)} & {v["a"], v["b"], v["c"], v["d"]} and outer > 1:
            v |= {"p_o": 0, "q_o": 0, "r_o": 0, "p": SCALARS - 1, "q": SCALARS - 1, "r": SCALARS - 1}
    v |= {"mask": int(random.integers(0, 2)), "index": int(random.integers(0, 20)), "index_reg": 0,
          "length_reg": int(random.integers(0, REGISTERS))}
    return v


def random_instruction(random: np.random.Generator, config: HardwareConfig, opcode: Opcode) -> Instruction:
    """A matrix or vector instruction without tokens and fences that reads nothing it writes at an earlier element."""
    return Instruction(opcode, _vector(random, config) if opcode == Opcode.VECTOR else _matrix(random, config, opcode))


def random_program(random: np.random.Generator, config: HardwareConfig, length: int) -> list[Instruction]:
    """A program of `length` engine instructions from address 0, ended by HALT.

    Registers 9 to 15 get small numbers, so that lengths, tiles, halves and columns vary.
    """
    program = [Instruction(Opcode.ALU, {"fn": Alu.ADD, "rd": rd, "imm": int(random.integers(0, 12 * config.tiles))})
               for rd in range(9, 16)]
    last: Opcode | None = None
    for _ in range(length):
        opcode = Opcode(int(random.choice([Opcode.MULTIPLY, Opcode.FETCH, Opcode.STORE_ROW, Opcode.STORE_COLUMN,
                                           Opcode.VECTOR, Opcode.VECTOR, Opcode.VECTOR])))
        is_vector = opcode == Opcode.VECTOR
        values = dict(random_instruction(random, config, opcode).values)
        values["fence"] = 1
        if is_vector:
            values["reduce_fence"] = 1
        if last is not None and (last == Opcode.VECTOR) != is_vector:
            before = program[-1]
            program[-1] = Instruction(before.opcode, {**before.values, "signal": 1})
            values["wait"] = 1
        program.append(Instruction(opcode, values))
        last = opcode
    # Sums with registers that are zero.
    for n, instruction in enumerate(program):
        if instruction.opcode == Opcode.VECTOR and random.integers(0, 2):
            program[n] = Instruction(instruction.opcode, {
                **instruction.values, "x_reg": int(random.choice(list(SAFE_REGISTERS)))})
    return [*program, Instruction(Opcode.HALT)]
