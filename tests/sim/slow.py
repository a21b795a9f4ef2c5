"""A second functional model, element by element as docs/machine.md reads, slow and without cleverness.

It shares the scalar arithmetic of `sim.numerics` with the fast one, and nothing else.
"""

from typing import Any

import numpy as np

from hw.config import BLOCK, REGISTERS, HardwareConfig
from hw.isa import A, Alu, B, C, D, Instruction, Opcode, Reduce, RowFormat
from hw.memorymap import Space
from sim import numerics

__all__ = ["Slow"]

E2M1 = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]
NAN = np.float32(np.nan)


class Slow:
    """State by space in host form, and `run`."""

    def __init__(self, config: HardwareConfig, state: dict[Space, np.ndarray]) -> None:
        self.config = config
        self.state = {space: np.array(words) for space, words in state.items()}
        self.nonfinite = False
        self.registers = [0] * REGISTERS

    def run(self, program: list[Instruction], arguments: list[int]) -> None:
        self.registers = [0, *arguments, *[0] * (REGISTERS - 1 - len(arguments))]
        loops: list[list[int]] = []
        at = 0
        while (instruction := program[at]).opcode != Opcode.HALT:
            at += 1
            match instruction.opcode:
                case Opcode.ALU:
                    self.alu(instruction)
                case Opcode.LOOP:
                    count = self.sum(instruction, "count")
                    loops.append([at, max(count, 1)])
                case Opcode.END:
                    loops[-1][1] -= 1
                    if loops[-1][1]:
                        at = loops[-1][0]
                    else:
                        loops.pop()
                case Opcode.MULTIPLY:
                    self.multiply(instruction)
                case Opcode.FETCH:
                    self.fetch(instruction)
                case Opcode.STORE_ROW:
                    self.store_row(instruction)
                case Opcode.STORE_COLUMN:
                    self.store_column(instruction)
                case Opcode.VECTOR:
                    self.vector(instruction)

    def sum(self, i: Instruction, name: str) -> int:
        return (i[name] + self.registers[i[f"{name}_reg"]]) & 0xFFFF_FFFF

    def alu(self, i: Instruction) -> None:
        a, b = self.registers[i["ra"]], (self.registers[i["rb"]] + i["imm"]) & 0xFFFF_FFFF
        value = {Alu.ADD: a + b, Alu.SUB: a - b, Alu.MUL: a * b, Alu.SHL: a << (b & 31), Alu.SHR: a >> (b & 31),
                 Alu.AND: a & b, Alu.MIN: min(a, b), Alu.MAX: max(a, b)}[Alu(i["fn"])]
        if i["rd"]:
            self.registers[i["rd"]] = value & 0xFFFF_FFFF

    # Words of a space as floats, and operand blocks.

    def float(self, space: Space, *index: int) -> Any:
        return self.state[space].view(np.float32)[index]

    def put(self, space: Space, value: Any, *index: int) -> None:
        self.state[space].view(np.float32)[index] = value

    def block(self, n: int) -> tuple[np.ndarray, int, int]:
        words = self.state[Space.OPERANDS][n]
        tail = int(words[16])
        e, total = tail >> 16 & 0xFF, tail & 0xFFFF
        return (words[:16].copy().view(np.int16), e - 256 if e > 127 else e,
                total - 65536 if total > 32767 else total)

    @staticmethod
    def element(row: np.ndarray, form: int, half: int, n: int) -> int:
        """Integer element n of a row, uint32 (10,)."""
        data = row[:8].tobytes()
        if form == RowFormat.Q8:
            return int(np.frombuffer(data, np.int8)[n])
        byte = data[16 * half + n // 2]
        nibble = byte >> 4 if n % 2 else byte & 15
        return nibble if form == RowFormat.Q4 else E2M1[nibble]

    @staticmethod
    def side(row: np.ndarray, form: int, half: int) -> tuple[int, int]:
        """fp16 bits (d, m) of a row."""
        word = int(row[8 if form == RowFormat.Q8 else 8 + half])
        return word & 0xFFFF, word >> 16

    # Matrix instructions.

    def multiply(self, i: Instruction) -> None:
        form = i["format"]
        outputs = 1 if form == RowFormat.Q8 else 2
        nj, nr = max(self.sum(i, "nj"), 1), max(self.sum(i, "nr"), 1)
        for j in range(nj):
            for h in range(max(i["nh"], 1)):
                q, e, total = self.block(self.sum(i, "block") + j * i["block_j"] + h * i["block_h"])
                for r in range(nr):
                    at = self.sum(i, "row") + j * i["row_j"] + h * i["row_h"] + r * i["row_r"]
                    for half in range(outputs):
                        acc = self.sum(i, "acc") + h * i["acc_h"] + r * outputs + half
                        for t in range(self.config.tiles):
                            row = self.state[Space.ARRAY][at, :, t]
                            s = sum(self.element(row, form, half, n) * int(q[n]) for n in range(BLOCK))
                            d, m = self.side(row, form, half)
                            term = numerics.dot_term(s, total, d, m, e)
                            if not (j == 0 and i["init"]):
                                term = numerics.add(self.float(Space.ACCUMULATORS, acc, t), term)
                            self.put(Space.ACCUMULATORS, term, acc, t)

    def fetch(self, i: Instruction) -> None:
        tile = self.registers[i["tile_reg"]] % self.config.tiles
        for j in range(max(self.sum(i, "nj"), 1)):
            row = self.state[Space.ARRAY][self.sum(i, "row") + j * i["row_j"]]
            self.state[Space.ROW_BUFFER][self.sum(i, "acc") + j] = row[:, [tile]] if i["all"] else row

    def store_row(self, i: Instruction) -> None:
        tile = self.registers[i["tile_reg"]] % self.config.tiles
        for j in range(max(self.sum(i, "nj"), 1)):
            q, e, _ = self.block(self.sum(i, "block") + j * i["block_j"])
            scale = np.float16(2.0 ** min(max(e, -24), 15)).view(np.uint16)
            row = np.zeros(10, np.uint32)
            row[:8] = (q & 0xFF).astype(np.uint8).view(np.uint32)
            row[8] = scale
            self.state[Space.ARRAY][self.sum(i, "row") + j * i["row_j"], :, tile] = row

    def store_column(self, i: Instruction) -> None:
        column = self.registers[i["column_reg"]] % 32
        tiles = self.config.tiles
        for j in range(max(self.sum(i, "nj"), 1)):
            q, _, _ = self.block(self.sum(i, "block") + j * i["block_j"])
            for k in range(BLOCK // tiles):
                at = self.sum(i, "row") + j * i["row_j"] + k * i["row_r"]
                for t in range(tiles):
                    row = bytearray(self.state[Space.ARRAY][at, :8, t].tobytes())
                    row[column] = int(q[k * tiles + t]) & 0xFF
                    words = [*np.frombuffer(bytes(row), np.uint32), np.uint32(np.float16(1).view(np.uint16)), 0]
                    self.state[Space.ARRAY][at, :, t] = words

    # Vector instruction.

    def vector(self, i: Instruction) -> None:
        tiles = self.config.tiles
        inner = max(self.sum(i, "inner"), 1)
        partial, summed, best = [np.float32(-0.0)] * 4, 0, (-np.inf, 0)
        for o in range(max(i["outer"], 1)):
            if i["reduce_init"]:
                partial, summed, best = [np.float32(-0.0)] * 4, 0, (np.float32(-np.inf), 0)
            row_words = []
            for n in range(inner):
                early = [self.lane(i, o, n, t) for t in range(tiles)]
                late = [numerics.multiply(e, self.last(i, o, n, t, e, a)) for t, (e, a) in enumerate(early)]
                early = [e for e, _ in early]
                index = [(self.sum(i, "index") + n) * tiles + t for t in range(tiles)]
                masked = [bool(i["mask"]) and k >= self.registers[i["length_reg"]] for k in index]
                out = [[np.float32(0) if gone else value for gone, value in zip(masked, values, strict=True)]
                       for values in (late, early)]
                if i["w"]:
                    word = self.sum(i, "w_word") + o * i["w_o"] + n * i["w_i"]
                    for t in range(tiles):
                        if not i["w_single"] or t == self.registers[i["w_tile_reg"]] % tiles:
                            self.put(Space.SCRATCH, out[i["w_early"]][t], word, t)
                row_words += out[i["quantize_early"]]
                values = [abs(v) if i["absolute"] else v for v in out[i["reduce_early"]]]
                if i["reduce"] == Reduce.SUM:
                    lanes = [np.float32(-0.0) if gone else v for gone, v in zip(masked, values, strict=True)]
                    while len(lanes) > 1:
                        lanes = [numerics.add(a, b) for a, b in zip(lanes[::2], lanes[1::2], strict=True)]
                    partial[summed % 4] = numerics.add(partial[summed % 4], lanes[0])
                    summed += 1
                for k, gone, v in zip(index, masked, values, strict=True):
                    if not gone and v == v and (v > best[0] or (v == best[0] and np.signbit(best[0]) > np.signbit(v))):
                        best = (v, k)
            if i["quantize"]:
                self.quantize(i, o, np.array(row_words, np.float32))
            if i["reduce"] and i["reduce_emit"]:
                dest = i["r_dest"] + o * i["r_dest_o"] * (2 if i["reduce"] == Reduce.ARGMAX else 1)
                if i["reduce"] == Reduce.SUM:
                    pairs = numerics.add(partial[0], partial[1]), numerics.add(partial[2], partial[3])
                    self.put(Space.SCALARS, numerics.add(*pairs), dest)
                elif i["reduce"] == Reduce.TAKE:
                    self.put(Space.SCALARS, numerics.canonical(values[0]), dest)
                else:
                    self.put(Space.SCALARS, best[0], dest)
                if i["reduce"] == Reduce.ARGMAX:
                    self.state[Space.SCALARS][dest + 1] = best[1]

    def x(self, i: Instruction, name: str, o: int, n: int, t: int) -> Any:
        return self.float(Space.SCRATCH, self.sum(i, name) + o * i[f"{name}_o"] + n * i[f"{name}_i"], t)

    def row(self, i: Instruction, o: int, t: int) -> np.ndarray:
        return self.state[Space.ROW_BUFFER][self.sum(i, "z") + o * i["z_o"], :, t]

    def lane(self, i: Instruction, o: int, n: int, t: int) -> tuple[Any, Any]:
        """(E, first factor)."""
        half = self.registers[i["half_reg"]] & 1
        form = i["row_format"]
        match i["a"]:
            case A.ACC:
                a = self.float(Space.ACCUMULATORS, self.sum(i, "z") + o * i["z_o"] + n * i["z_i"], t)
            case A.X:
                a = self.x(i, "x", o, n, t)
            case A.Y:
                a = self.x(i, "y", o, n, t)
            case A.S:
                a = self.float(Space.SCALARS, i["p"] + o * i["p_o"])
            case A.ROW_ELEMENT:
                a = np.float32(self.element(self.row(i, o, t), form, half, (n * self.config.tiles + t) % BLOCK))
            case A.ROW_WORD:
                a = self.row(i, o, t)[n % 8:].view(np.float32)[0] if self.config.tiles == 1 \
                    else np.uint32(self.row(i, o, t)[n % 8]).view(np.float32)
        match i["b"]:
            case B.ONE:
                b = np.float32(1)
            case B.X:
                b = self.x(i, "x", o, n, t)
            case B.Y:
                b = self.x(i, "y", o, n, t)
            case B.S:
                b = self.float(Space.SCALARS, i["p"] + o * i["p_o"])
            case B.A:
                b = a
            case B.ROW_SCALE:
                b = numerics.half_to_float(self.side(self.row(i, o, t), form, half)[0])
        match i["c"]:
            case C.ZERO:
                c = np.float32(-0.0)
            case C.X:
                c = self.x(i, "x", o, n, t)
            case C.Y:
                c = self.x(i, "y", o, n, t)
            case C.S:
                c = self.float(Space.SCALARS, i["q"] + o * i["q_o"])
            case C.ROW_MINIMUM:
                c = numerics.half_to_float(self.side(self.row(i, o, t), form, half)[1])
        if i["c_negate"]:
            c = -c
        return self.function(i["function"], numerics.add(numerics.multiply(a, b), c)), a

    def last(self, i: Instruction, o: int, n: int, t: int, e: Any, a: Any) -> Any:
        match i["d"]:
            case D.ONE:
                return np.float32(1)
            case D.X:
                return self.x(i, "x", o, n, t)
            case D.Y:
                return self.x(i, "y", o, n, t)
            case D.S:
                return self.float(Space.SCALARS, i["r"] + o * i["r_o"])
            case D.A:
                return a
        return e

    def function(self, index: int, value: Any) -> Any:
        if index == 0:
            return value
        word, lo, hi, _ = (int(w) for w in self.state[Space.FUNCTIONS][index])
        domain = word >> 17 & 15
        c0, c1, c2 = self.state[Space.TABLES].view(np.int32).astype(np.int64).T
        return numerics.evaluate(value, word & 7, word >> 3 & 1023, word >> 13 & 15,
                                 domain - 16 if domain > 7 else domain, np.uint32(lo).view(np.float32),
                                 np.uint32(hi).view(np.float32), np.ascontiguousarray(c0), np.ascontiguousarray(c1),
                                 np.ascontiguousarray(c2))

    def quantize(self, i: Instruction, o: int, values: np.ndarray) -> None:
        bits = 8 if i["narrow"] else self.config.activation_bits
        bounds = numerics.KV_RANGE if i["narrow"] else numerics.OPERAND_RANGE
        for k in range(len(values) // BLOCK):
            x = values[k * BLOCK:(k + 1) * BLOCK]
            if i["given"]:
                e = numerics.power_exponent(self.float(Space.SCALARS, i["scale"] + o * i["scale_o"]))
                q, e, total, odd = numerics.quantize_given(x, e, bits)
            else:
                q, e, total, odd = numerics.quantize_block(x, bits, *bounds)
            self.nonfinite |= bool(odd)
            at = self.sum(i, "block") + o * i["block_o"] + k
            self.state[Space.OPERANDS][at, :16] = q.astype(np.int16).view(np.uint32)
            self.state[Space.OPERANDS][at, 16] = (int(total) & 0xFFFF) | (int(e) & 0xFF) << 16
