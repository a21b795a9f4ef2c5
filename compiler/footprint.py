"""What an instruction reads and writes, as intervals of each memory, for every value its registers may have."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hw.config import BLOCK, HardwareConfig
from hw.isa import FORMATS, MATRIX, A, B, C, D, Instruction, Opcode, Reduce, RowFormat

__all__ = ["Bounds", "Footprint", "Span", "footprint", "is_matrix", "steps"]

Bounds = Mapping[int, tuple[int, int]]
"""Least and greatest value of integer registers; register 0 is zero."""

Span = tuple[str, int, int]
"""(memory, first, end): half-open."""


@dataclass
class Footprint:
    """Spans read and written by one instruction."""

    reads: list[Span] = field(default_factory=list)
    writes: list[Span] = field(default_factory=list)


def is_matrix(instruction: Instruction) -> bool:
    """Whether the matrix engine runs it (else the vector engine)."""
    return FORMATS[instruction.opcode] is MATRIX


def _range(instruction: Instruction, name: str, bounds: Bounds) -> tuple[int, int]:
    base, register = instruction[name], instruction.values.get(f"{name}_reg", 0)
    low, high = bounds.get(register, (0, 0))
    return base + low, base + high


def steps(instruction: Instruction, bounds: Bounds, config: HardwareConfig, accumulate: int) -> tuple[int, int]:
    """Least and greatest number of steps that the engine issues for it."""
    out = []
    for end in (0, 1):
        if instruction.opcode == Opcode.VECTOR:
            n = instruction["outer"] * max(1, _range(instruction, "inner", bounds)[end])
        else:
            n = max(1, _range(instruction, "nj", bounds)[end])
            if instruction.opcode == Opcode.MULTIPLY:
                n *= max(accumulate, instruction["nh"] * max(1, _range(instruction, "nr", bounds)[end]))
            elif instruction.opcode == Opcode.STORE_COLUMN:
                n *= config.lanes_per_block
        out.append(max(1, n))
    return out[0], out[1]


class _Walk:
    """Collects the spans of address patterns of one instruction."""

    def __init__(self, instruction: Instruction, bounds: Bounds) -> None:
        self.instruction, self.bounds = instruction, bounds

    def spans(self, memory: str, name: str, outer: int, step: int, width: int) -> list[Span]:
        """`width` addresses from `name`, again after `step`, `outer` times."""
        low, high = _range(self.instruction, name, self.bounds)
        width += high - low
        if step == width or outer == 1:
            return [(memory, low, low + (outer - 1) * step + width)]
        if step == 0:
            return [(memory, low, low + width)]
        return [(memory, low + o * step, low + o * step + width) for o in range(outer)]


def footprint(i: Instruction, bounds: Bounds, config: HardwareConfig) -> Footprint:
    """The spans of instruction `i`."""
    return _vector(i, bounds, config) if i.opcode == Opcode.VECTOR else _matrix(i, bounds, config)


def _rows(i: Instruction, bounds: Bounds, *loops: tuple[int, int]) -> Span:
    """The rows between the first and the last that (count, step) loops reach."""
    low, high = _range(i, "row", bounds)
    for count, step in loops:
        low, high = low + min(0, (count - 1) * step), high + max(0, (count - 1) * step)
    return ("array", low, high + 1)


def _matrix(i: Instruction, bounds: Bounds, config: HardwareConfig) -> Footprint:
    walk, out = _Walk(i, bounds), Footprint()
    nj = max(1, _range(i, "nj", bounds)[1])
    if i.opcode == Opcode.FETCH:
        out.reads.append(_rows(i, bounds, (nj, i["row_j"])))
        out.writes += walk.spans("row_buffer", "acc", 1, 0, nj)
        return out
    if i.opcode == Opcode.MULTIPLY:
        nr, nh = max(1, _range(i, "nr", bounds)[1]), max(1, i["nh"])
        out.reads.append(_rows(i, bounds, (nj, i["row_j"]), (nh, i["row_h"]), (nr, i["row_r"])))
        width = nr * (1 if i["format"] == RowFormat.Q8 else 2)
        accumulators = walk.spans("accumulators", "acc", nh, i["acc_h"], width)
        out.writes += accumulators
        if not i["init"]:
            out.reads += accumulators
        for h in range(nh if i["block_h"] else 1):
            base = _range(i, "block", bounds)[0] + h * i["block_h"]
            out.reads += [("operands", base + j * i["block_j"], base + j * i["block_j"] + 1) for j in range(nj)] \
                if i["block_j"] != 1 else [("operands", base, base + nj)]
        return out
    out.reads += walk.spans("operands", "block", nj, i["block_j"], 1)
    inside = (config.lanes_per_block, i["row_r"]) if i.opcode == Opcode.STORE_COLUMN else (1, 0)
    out.writes.append(_rows(i, bounds, (nj, i["row_j"]), inside))
    return out


def _vector(i: Instruction, bounds: Bounds, config: HardwareConfig) -> Footprint:
    walk, out = _Walk(i, bounds), Footprint()
    outer, inner = max(1, i["outer"]), max(1, _range(i, "inner", bounds)[1])

    def uses(port: str) -> bool:
        code = 1 if port == "x" else 2
        return code in (i["a"], i["b"], i["c"], i["d"])

    def scalar(name: str, step: str, width: int = 1) -> list[Span]:
        return [("scalars", i[name], i[name] + (outer - 1) * i[step] + width)]

    for port in "xy":
        if uses(port):
            out.reads += walk.spans("scratch", port, outer, i[f"{port}_o"], inner if i[f"{port}_i"] else 1)
    if i["a"] == A.ACC:
        out.reads += walk.spans("accumulators", "z", outer, i["z_o"], inner if i["z_i"] else 1)
    if i["a"] in (A.ROW_ELEMENT, A.ROW_WORD) or i["b"] == B.ROW_SCALE or i["c"] == C.ROW_MINIMUM:
        out.reads += walk.spans("row_buffer", "z", outer, i["z_o"], 1)
    if i["a"] == A.S or i["b"] == B.S:
        out.reads += scalar("p", "p_o")
    if i["c"] == C.S:
        out.reads += scalar("q", "q_o")
    if i["d"] == D.S:
        out.reads += scalar("r", "r_o")
    if i["w"]:
        out.writes += walk.spans("scratch", "w_word", outer, i["w_o"], inner if i["w_i"] else 1)
    if i["quantize"]:
        if i["given"]:
            out.reads += scalar("scale", "scale_o")
        out.writes += walk.spans("operands", "block", outer, i["block_o"], -(-inner * config.tiles // BLOCK))
    if i["reduce"] and i["reduce_emit"]:
        step = 2 if i["reduce"] == Reduce.ARGMAX else 1
        out.writes.append(("scalars", i["r_dest"], i["r_dest"] + (outer - 1) * i["r_dest_o"] * step + step))
    if i["reduce"]:
        # The running partials are state too: reductions keep their order.
        partial = ("partials", 0, 1)
        out.writes.append(partial)
        if not i["reduce_init"]:
            out.reads.append(partial)
    return out
