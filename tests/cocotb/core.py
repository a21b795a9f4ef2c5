"""cocotb tests of the core through its two ports: memories filled, commands run, everything read back.

The functional model is fed by the monitor: it gets the host's writes and the commands that were on the wires, and says
what every read answers and when every command ends.
"""

import json
import os

import cocotb
import numpy as np

from hw.config import HardwareConfig
from hw.isa import A, Alu, B, C, D, Instruction, Opcode, Reduce, RowFormat, encode
from hw.memorymap import SPACE_TABLE, Space, lines
from hw.timing import latencies
from sim.functional import FunctionalDevice
from tests.cocotb.wires import Wires
from tests.randomprogram import random_state

CONFIG = HardwareConfig.from_json(json.loads(os.environ["CONFIG"]))
INPUTS = {"start": 1, "entry": 16, "arguments": 256, "host_space": 4, "host_tile": 5, "host_address": 24,
          "host_read": 1, "host_write": 1, "host_data": 320, "host_strobe": 40}
OUTPUTS = ["busy", "done", "cycles", "nonfinite", "host_q"]
LATENCY = latencies(CONFIG).host_read
ALL_BYTES = (1 << 40) - 1
BLOCK = CONFIG.lanes_per_block
UPPER = CONFIG.scratch // 2
LIMIT = 20_000
"""Cycles of a command that hangs."""


def alu(rd, **values):
    return Instruction(Opcode.ALU, {"fn": Alu.ADD, "rd": rd, **values})


def multiply(**values):
    return Instruction(Opcode.MULTIPLY, {"format": RowFormat.Q8, "row_r": 1, "block_j": 1, **values})


def vector(**values):
    return Instruction(Opcode.VECTOR, {"outer": 1, "a": A.X, "b": B.ONE, "c": C.ZERO, "d": D.ONE, "x_i": 1, "w_i": 1,
                                       **values})


TWO_ROWS = [multiply(format=RowFormat[name.upper()], init=1, nj=2, nr=3, row=10, row_j=3, acc=20 + 8 * n)
            for n, name in enumerate(CONFIG.formats[1:])]
PROGRAM = [
    # Argument 2 names a tile and a column, argument 3 a length in elements.
    alu(9, imm=UPPER),
    Instruction(Opcode.LOOP, {"count": 3}),
    vector(inner=BLOCK, x_reg=12, quantize=1, block_reg=11, signal=1),
    alu(11, ra=11, imm=1),
    alu(12, ra=12, imm=5),
    Instruction(Opcode.END),
    multiply(init=1, nj=3, nr=6, row_reg=1, row_j=8, acc=4, wait=3, signal=1),
    *TWO_ROWS,
    Instruction(Opcode.FETCH, {"nj": 3, "row": 5, "row_j": 1, "acc": 1, "all": 1, "tile_reg": 2, "signal": 1}),
    vector(a=A.ACC, z=4, z_i=1, inner=6, b=B.X, c=C.Y, y=20, y_i=1, function=3, d=D.S, r=2, w=1, w_word_reg=9, wait=1,
           reduce=Reduce.SUM, reduce_init=1, reduce_emit=1, r_dest=8),
    vector(a=A.ROW_ELEMENT, b=B.ROW_SCALE, c=C.ROW_MINIMUM, z=1, inner=BLOCK, w=1, w_word=UPPER + 8, wait=1),
    vector(inner=6, x=UPPER, reduce=Reduce.ARGMAX, absolute=1, reduce_init=1, reduce_emit=1, r_dest=10, fence=1,
           mask=1, length_reg=3),
    vector(inner=2, b=B.S, p=8, w=1, w_word=UPPER + 40, reduce_fence=1),
    vector(inner=2 * BLOCK, quantize=1, narrow=1, block=7, signal=1),
    Instruction(Opcode.STORE_ROW, {"nj": 1, "block": 8, "row": 30, "tile_reg": 2, "wait": 1}),
    Instruction(Opcode.STORE_COLUMN, {"nj": 1, "block": 7, "row": 40, "row_r": 1, "column_reg": 2}),
    multiply(nr=4, row=40, block=2, acc=4, fence=1),
    Instruction(Opcode.HALT),
]
ENTRY = 3


def line_of(device, space, tile, address):
    """The words of a line of the host port."""
    if space == Space.OPERANDS:
        first, count = (10, 7) if address & 1 else (0, 10)
        words = device.read(space, address >> 1, 1)[0][first:first + count]
    else:
        words = device.read(space, address, 1, tile if SPACE_TABLE[space].per_tile else None)
    return words.reshape(-1)


def accesses(state):
    """A write of every line of every space in `state`, in host form."""
    for space, values in state.items():
        for tile in range(CONFIG.tiles if SPACE_TABLE[space].per_tile else 1):
            mine = values[..., tile] if SPACE_TABLE[space].per_tile else values
            mine = mine.reshape(len(mine), -1)
            if space == Space.OPERANDS:
                mine = np.pad(mine, ((0, 0), (0, 3))).reshape(-1, 10)
            for address, words in enumerate(mine):
                yield {"host_write": 1, "host_read": 0, "host_space": int(space), "host_tile": tile,
                       "host_address": address, "host_strobe": ALL_BYTES,
                       "host_data": int.from_bytes(words.astype("<u4").tobytes(), "little")}


