"""Runs the cocotb tests of every unit, under Verilator and under Icarus Verilog."""

import functools
import json
from collections.abc import Callable
from typing import Any

import pytest
from amaranth import DomainRenamer

from hw.axi import Slice
from hw.config import HardwareConfig
from hw.dot import DotUnit
from hw.engine import Front
from hw.fp32 import Adder, Multiplier
from hw.hostport import COMPLETION, Dispatcher, Queue
from hw.lane import Lane
from hw.matrix import Matrix
from hw.operands import Operands
from hw.quantizer import Quantizer
from hw.ram import VERILOG
from hw.reducer import Reducer
from hw.rowformat import ElementSelect
from hw.scalars import Scalars
from hw.sequencer import Sequencer
from hw.special import SpecialUnit
from hw.timing import latencies
from hw.vector import Vector
from tests.cocotb.layouts import front_layout
from tests.cocotb.runner import run
from tests.cocotb.simulators import SIMULATORS
from tests.cocotb.wrapped import WrappedArray, WrappedRam, WrappedTile

pytestmark = pytest.mark.rtl


MEMORIES = {"ram.v": VERILOG}


def config(bits: int = 9) -> HardwareConfig:
    """A device with room for a few blocks and a program."""
    return HardwareConfig("bench", tiles=4, rows=300, operands=12, microcode=64, activation_bits=bits)


SHAPES = [config(), config().replace(tiles=16, rows=4096, formats=("q8",), queue=2),
          config().replace(tiles=2, accumulators=512, scratch=100, operands=64, row_buffer=3, queue=3)]
"""Devices of several sizes, with one row format and with all, with queues of several depths."""


TILE = config().replace(tiles=16, rows=21, scratch=30, row_buffer=5)


def front(sizes: dict[str, int]) -> Front:
    return Front(front_layout(bool(sizes["chain_gap"])), **sizes)


_GAPS = latencies(config())
MATRIX_FRONT = {"depth": 2, "fence_gap": _GAPS.matrix_done, "done_gap": _GAPS.matrix_done, "chain_gap": 0,
                "scalar_gap": 0}
VECTOR_FRONT = {"depth": 4, "fence_gap": _GAPS.vector_write, "done_gap": _GAPS.vector_done,
                "chain_gap": _GAPS.vector_write, "scalar_gap": _GAPS.scalar_write}
SHORT_FRONT = {"depth": 3, "fence_gap": 4, "done_gap": 5, "chain_gap": 9, "scalar_gap": 8}
"""No power of two where there was one, and the other way round."""

UNITS: dict[str, tuple[Callable[[], Any], str, dict[str, object]]] = {
    "adder":               (Adder, "floats", {"UNIT": "Adder", "COUNT": 400}),
    "multiplier":          (Multiplier, "floats", {"UNIT": "Multiplier", "COUNT": 400}),
    "special":             (SpecialUnit, "special", {"COUNT": 800}),
    "quantizer, 4 tiles":  (lambda: Quantizer(tiles=4, bits=9), "quantizer", {"TILES": 4, "BITS": 9, "COUNT": 60}),
    "quantizer, 16 tiles": (lambda: Quantizer(tiles=16, bits=8), "quantizer", {"TILES": 16, "BITS": 8, "COUNT": 80}),
    "reducer, 4 tiles":    (lambda: Reducer(tiles=4), "reducer", {"TILES": 4, "COUNT": 400}),
    "reducer, 16 tiles":   (lambda: Reducer(tiles=16), "reducer", {"TILES": 16, "COUNT": 250}),
    "dot, packed":         (lambda: DotUnit(packed=True), "dot", {"COUNT": 60}),
    "dot, split":          (lambda: DotUnit(packed=False), "dot", {"COUNT": 60}),
    "matrix front":        (lambda: front(MATRIX_FRONT), "front", {"SIZES": MATRIX_FRONT, "COUNT": 80}),
    "vector front":        (lambda: front(VECTOR_FRONT), "front", {"SIZES": VECTOR_FRONT, "COUNT": 80}),
    "short front":         (lambda: front(SHORT_FRONT), "front", {"SIZES": SHORT_FRONT, "COUNT": 80}),
    **{f"{unit.__name__.lower()} engine, {shape.tiles} tiles": (
        functools.partial(unit, shape), "engine",
        {"UNIT": unit.__name__, "CONFIG": shape.to_json(), "COUNT": 60})
        for unit in (Matrix, Vector) for shape in SHAPES},
    "operands, 9 bits":    (lambda: Operands(config(9)), "operands", {"BITS": 9, "BLOCKS": 12, "COUNT": 300}),
    "operands, 8 bits":    (lambda: Operands(config(8)), "operands", {"BITS": 8, "BLOCKS": 12, "COUNT": 300}),
    # The lanes' clock stands still in a sleeping device; here it runs.
    "scalars":             (lambda: DomainRenamer({"lane": "sync"})(Scalars()), "scalars", {"COUNT": 400}),
    "sequencer":           (lambda: Sequencer(config()), "sequencer", {"CONFIG": config().to_json()}),
    "lane":                (lambda: Lane(config()), "lane", {"CONFIG": config().to_json(), "COUNT": 400}),
    **{f"tile, {shape.tiles} of them": (
        functools.partial(WrappedTile, shape, packed=packed), "tile", {"CONFIG": shape.to_json(), "COUNT": 300})
        for shape, packed in ((TILE, True), (TILE.replace(tiles=2, formats=("q8",), activation_bits=8), False))},
    "row element":         (ElementSelect, "rowformat", {"COUNT": 600}),
    "register slice":      (lambda: Slice(40), "stream", {"DEPTH": 2, "LATENCY": 1, "BITS": 40, "COUNTS": False,
                                                          "COUNT": 200}),
    **{f"queue of {depth}": (functools.partial(Queue, COMPLETION, depth=depth), "stream", {
        "DEPTH": depth, "LATENCY": 2, "BITS": COMPLETION.size, "COUNTS": True, "COUNT": 200}) for depth in (4, 7)},
    "dispatcher":          (Dispatcher, "dispatcher", {"COUNT": 60}),
    "array":               (lambda: WrappedArray(width=320, depth=19), "memory", {
        "WIDTH": 320, "DEPTH": 19, "STROBES": 40, "READS": 1, "THROUGH": False, "SHARED": True, "COUNT": 600}),
    **{f"memory, {name}": (functools.partial(WrappedRam, width=40, depth=13, strobes=strobes, reads=reads,
                                             through=through), "memory", {
        "WIDTH": 40, "DEPTH": 13, "STROBES": strobes, "READS": reads, "THROUGH": through, "SHARED": False,
        "COUNT": 600}) for name, strobes, reads, through in (
            ("parts", 5, 1, False), ("two readers", 1, 2, False), ("two readers, through", 1, 2, True))},
}
"""Units: what makes one, the module of its tests, and their environment."""


QUICK = {"front"}
"""Modules that ``make test`` runs too; ``make sim`` runs all."""


@pytest.mark.parametrize("simulator", SIMULATORS)
@pytest.mark.parametrize("name", [
    pytest.param(name, marks=() if module in QUICK else pytest.mark.long)
    for name, (_, module, _) in UNITS.items()])
def test_unit(name: str, simulator: str) -> None:
    make, module, facts = UNITS[name]
    environment = {key: value if isinstance(value, str) else json.dumps(value) for key, value in facts.items()}
    assert run(make(), f"tests.cocotb.{module}", verilog=MEMORIES, simulator=simulator, **environment) >= 2
