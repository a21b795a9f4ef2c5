"""cocotb tests of the lane: every control word in its own stage, all of them anything in every cycle.

The model takes each word from the wires in the stage in which the lane does, so that what is done to one element is a
mixture of many cycles' words, as in a lane at full speed.
"""

import json
import os

import cocotb
import numpy as np

from hw import stages
from hw.config import HardwareConfig
from hw.control import Controls
from hw.isa import FUNCTION_FIELDS, TABLE_ENTRIES, A, B, C, D, RowFormat
from sim import numerics
from tests.cocotb import special
from tests.cocotb.dot import half, weights
from tests.cocotb.fronts import field
from tests.cocotb.wires import Wires, signed

CONFIG = HardwareConfig.from_json(json.loads(os.environ["CONFIG"]))
COUNT = int(os.environ["COUNT"])
WORDS = Controls(CONFIG)
OPERANDS = ("x", "y", "even", "odd", "p", "q", "r")
CONTROLS = ("select", "factor", "apply", "last", "result", "tables")
INPUTS = {"lane": 5, "row": 320, **dict.fromkeys(OPERANDS, 32),
          **{name: getattr(WORDS, name).size for name in CONTROLS}}
OUTPUTS = ["a", "write", "quantize", "reduce"]
LENGTH = stages.RESULT - stages.SELECT


def word(control, **values):
    layout = getattr(WORDS, control)
    return sum((value & (1 << layout[name].width) - 1) << layout[name].offset for name, value in values.items())


def real(random):
    """fp32 bits: mostly of a size at which sums and products mean something."""
    return random.choice([special.finite(random), special.finite(random), random.getrandbits(32),
                          random.choice(special.EDGES) | random.getrandbits(1) << 31])


def anything(random):
    """All inputs but `tables`."""
    function = special.argument(random)
    return {
        "lane": random.randrange(32),
        "row": random.getrandbits(256) | sum(half(random) << 256 + 16 * n for n in range(4)),
        **{name: real(random) for name in OPERANDS},
        "select": word("select", a=random.choice(list(A)), b=random.choice(list(B)), c=random.choice(list(C)),
                       d=random.choice(list(D)), c_negate=random.getrandbits(1), odd=random.getrandbits(1),
                       format=random.choice(list(RowFormat)), half=random.getrandbits(1),
                       element=random.getrandbits(5), word=random.getrandbits(3)),
        "factor": random.getrandbits(INPUTS["factor"]), "last": random.getrandbits(1),
        "apply": word("apply", **{name: function[name] for name, _, _ in FUNCTION_FIELDS}),
        "result": random.getrandbits(INPUTS["result"]) & ~word("result", live=-1)
        | word("result", live=random.choice([0, 32, random.randrange(33)])), "tables": 0,
    }


def bits(x):
    return int(numerics.float_bits(x))


def number(word):
    return np.uint32(word & 0xFFFF_FFFF).view(np.float32)


def function(seen, x, table):
    """Special function of a number, as the control word says."""
    facts = {name: field(WORDS.apply, seen["apply"], name) for name, _, _ in FUNCTION_FIELDS}
    facts["domain"] = signed(facts["domain"], WORDS.apply["domain"].width)
    return numerics.evaluate(x, *(facts[name] for name in ("kind", "base", "segments", "domain")), number(facts["lo"]),
                             number(facts["hi"]), *table)


def element(seen, table, at):
    """Outputs of the element that is selected in a cycle; `at` gives what was on the wires in a stage of it."""
    select = {name: field(WORDS.select, seen["select"], name) for name in dict(WORDS.select)}
    factor = {name: field(WORDS.factor, at(stages.FACTOR)["factor"], name) for name in dict(WORDS.factor)}
    rows = weights(seen["row"], select["format"])
    row = select["half"] % len(rows)
    scale, minimum = (seen["row"] >> 256 + 16 * n & 0xFFFF for n in (2 * row, 2 * row + 1))
    a = {A.ACC: seen["odd" if select["odd"] else "even"], A.X: seen["x"], A.Y: seen["y"], A.S: seen["p"]}.get(
        select["a"], seen["row"] >> 32 * select["word"] & 0xFFFF_FFFF)
    first = number(a)
    if factor["a_element"]:
        first = np.float32(rows[row][(select["element"] + seen["lane"]) % 32])
    b, c, d = ({1: number(seen["x"]), 2: number(seen["y"]), 3: number(seen[scalar])}.get(select[name], plain)
               for name, scalar, plain in (("b", "p", np.float32(1)), ("c", "q", np.float32(-0.0)),
                                           ("d", "r", np.float32(1))))
    if factor["b_a"] or select["b"] == B.ROW_SCALE:
        b = first if factor["b_a"] else numerics.half_to_float(scale)
    if select["c"] == C.ROW_MINIMUM:
        c = numerics.half_to_float(minimum)
    total = numerics.add(numerics.multiply(first, b), -c if select["c_negate"] else c)
    early = function(at(stages.FUNCTION), total, table)
    factor_d = early if at(stages.LAST)["last"] else first if factor["d_a"] else d
    late = numerics.multiply(early, factor_d)

    result = {name: field(WORDS.result, at(stages.RESULT)["result"], name) for name in dict(WORDS.result)}
    masked = at(stages.RESULT)["lane"] >= result["live"]
    write, quantize, reduce = (bits(early if result[name] else late) for name in ("w_early", "q_early", "r_early"))
    if result["absolute"]:
        reduce &= 0x7FFF_FFFF
    return {"a": a}, {"write": 0 if masked else write, "quantize": 0 if masked else quantize,
                      "reduce": result["neutral"] << 21 if masked else reduce}


def expected(samples):
    table = np.zeros((3, TABLE_ENTRIES), np.int64)
    wanted = {}
    with np.errstate(all="ignore"):
        for cycle, seen in enumerate(samples[:-LENGTH]):
            tables = {name: field(WORDS.tables, seen["tables"], name) for name in ("write", "entry", "data")}
            if tables["write"]:
                rest = tables["data"]
                for column, width in zip(table, special.COEFFICIENT_BITS, strict=True):
                    column[tables["entry"]] = signed(rest & (1 << width) - 1, width)
                    rest >>= width
                continue
            early, late = element(seen, table, lambda stage, cycle=cycle: samples[cycle + stage - stages.SELECT])
            wanted.setdefault(cycle + stages.FACTOR - stages.SELECT, {}).update(early)
            wanted.setdefault(cycle + LENGTH, {}).update(late)
    return wanted


@cocotb.test()
@cocotb.parametrize(seed=[1, 2], gaps=[0.0, 0.3])
async def equals_the_model(dut, seed, gaps):
    wires = await Wires.start(dut, seed, inputs=INPUTS, outputs=OUTPUTS)
    fill = [{"tables": word("tables", write=1, entry=n, data=special.entry(wires.random))}
            for n in range(TABLE_ENTRIES)]
    await wires.drive(fill, gaps=0, pause=lambda: anything(wires.random))
    # In a pause everything stays.
    await wires.drive((anything(wires.random) for _ in range(COUNT)), gaps=gaps, pause=dict)
    await wires.cycle(LENGTH + 1)
    assert wires.compare(expected(wires.samples)) >= COUNT