def reads():
    """A read of every line of every space."""
    for space in Space:
        for tile in range(CONFIG.tiles if SPACE_TABLE[space].per_tile else 1):
            for address in range(lines(space, CONFIG)):
                yield {"host_write": 0, "host_read": 1, "host_space": int(space), "host_tile": tile,
                       "host_address": address}


def write(model, seen):
    """What a host write does to the model: bytes in the array, elsewhere words."""
    space, tile, address = Space(seen["host_space"]), seen["host_tile"], seen["host_address"]
    words = line_of(model, space, tile, address)
    old = words.tobytes()
    new = seen["host_data"].to_bytes(40, "little")
    strobe = seen["host_strobe"]
    taken = [strobe >> (n if space == Space.ARRAY else n & ~3) & 1 for n in range(len(old))]
    merged = np.frombuffer(bytes(b if take else a for a, b, take in zip(old, new, taken, strict=False)), np.uint32)
    if space == Space.OPERANDS:
        block = model.read(space, address >> 1, 1)
        block[0, 10 * (address & 1):][:len(merged)] = merged
        model.write(space, block, address >> 1)
    else:
        whole = merged if SPACE_TABLE[space].words == 1 else merged[None]
        model.write(space, whole, address, tile if SPACE_TABLE[space].per_tile else None)


def expected(samples):
    """Answers by cycle and bit mask of each, and the cycle in which each command ends with its report."""
    model = FunctionalDevice(CONFIG)
    answers, status, ends = {}, {}, []
    busy_until, facts = -1, {}
    for cycle, seen in enumerate(samples[:-LATENCY]):
        running = cycle < busy_until
        status[cycle] = {"busy": int(running), "done": int(cycle == busy_until), **({} if running else facts)}
        if seen["host_write"]:
            write(model, seen)
        if seen["host_read"]:
            space = Space(seen["host_space"])
            words = line_of(model, space, seen["host_tile"], seen["host_address"])
            answers[cycle + LATENCY] = (space, seen["host_address"], [int(word) for word in words])
        if seen["start"]:
            arguments = [seen["arguments"] >> 32 * n & 0xFFFF_FFFF for n in range(8)]
            done = model.run(seen["entry"], arguments)
            busy_until = cycle + done.cycles
            facts = {"cycles": done.cycles, "nonfinite": int(done.nonfinite)}
            ends.append(busy_until)
    return answers, status, ends


def _hex(words):
    return " ".join(f"{word:08x}" for word in words)


async def command(wires, arguments):
    wires.put(host_read=0, host_write=0, start=1, entry=ENTRY,
              arguments=sum(value << 32 * n for n, value in enumerate(arguments)))
    await wires.cycle()
    wires.put(start=0)
    for _ in range(LIMIT):
        await wires.cycle()
        if wires.get("done"):
            return
    raise AssertionError(f"seed {wires.seed}: the command did not end within {LIMIT} cycles")


@cocotb.test()
@cocotb.parametrize(seed=[1, 2], gaps=[0.0, 0.2])
async def equals_the_model(dut, seed, gaps):
    """Two commands on a random state, host traffic with pauses before, between and after them."""
    wires = await Wires.start(dut, seed, inputs=INPUTS, outputs=OUTPUTS)
    random = wires.random
    state = random_state(np.random.default_rng(seed), CONFIG, odd=0.0 if seed == 1 else 0.02)
    code = np.zeros(SPACE_TABLE[Space.MICROCODE].shape(CONFIG), np.uint32)
    code[ENTRY:ENTRY + len(PROGRAM)] = encode(PROGRAM)
    state[Space.MICROCODE] = code
    pause = lambda: {"host_write": 0, "host_read": 0, "host_data": random.getrandbits(320)}  # noqa: E731
    filling = list(accesses(state))
    # The model begins at zero: what this test does not write, an earlier one has left.
    filling = [*filling, *accesses({Space.REGISTERS: np.zeros(SPACE_TABLE[Space.REGISTERS].shape(CONFIG), np.uint32)})]
    random.shuffle(filling)
    await wires.drive(filling, gaps=gaps, pause=pause)
    # Some bytes of rows once more.
    parts = [{**access, "host_strobe": random.getrandbits(40), "host_data": random.getrandbits(320)}
             for access in filling if access["host_space"] == Space.ARRAY][:60]
    await wires.drive(parts, gaps=gaps, pause=pause)
    everything = list(reads())
    for _ in range(2):
        await command(wires, [random.randrange(8), random.randrange(32), random.randrange(6 * CONFIG.tiles)])
        await wires.drive(random.sample(everything, 60), gaps=gaps, pause=pause)
    await wires.drive(everything, gaps=gaps, pause=pause)
    await wires.cycle(2 * LATENCY)

    answers, status, ends = expected(wires.samples)
    assert len(ends) == 2 and len(answers) == len(everything) + 120
    wrong = []
    for cycle, (space, address, words) in answers.items():
        got = wires.samples[cycle]["host_q"]
        found = [got >> 32 * n & 0xFFFF_FFFF for n in range(len(words))]
        if found != words:
            wrong.append(f"cycle {cycle}: {space.name.lower()} line {address}: wanted {_hex(words)}; got {_hex(found)}")
    assert not wrong, f"seed {seed}: {len(wrong)} answers of {len(answers)} are wrong:\n" + "\n".join(wrong[:20])
    wires.compare(status)
