"""cocotb tests of the tile: array, row register, row buffer, accumulator file and scratch, each control word in its
own stage and anything in every cycle. What the lane makes of words has a bench of its own; here it hands them on.
"""

import json
import os
from collections import deque

import cocotb
import numpy as np

from hw import latency
from hw.config import BLOCK, HardwareConfig
from hw.control import Controls
from hw.isa import A, RowFormat
from hw.tile import LANE_CONTROLS, MATRIX_CONTROLS
from sim import numerics
from tests.cocotb.dot import half, weights
from tests.cocotb.fronts import field
from tests.cocotb.wires import Wires, signed

CONFIG = HardwareConfig.from_json(json.loads(os.environ["CONFIG"]))
COUNT = int(os.environ["COUNT"])
WORDS = Controls(CONFIG)
CONTROLS = MATRIX_CONTROLS + LANE_CONTROLS
INTEGERS = [f"integer_{n}" for n in range(BLOCK)]
INPUTS = {"lane": 5, **{name: getattr(WORDS, name).size for name in CONTROLS}, "line": 320, "shared": 320,
          **dict.fromkeys(INTEGERS, CONFIG.activation_bits), "sum": 14, "exponent": 8, "p": 32, "q": 32, "r": 32,
          "word": 32}
FORMATS = [RowFormat[name.upper()] for name in CONFIG.formats]
REACH = (1 << CONFIG.activation_bits - 1) - 1
PAIRS = CONFIG.accumulators // 2


def word(control, **values):
    layout = getattr(WORDS, control)
    return sum((int(value) & (1 << layout[name].width) - 1) << layout[name].offset for name, value in values.items())


def fields(seen, control):
    layout = getattr(WORDS, control)
    return {name: field(layout, seen[control], name) for name in dict(layout)}


def line(random):
    """A row with likely scales."""
    return random.getrandbits(256) | sum(half(random) << 256 + 16 * n for n in range(4))


def fill(random, number):
    """Writes of every word of every memory, and reads until every register behind them holds something known: what an
    earlier test left is not on the wires."""
    for n in range(max(CONFIG.rows, PAIRS, CONFIG.row_buffer, CONFIG.scratch)):
        yield {"line": line(random), "shared": line(random), "word": random.getrandbits(30),
               "array": word("array", address=n % CONFIG.rows, write=1, strobe=-1),
               "buffer": word("buffer", write=1, entry=n % CONFIG.row_buffer, shared=1, strobe=-1),
               "acc_write": word("acc_write", even=1, odd=1, pair=n % PAIRS, host=1, tile=number),
               "result": word("result", write=1, word=n % CONFIG.scratch, host=1)}
    for _ in range(3 + latency.DOT + latency.ADD):
        yield {**dict.fromkeys(CONTROLS, 0), "array": word("array", read=1), "row": word("row", take=1),
               "acc_read": word("acc_read", read=1), "read": word("read", read=1)}


def anything(random):
    """All control words; few pairs, so that accumulators are read while they are written."""
    q = [random.randrange(-REACH, REACH + 1) for _ in INTEGERS]
    flag, pairs = lambda: random.getrandbits(1), min(4, PAIRS)
    tile = random.randrange(CONFIG.tiles)
    return {
        "line": line(random), "shared": line(random), "word": random.getrandbits(32),
        "sum": sum(q) & 0x3FFF, "exponent": random.randrange(-20, 20) & 0xFF,
        **{name: value & (1 << CONFIG.activation_bits) - 1 for name, value in zip(INTEGERS, q, strict=True)},
        "array": word("array", address=random.randrange(CONFIG.rows), read=flag(), write=flag(), one=flag(), tile=tile,
                      column=flag(), element=random.getrandbits(5), strobe=random.getrandbits(40)),
        "row": word("row", format=random.choice(FORMATS), take=flag(), buffer=flag(), one=flag(), tile=tile),
        "buffer": word("buffer", write=flag(), entry=random.randrange(CONFIG.row_buffer), shared=flag(), one=flag(),
                       tile=tile, strobe=random.getrandbits(10)),
        "acc_read": word("acc_read", read=flag(), pair=random.randrange(pairs)),
        "acc_add": word("acc_add", init=flag(), two=flag()),
        "acc_write": word("acc_write", even=flag(), odd=flag(), pair=random.randrange(pairs),
                          host=random.randrange(4) == 0, tile=tile),
        "read": word("read", read=flag(), x=random.randrange(CONFIG.scratch), y=random.randrange(CONFIG.scratch),
                     pair=random.randrange(pairs), entry=random.randrange(CONFIG.row_buffer)),
        "select": word("select", a=random.choice([A.ACC, A.X, A.Y, A.ROW_WORD]), odd=flag(),
                       word=random.randrange(8)),
        "result": word("result", write=flag(), one=flag(), tile=tile, word=random.randrange(CONFIG.scratch),
                       host=flag(), live=0),  # what the lane makes is masked, and written as zero
    }


