"""cocotb tests of the selection of a row's element: every format, half and index, every kind of fp16 scale."""

import os

import cocotb

from hw.isa import RowFormat
from hw.rowformat import ElementSelect
from sim import numerics
from tests.cocotb.dot import half, weights
from tests.cocotb.wires import Wires

COUNT = int(os.environ["COUNT"])
INPUTS = {"row": 256, "side": 64, "format": 2, "half": 1, "index": 5}
OUTPUTS = ["element", "scale", "minimum"]


def operation(random):
    return {"row": random.getrandbits(256), "side": sum(half(random) << 16 * n for n in range(4)),
            "format": random.choice(list(RowFormat)), "half": random.getrandbits(1), "index": random.randrange(32)}


def expected(samples):
    """Outputs by cycle, exactly."""
    for cycle, seen in enumerate(samples[:-ElementSelect.latency]):
        rows = weights(seen["row"], seen["format"])
        row = seen["half"] % len(rows)  # a format of one row has no second
        scale, minimum = (seen["side"] >> 16 * n & 0xFFFF for n in (2 * row, 2 * row + 1))
        yield cycle + ElementSelect.latency, {
            "element": int(numerics.float_bits(rows[row][seen["index"]])),
            "scale": int(numerics.float_bits(numerics.half_to_float(scale))),
            "minimum": int(numerics.float_bits(numerics.half_to_float(minimum)))}


@cocotb.test()
@cocotb.parametrize(seed=[1, 2], gaps=[0.0, 0.4])
async def equals_the_model(dut, seed, gaps):
    wires = await Wires.start(dut, seed, inputs=INPUTS, outputs=OUTPUTS)
    # In a pause one row is read on, as ROW_ELEMENT does it.
    pause = lambda: {"index": wires.random.randrange(32)}  # noqa: E731
    await wires.drive((operation(wires.random) for _ in range(COUNT)), gaps=gaps, pause=pause)
    await wires.cycle(2)
    assert wires.compare(expected(wires.samples)) >= COUNT
