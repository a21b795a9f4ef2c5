"""Collects the instructions of one entry point, window by window, with readable constructors for each kind."""

from dataclasses import dataclass, field

from compiler.errors import PlacementError
from compiler.footprint import Bounds, Footprint, footprint, is_matrix
from hw.config import HardwareConfig
from hw.isa import Alu, Instruction, Opcode, RowFormat

__all__ = ["ALU_COPY", "Emitter", "MachineOp", "Pool", "Window"]

ALU_COPY = Alu.ADD


@dataclass
class MachineOp:
    """One engine instruction, what it touches, and the model operator it belongs to."""

    instruction: Instruction
    label: str
    touches: Footprint = field(repr=False)

    @property
    def matrix(self) -> bool:
        return is_matrix(self.instruction)

    def __str__(self) -> str:
        return f"{'M' if self.matrix else '  V'} {self.label:32} {self.instruction}"


@dataclass
class Window:
    """Instructions that may be reordered among themselves; windows keep their order."""

    name: str
    ops: list[MachineOp] = field(default_factory=list)
    control: list[Instruction] = field(default_factory=list)     # sequencer words that run before


class Pool:
    """Lifetimes of a small memory inside one window: first fit from a cursor that goes round.

    Going round keeps dead ranges untouched as long as possible, which is what lets the engines overlap.
    """

    def __init__(self, name: str, first: int, capacity: int) -> None:
        self.name, self.first, self.capacity = name, first, capacity
        self.taken: list[tuple[int, int]] = []
        self.cursor = first
        self.most = 0

    def take(self, size: int, what: str, last: bool = False) -> int:
        """`size` consecutive entries; raises `PlacementError` when no gap is large enough.

        `last`: the highest that are free. Windows begin at the bottom, so what a window ends with is best out of the
        next one's way.
        """
        if last:
            top = self.capacity
            for low, high in sorted(self.taken, reverse=True):
                if top - high >= size:
                    break
                top = min(top, low)
            if top - size >= self.first:
                return self._taken(top - size, size)
        for start in (self.cursor, self.first):
            base = start
            for low, high in sorted(self.taken):
                if base + size <= low:
                    break
                base = max(base, high)
            if base + size <= self.capacity:
                self.cursor = base + size
                return self._taken(base, size)
        free = self.capacity - self.first - sum(h - l for l, h in self.taken)
        raise PlacementError(f"cannot place {what!r} ({size} {self.name}): {self.capacity - self.first} there are, "
                             f"{free} of them free; use a preset with more {self.name} or a shorter context")

    def _taken(self, base: int, size: int) -> int:
        self.taken.append((base, base + size))
        self.most = max(self.most, sum(h - l for l, h in self.taken))
        return base

    def free(self, base: int) -> None:
        """Give back what `take` returned."""
        self.taken = [t for t in self.taken if t[0] != base]

    def reset(self) -> None:
        """Forget everything: a new window begins."""
        self.taken, self.cursor = [], self.first


class Emitter:
    """The instruction stream of one entry point, in an order in which it could run one by one."""

    def __init__(self, config: HardwareConfig, bounds: Bounds) -> None:
        self.config, self.bounds = config, dict(bounds)
        self.windows: list[Window] = []
        self.label = ""

    def window(self, name: str) -> Window:
        """Begin a window."""
        self.windows.append(Window(name))
        return self.windows[-1]

    def alu(self, fn: Alu, rd: int, ra: int = 0, imm: int = 0, rb: int = 0) -> None:
        """A sequencer operation before the current window's instructions."""
        self.windows[-1].control.append(Instruction(Opcode.ALU, {"fn": fn, "rd": rd, "ra": ra, "imm": imm, "rb": rb}))

    def add(self, opcode: Opcode, **values: int) -> MachineOp:
        """One engine instruction; zero fields may be left out."""
        instruction = Instruction(opcode, {k: int(v) for k, v in values.items() if v})
        op = MachineOp(instruction, self.label, footprint(instruction, self.bounds, self.config))
        self.windows[-1].ops.append(op)
        return op

    def multiply(self, format: str, **values: int) -> MachineOp:
        """Array rows times operand blocks; `nh` and `block_j` are 1 if not given."""
        return self.add(Opcode.MULTIPLY, **{"nh": 1, "block_j": 1, **values, "format": RowFormat[format.upper()]})

    def vector(self, **values: int) -> MachineOp:
        """A pass of the lanes; `outer` is 1 if not given."""
        return self.add(Opcode.VECTOR, **{"outer": 1, **values})