class Model:
    """The memories of a tile and the registers between them."""

    def __init__(self):
        self.array, self.buffer = [0] * CONFIG.rows, [0] * CONFIG.row_buffer
        self.scratch, self.banks = [0] * CONFIG.scratch, {name: [0] * PAIRS for name in ("even", "odd")}
        self.row, self.row_out, self.entry, self.a = 0, 0, 0, 0
        self.x, self.y = 0, 0
        self.old, self.drained = {"even": 0, "odd": 0}, {"even": 0, "odd": 0}
        self.terms = deque([None] * latency.DOT)
        self.sums = deque([None] * latency.ADD)

    def next(self, seen, number):
        """Outputs of a cycle; all registers take what is there at its end."""
        outputs = {"row_out": self.row_out, "a": self.a}
        array, row, buffer, first, add, write, read, select, result = (fields(seen, name) for name in (
            "array", "row", "buffer", "acc_read", "acc_add", "acc_write", "read", "select", "result"))
        mine = {name: not word["one"] or word["tile"] == number
                for name, word in (("array", array), ("row", row), ("buffer", buffer), ("result", result))}

        # First factor of the lane, from what stands on the memories' outputs.
        self.a = {A.ACC: self.drained["odd" if select["odd"] else "even"], A.X: self.x, A.Y: self.y}.get(
            select["a"], self.entry >> 32 * select["word"] & 0xFFFF_FFFF)

        # Terms of the row that was read, and sums of those that are due.
        self.terms.append(self._terms(seen, row["format"]))
        self.sums.append(self._sums(add, self.terms.popleft()))
        sums = self.sums.popleft()

        row_out = self.row_out
        if row["take"]:
            self.row_out = (self.entry if row["buffer"] else self.row) if mine["row"] else 0
        if array["read"]:
            self.row = self.array[array["address"]]
        if array["write"] and mine["array"]:
            content = seen["line"]
            if array["column"]:
                byte = content >> 8 * ((array["element"] + number) % BLOCK) & 0xFF
                content = content >> 256 << 256 | int.from_bytes(bytes([byte] * 32))
            self.array[array["address"]] = _merge(self.array[array["address"]], content, array["strobe"], 8)

        # Scratch and row buffer show what was there before a write of the same cycle, accumulators what is written.
        if read["read"]:
            self.x, self.y, self.entry = self.scratch[read["x"]], self.scratch[read["y"]], self.buffer[read["entry"]]
        if buffer["write"] and mine["buffer"]:
            self.buffer[buffer["entry"]] = _merge(self.buffer[buffer["entry"]], seen["shared"] if buffer["shared"]
                                                  else row_out, buffer["strobe"], 32)
        if result["write"] and mine["result"]:
            self.scratch[result["word"]] = seen["word"] if result["host"] else 0
        for n, (name, bank) in enumerate(self.banks.items()):
            if write[name] and (not write["host"] or write["tile"] == number):
                bank[write["pair"]] = seen["word"] if write["host"] else sums and sums[n]
            if first["read"]:
                self.old[name] = bank[first["pair"]]
            if read["read"]:
                self.drained[name] = bank[read["pair"]]
        return outputs

    def _terms(self, seen, row_format):
        q = np.array([signed(seen[name], CONFIG.activation_bits) for name in INTEGERS])
        x, e = signed(seen["sum"], 14), signed(seen["exponent"], 8)
        side = self.row >> 256
        return [numerics.dot_term(int((q * w).sum()), x, side >> 32 * k & 0xFFFF, side >> 32 * k + 16 & 0xFFFF, e)
                for k, w in enumerate(weights(self.row, row_format))]

    def _sums(self, add, terms):
        """New accumulators of both banks; None for one that nothing is said of."""
        if terms is None:
            return None
        chosen = [terms[0], terms[-1] if add["two"] else terms[0]]
        known = [True, not add["two"] or len(terms) == 2]
        olds = [-0.0 if add["init"] else old if old is None else np.uint32(old).view(np.float32)
                for old in self.old.values()]
        return [None if old is None or not sure else int(numerics.float_bits(numerics.add(np.float32(old), term)))
                for old, sure, term in zip(olds, known, chosen, strict=True)]


def _merge(old, new, strobe, grain):
    mask = sum((1 << grain) - 1 << grain * n for n in range(320 // grain) if strobe >> n & 1)
    return old & ~mask | new & mask


def expected(samples, number):
    model = Model()
    with np.errstate(all="ignore"):
        for cycle, seen in enumerate(samples):
            outputs = model.next(seen, number)
            yield cycle, {name: value for name, value in outputs.items() if value is not None}


@cocotb.test()
@cocotb.parametrize(number=[0, 1], gaps=[0.0, 0.3])
async def equals_the_model(dut, number, gaps):
    wires = await Wires.start(dut, 1 + number, inputs=INPUTS, outputs=["row_out", "a"])
    wires.put(lane=number)
    await wires.cycle(2)
    first = len(wires.samples)
    idle = dict.fromkeys(CONTROLS, 0)
    await wires.drive(fill(wires.random, number), gaps=0, pause=lambda: idle)
    begin = len(wires.samples)
    # In a pause everything stays.
    await wires.drive((anything(wires.random) for _ in range(COUNT)), gaps=gaps, pause=dict)
    await wires.cycle(3)
    wanted = {first + cycle: outputs for cycle, outputs in expected(wires.samples[first:], number)
              if first + cycle >= begin}
    assert sum(len(outputs) for outputs in wanted.values()) > 1.5 * COUNT
    wires.compare(wanted)
