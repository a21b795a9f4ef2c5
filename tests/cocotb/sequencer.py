"""cocotb tests of the sequencer: random programs, engines without room, and every push in its cycle.

The host writes a program and starts it; two coroutines are the engines' queues, one their end. The model is the
interpreter of `hw.sequence`, fed with the program, the command and the room that were on the wires.
"""

import json
import os

import cocotb
import numpy as np

from hw import sequence
from hw.config import REGISTERS, HardwareConfig
from hw.isa import MATRIX, VECTOR, Alu, Instruction, Opcode, decode_table, encode, format_of
from hw.payload import Payloads
from hw.timing import latencies
from tests.cocotb.wires import Wires

CONFIG = HardwareConfig.from_json(json.loads(os.environ["CONFIG"]))
PAYLOADS = {"matrix": Payloads(CONFIG).matrix, "vector": Payloads(CONFIG).vector}
INPUTS = {"start": 1, "entry": 16, "arguments": 256, "matrix_room": 1, "vector_room": 1, "quiet": 1, "line": 320,
          "line_strobe": 10, "line_address": 24, "microcode_write": 1, "microcode_read": 1, "register_write": 1}
OUTPUTS = ["busy", "done", "matrix", "matrix_push", "vector", "vector_push", "microcode_q", "register_q"]
SMALL = 31
"""A register that holds a small number for loop counts; programs write those from 9 to 30."""


def engine_word(random, opcode):
    """Any values in all fields: the sequencer only adds registers."""
    form = format_of(opcode)
    values = {f.name: random.randrange(f.lowest, f.highest + 1) for f in form.fields if random.randrange(3)}
    return Instruction(opcode, values)


def alu(random):
    return Instruction(Opcode.ALU, {
        "fn": random.choice(list(Alu)), "rd": random.choice([0, *range(9, 31)]), "ra": random.randrange(REGISTERS),
        "rb": random.randrange(REGISTERS), "imm": random.choice([random.randrange(40), random.getrandbits(32)])})


def body(random, depth, room):
    """Some words, with loops inside; at most `room`."""
    words = []
    while len(words) < room and random.randrange(6):
        left = room - len(words)
        if depth < sequence.LOOPS and left > 3 and random.randrange(3) == 0:
            loop = {"count": random.randrange(4), "count_reg": random.choice([0, SMALL])}
            words += [Instruction(Opcode.LOOP, loop), *body(random, depth + 1, left - 2), Instruction(Opcode.END)]
        elif random.getrandbits(1):
            words.append(alu(random))
        else:
            words.append(engine_word(random, random.choice([Opcode.MULTIPLY, Opcode.FETCH, Opcode.STORE_ROW,
                                                            Opcode.STORE_COLUMN, Opcode.VECTOR])))
    return words


def program(random):
    small = Instruction(Opcode.ALU, {"fn": Alu.ADD, "rd": SMALL, "imm": random.randrange(3)})
    words = [word for _ in range(4) for word in body(random, 0, 9)]
    return [small, *words, Instruction(Opcode.HALT)]


async def load(wires, words, first):
    """A program into the microcode, words in any order, each at once or in two parts."""
    order = list(enumerate(words, first))
    wires.random.shuffle(order)
    for address, word in order:
        line = int.from_bytes(word.tobytes(), "little")
        part = wires.random.getrandbits(10)
        for strobe in [0x3FF] if wires.random.getrandbits(1) else [part, 0x3FF ^ part]:
            # What is not written now is noise.
            noise = wires.random.getrandbits(320)
            mask = sum(0xFFFF_FFFF << 32 * n for n in range(10) if strobe >> n & 1)
            wires.put(microcode_write=1, line_address=address, line_strobe=strobe,
                      line=(line & mask) | (noise & ~mask))
            await wires.cycle()
    wires.put(microcode_write=0)


async def engines(wires, stalls):
    """Queues that have room or not, and engines that are quiet or not."""
    while True:
        room = [int(wires.random.random() >= stalls) for _ in range(2)]
        wires.put(matrix_room=room[0], vector_room=room[1], quiet=int(wires.random.random() >= stalls))
        await wires.cycle()


def payload(engine, opcode, fields):
    """The bits of a resolved instruction."""
    layout, form = PAYLOADS[engine], MATRIX if engine == "matrix" else VECTOR
    word = 0
    for name, member in layout:
        if name == "opcode":
            value = opcode
        else:
            column = [f.name for f in form.fields].index(name if name in {f.name for f in form.fields}
                                                         else f"{name}_reg") + 1
            value = int(fields[column])
        if name in ("nj", "nh", "nr", "outer", "inner"):
            # A count is resolved at its own width.
            value = max(value & (1 << member.width) - 1, 1) - 1
        word |= (value & (1 << member.width) - 1) << member.offset
    return word


