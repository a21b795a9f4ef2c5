"""One program with one state on two devices: the core's Verilog and the functional model, and the first difference."""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from hw.config import HardwareConfig
from hw.isa import Instruction, encode
from hw.memorymap import SPACE_TABLE, Space
from hw.sequence import MachineError
from sim.compare import first_difference_of
from sim.functional import FunctionalDevice
from tests.conformance.plan import Plan, build, random_plan
from tests.hw.corebench import CoreBench
from tests.randomprogram import ARGUMENTS, random_program, random_state

__all__ = ["TRIAL", "Bench", "Case", "Trial", "config_of", "random_case"]

TRIAL = HardwareConfig("trial", tiles=4, rows=400, accumulators=256, scratch=640, operands=64, row_buffer=16,
                       microcode=256)
"""All logic of a device with memories that are quickly filled and compared."""

LIMIT = 200_000
"""Cycles after which a command hangs."""


def config_of(tiles: int, **changes: object) -> HardwareConfig:
    """`TRIAL` with another number of tiles."""
    return TRIAL.replace(name=f"trial{tiles}", tiles=tiles, **changes)


@dataclass(frozen=True)
class Case:
    """A program, arguments, and the seed that gives the state before it."""

    seed: int
    plan: Plan
    arguments: tuple[int, ...]
    odd: float

    @property
    def program(self) -> list[Instruction]:
        return build(self.plan)


def random_case(seed: int, config: HardwareConfig, sections: int = 10) -> Case:
    """The case of a seed. Every third has engines that take turns, the others engines that run at once."""
    random = np.random.default_rng([seed, config.tiles])
    plan = random_plan(random, config, sections)
    if seed % 3 == 0:
        serial = random_program(random, config, 30)[:-1]
        plan = replace(plan, sections=tuple((_without_tokens(i),) for i in serial))
    arguments = tuple(int(a) for a in random.integers(0, 1 << 32, ARGUMENTS))
    return Case(seed, plan, arguments, odd=(0.02, 0.0, 0.2)[seed // 3 % 3])


def _without_tokens(instruction: Instruction) -> Instruction:
    return Instruction(instruction.opcode, {k: v for k, v in instruction.values.items() if k not in ("wait", "signal")})


class Bench(Protocol):
    """Verilog in simulation, of the core (`tests.hw.corebench`) or of the whole device (`tests.devicebench`)."""

    def reset(self) -> None:
        """Stop the command; memories keep their content."""

    def read(self, space: Space) -> np.ndarray:
        """A whole space in host form."""

    def write(self, space: Space, data: np.ndarray) -> None:
        """Write a whole space in host form."""

    def run(self, entry: int = 0, arguments: tuple[int, ...] = (), limit: int = 1_000_000) -> tuple[int, bool]:
        """Run a command; (cycles, nonfinite). Raises RuntimeError or AssertionError if it does not end as it should."""


class Trial:
    """The two devices.

    Parameters
    ----------
    config : HardwareConfig
        The device; at most 32 tiles.
    bench : Bench or None
        Another simulation than that of the core: with a fault, from gates, of the whole device.
    same_tables : int
        So many seeds in a row share tables and functions, which take long to write through the ports of a device.
    """

    def __init__(self, config: HardwareConfig, bench: Bench | None = None, *, same_tables: int = 1) -> None:
        self.config = config
        self.same_tables = same_tables
        self.bench = CoreBench(config) if bench is None else bench
        self.model = FunctionalDevice(config)

    def difference(self, case: Case) -> str | None:
        """What differs after the case: state, cycles, or the flag; None if nothing. A hung bench is reset."""
        state = random_state(np.random.default_rng([case.seed, 1]), self.config, case.odd)
        if self.same_tables > 1:
            shared = random_state(np.random.default_rng([case.seed // self.same_tables, 2]), self.config)
            state |= {space: shared[space] for space in (Space.TABLES, Space.FUNCTIONS)}
        state[Space.MICROCODE] = np.zeros((self.config.microcode, 10), np.uint32)
        words = encode(case.program)
        state[Space.MICROCODE][:len(words)] = words
        for space, data in state.items():
            self.model.write(space, data)
            self.bench.write(space, data)
        wanted = self.model.run(0, case.arguments)
        try:
            cycles, nonfinite = self.bench.run(0, case.arguments, limit=LIMIT)
        except (RuntimeError, AssertionError) as error:
            self.bench.reset()
            return str(error)
        for space in SPACE_TABLE:
            difference = first_difference_of(space, self.model.view(space), self.bench.read(space))
            if difference is not None:
                return f"{difference} (model and Verilog)"
        if cycles != wanted.cycles:
            return f"the timing model says {wanted.cycles} cycles, the Verilog took {cycles}"
        if nonfinite != wanted.nonfinite:
            return f"the model's flag for words that are not finite is {wanted.nonfinite}, the Verilog's {nonfinite}"
        return None

    def legal(self, case: Case) -> bool:
        """Whether the model runs the case at all."""
        try:
            self.model.write(Space.MICROCODE, encode(case.program))
            self.model.run(0, case.arguments)
        except MachineError:
            return False
        return True
