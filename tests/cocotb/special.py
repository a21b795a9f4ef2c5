"""cocotb tests of the special-function unit: any descriptors, any coefficients, host access in between."""

import os

import cocotb
import numpy as np

from hw.isa import FUNCTION_FIELDS, TABLE_ENTRIES, FunctionKind
from hw.special import SpecialUnit
from sim import numerics
from tests.cocotb.wires import Wires, signed

COUNT = int(os.environ["COUNT"])
COEFFICIENT_BITS = (32, 28, 20)
FIELDS = [name for name, _, _ in FUNCTION_FIELDS]
INPUTS = {"x": 32, **{name: bits for name, bits, _ in FUNCTION_FIELDS}, "table_we": 1, "table_re": 1,
          "table_addr": 10, "table_data": 80}
EDGES = [0, 1, 0x7F_FFFF, 0x80_0000, 0x3F80_0000, 0x7F7F_FFFF, 0x7F80_0000, 0x7FC0_0000]


def finite(random):
    """fp32 bits of a number from about 2^-12 to 2^8."""
    return random.getrandbits(1) << 31 | random.randrange(115, 136) << 23 | random.getrandbits(23)


def entry(random):
    """80 bits of coefficients of every size."""
    word, offset = 0, 0
    for bits in COEFFICIENT_BITS:
        value = random.randrange(-1 << bits - 1, 1 << bits - 1) >> random.randrange(0, bits - 1)
        word |= (value & (1 << bits) - 1) << offset
        offset += bits
    return word


def argument(random):
    """An argument with its descriptor; the host is quiet."""
    x = random.choice([random.getrandbits(32), finite(random), random.choice(EDGES) | random.getrandbits(1) << 31])
    return {"x": x, "kind": random.choice(list(FunctionKind)), "base": random.randrange(TABLE_ENTRIES),
            "segments": random.randrange(6, 11), "domain": random.randrange(-3, 8) & 0xF,
            "lo": finite(random), "hi": finite(random), "table_we": 0, "table_re": 0}


def host(random):
    """A write or a read of an entry; arguments go on."""
    write = random.getrandbits(1)
    return {"table_we": write, "table_re": 1 - write, "table_addr": random.randrange(TABLE_ENTRIES),
            "table_data": entry(random)}


def expected(samples):
    """Results and entries read, by cycle; the memory begins as the first writes on the wires make it."""
    columns = np.zeros((3, TABLE_ENTRIES), np.int64)
    words = [0] * TABLE_ENTRIES
    wanted = {}
    for cycle, seen in enumerate(samples[:-SpecialUnit.latency]):
        if seen["table_re"]:
            wanted.setdefault(cycle + 1, {})["table_q"] = words[seen["table_addr"]]
        else:
            lo, hi = (np.uint32(seen[name]).view(np.float32) for name in ("lo", "hi"))
            y = numerics.evaluate(np.uint32(seen["x"]).view(np.float32), seen["kind"], seen["base"],
                                  seen["segments"], signed(seen["domain"], INPUTS["domain"]), lo, hi, *columns)
            wanted.setdefault(cycle + SpecialUnit.latency, {})["y"] = int(numerics.float_bits(y))
        if seen["table_we"]:
            words[seen["table_addr"]] = word = seen["table_data"]
            for column, bits in zip(columns, COEFFICIENT_BITS, strict=True):
                column[seen["table_addr"]] = signed(word & (1 << bits) - 1, bits)
                word >>= bits
    return wanted


@cocotb.test()
@cocotb.parametrize(seed=[1, 2], gaps=[0.0, 0.3])
async def equals_the_model(dut, seed, gaps):
    wires = await Wires.start(dut, seed, inputs=INPUTS, outputs=["y", "table_q"])
    # An identity until every entry has been written: what an earlier test left is not on the wires.
    fill = [{"table_we": 1, "table_addr": n, "table_data": entry(wires.random), "kind": 0, "x": 0}
            for n in range(TABLE_ENTRIES)]
    await wires.drive(fill, gaps=0, pause=lambda: {"table_we": 0})
    await wires.drive((argument(wires.random) for _ in range(COUNT)), gaps=gaps, pause=lambda: host(wires.random))
    wires.put(table_we=0, table_re=0)
    await wires.cycle(SpecialUnit.latency + 1)
    assert wires.compare(expected(wires.samples)) >= COUNT
