"""Run the whole preset `tiny` with Verilator's counters on, through all that there is to make it do."""

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hw.config import HardwareConfig
from sim.rtl import TOP, sources
from tests.conformance.trial import Trial, random_case
from tests.coverage.commands import exercise
from tests.coverage.constants import constant_bits
from tests.coverage.functional import count
from tests.coverage.points import Point, empty_statements, read
from tests.devicebench import DeviceBench
from tests.hosttraffic import HARNESS, Traffic

__all__ = ["Measured", "measure"]

FLAGS = ("--coverage-line", "--coverage-toggle", "--coverage-user", "--coverage-max-width", "512", "-O0")
"""The widest bus has 320 bits. Optimised Verilog would have fewer lines."""


@dataclass(frozen=True)
class Measured:
    """What the counters say.

    Parameters
    ----------
    points : dict
        How often each point was reached.
    empty, constant : set
        Points of no statement, and toggles of bits that Yosys proves constant.
    pairs : Counter
        Functional coverage.
    verilog : dict
        The files that the points lie in.
    cycles : int
        Clock cycles of the simulation.
    """

    points: dict[Point, int]
    empty: set[Point]
    constant: set[Point]
    pairs: Counter[tuple[str, str]]
    verilog: dict[str, str]
    cycles: int


def measure(config: HardwareConfig, programs: int, transfers: int, step: Callable[[str], None]) -> Measured:
    """Programs, commands, transfers; `step` is called with a name after each program and at each other part.

    Raises `AssertionError` where the device does not do what the models say.
    """
    step("constants")
    verilog = sources(config)
    bits = constant_bits(verilog, TOP)
    step("building")
    bench = DeviceBench(config, harness=HARNESS, extra_flags=FLAGS, quick=True)
    trial = Trial(config, bench, same_tables=10)
    cases = [random_case(seed, config) for seed in range(programs)]
    for case in cases:
        step("programs")
        what = trial.difference(case)
        assert what is None, f"seed {case.seed}: {what}"
    step("commands")
    exercise(bench)
    step("transfers")
    Traffic(bench.device, bench.simulation, seed=1).run(transfers)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "coverage.dat"
        bench.coverage(path)
        points = read(path)
    empty = empty_statements(points, verilog)
    constant = {p for p in points if p.kind == "toggle" and p.bit in bits} - empty
    return Measured(points, empty, constant, count(config, cases), verilog, bench.device.cycles)