def expected(samples):
    """Busy, done, pushes and answers to the host of every cycle.

    Memories outlive a reset: of microcode and registers only that is known which was written on the wires.
    """
    code = np.zeros((CONFIG.microcode, 10), np.uint32)
    written = np.zeros(code.shape, bool)
    registers = np.zeros(REGISTERS, np.uint32)
    wanted: dict[int, dict[str, int]] = {}
    cycle, ended, answer = 0, None, None
    while cycle < len(samples):
        seen = samples[cycle]
        wanted[cycle] = {"busy": 0, "done": int(cycle == ended), "matrix_push": 0, "vector_push": 0}
        if answer is not None:
            wanted[cycle]["microcode_q"] = answer
        if ended is not None:
            wanted[cycle]["register_q"] = int(registers[seen["line_address"] % REGISTERS])
        address = seen["line_address"] % CONFIG.microcode
        answer = None
        if seen["microcode_read"] and written[address].all():
            answer = int.from_bytes(code[address].tobytes(), "little")
        if seen["microcode_write"]:
            for n in range(10):
                if seen["line_strobe"] >> n & 1:
                    code[address, n] = seen["line"] >> 32 * n & 0xFFFF_FFFF
                    written[address, n] = True
        if not seen["start"]:
            cycle += 1
            continue
        cycle, answer = run(samples, cycle, decode_table(code), registers, wanted), None
        if cycle is None:
            break
        ended = cycle
    return wanted


def run(samples, start, table, registers, wanted):
    """A command that was on the wires in cycle `start`; the cycle of its end, or None if it was not seen."""
    registers[:] = 0
    registers[1:9] = [samples[start]["arguments"] >> 32 * n & 0xFFFF_FFFF for n in range(8)]
    steps, pc = sequence.sequence(), samples[start]["entry"]
    pushes = {}
    fetch = start + latencies(CONFIG).start - 1
    while True:
        opcode, cycle = int(table[pc, 0]), fetch + 1
        engine = None if opcode < Opcode.MULTIPLY else "vector" if opcode == Opcode.VECTOR else "matrix"
        waits_for = f"{engine}_room" if engine else "quiet" if opcode == Opcode.HALT else None
        while waits_for and cycle < len(samples) and not samples[cycle][waits_for]:
            cycle += 1
        if cycle + 1 >= len(samples):
            return None
        if opcode == Opcode.HALT:
            break
        if engine:
            resolve = sequence.resolve_matrix if engine == "matrix" else sequence.resolve_vector
            resolve(table, pc, registers, steps.fields)
            pushes[cycle + 1] = {f"{engine}_push": 1, engine: payload(engine, opcode, steps.fields)}
            pc += 1
        else:
            pc = sequence.control(table, pc, registers, steps.stack, steps.depth)
            assert pc >= 0, sequence.PROBLEMS[pc]
        fetch = cycle + 1
    end = cycle + 1
    for n in range(start + 1, end):
        wanted[n] = {"busy": 1, "done": 0, "matrix_push": 0, "vector_push": 0, **pushes.get(n, {})}
    return end


async def command(wires, entry):
    arguments = [wires.random.getrandbits(wires.random.choice([4, 32])) for _ in range(8)]
    wires.put(start=1, entry=entry, arguments=sum(value << 32 * n for n, value in enumerate(arguments)))
    await wires.cycle()
    wires.put(start=0)


async def finish(wires):
    for _ in range(200_000):
        if wires.get("done"):
            return
        await wires.cycle()
    raise AssertionError(f"seed {wires.seed}: a command that should end did not")


async def read_back(wires):
    """All registers, and the microcode beside them."""
    for number in range(max(REGISTERS, CONFIG.microcode)):
        wires.put(line_address=number, microcode_read=wires.random.getrandbits(1))
        await wires.cycle()
    wires.put(microcode_read=0)


@cocotb.test()
@cocotb.parametrize(seed=[1, 2, 3, 4], stalls=[0.0, 0.6])
async def equals_the_model(dut, seed, stalls):
    """Three programs one after the other, from different entries."""
    wires = await Wires.start(dut, seed, inputs=INPUTS, outputs=OUTPUTS)
    cocotb.start_soon(engines(wires, stalls))
    for _ in range(3):
        words = encode(program(wires.random))
        entry = wires.random.randrange(CONFIG.microcode - len(words) + 1)
        await load(wires, words, entry)
        await command(wires, entry)
        await wires.cycle()
        await finish(wires)
        await read_back(wires)
    wanted = expected(wires.samples)
    assert sum(outputs["done"] for outputs in wanted.values()) == 3
    wires.compare(wanted)


@cocotb.test()
@cocotb.parametrize(seed=[5, 6])
async def reset_ends_a_command(dut, seed):
    """After a reset in the middle, nothing is pushed any more, and the next command runs as if it were the first."""
    wires = await Wires.start(dut, seed, inputs=INPUTS, outputs=OUTPUTS)
    cocotb.start_soon(engines(wires, 0.0))
    loop = [Instruction(Opcode.LOOP, {"count": 60_000}), engine_word(wires.random, Opcode.VECTOR),
            Instruction(Opcode.END), Instruction(Opcode.HALT)]
    await load(wires, encode(loop), 0)
    await command(wires, 0)
    await wires.cycle(wires.random.randrange(1, 120))
    dut.rst.value = 1
    await wires.cycle(2)
    dut.rst.value = 0
    first = len(wires.samples)
    await wires.cycle(10)
    words = encode(program(wires.random))
    await load(wires, words, 5)
    await command(wires, 5)
    await wires.cycle()
    await finish(wires)
    await read_back(wires)
    del wires.samples[:first]
    wires.compare(expected(wires.samples))
