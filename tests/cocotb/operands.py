"""cocotb tests of the operand buffer: quantizer, engine and host at once, with every address and word."""

import os

import cocotb

from sim import numerics
from tests.cocotb.wires import Wires, signed

BITS, BLOCKS, COUNT = (int(os.environ[name]) for name in ("BITS", "BLOCKS", "COUNT"))
ADDRESS = (BLOCKS - 1).bit_length()
Q = [f"q_{n}" for n in range(32)]
INTEGERS = [f"integers_{n}" for n in range(32)]
INPUTS = {"read": 1, "address": ADDRESS, "column": 1, "write": 1, "write_address": ADDRESS, **dict.fromkeys(Q, 9),
          "write_sum": 14, "write_exponent": 8, "host_write": 1, "host_read": 1, "host_address": 24, "host_data": 320,
          "host_strobe": 10}
OUTPUTS = ["sum", "exponent", "line", "host_q", *INTEGERS]
REACH = 1 << BITS - 1


def engine(random):
    """A read, a write, or both."""
    op = {"host_write": 0, "host_read": 0, "read": random.getrandbits(1), "write": random.getrandbits(1),
          "address": random.randrange(BLOCKS), "write_address": random.randrange(BLOCKS),
          "column": int(random.randrange(4) == 0), "write_sum": random.getrandbits(14),
          "write_exponent": random.choice([random.getrandbits(8), random.randrange(-26, 18) & 0xFF])}
    return op | {name: random.randrange(-REACH, REACH) & 0x1FF for name in Q}


def host(random):
    """A read or a write of half a block; neither engine nor quantizer works."""
    write = random.getrandbits(1)
    return {"read": 0, "write": 0, "host_write": write, "host_read": 1 - write,
            "host_address": random.randrange(2 * BLOCKS), "host_data": random.getrandbits(320),
            "host_strobe": random.choice([0x3FF, random.getrandbits(10)])}


def half_power(exponent):
    """fp16 bits of 2^e, with e bounded to what fp16 holds."""
    lowest, highest = numerics.KV_RANGE
    return int(numerics.pow2_to_half(min(max(exponent, lowest), highest)))


def expected(samples):
    """Outputs by cycle; blocks are known once all of their parts were written on the wires."""
    integers = {block: [None] * 32 for block in range(BLOCKS)}
    facts = dict.fromkeys(range(BLOCKS))  # sum (16 bits), exponent
    wanted = {}
    for cycle, seen in enumerate(samples[:-2]):
        block = seen["host_address"] >> 1 if seen["host_read"] else seen["address"]
        known = facts[block] is not None and None not in integers[block]
        if seen["host_read"] and known:
            words = [value & 0xFFFF for value in integers[block]]
            line = (sum(word << 16 * n for n, word in enumerate(words[20:])) | facts[block] << 192
                    if seen["host_address"] & 1 else sum(word << 16 * n for n, word in enumerate(words[:20])))
            wanted.setdefault(cycle + 1, {})["host_q"] = line
        elif seen["read"] and known:
            exponent = signed(facts[block] >> 16, 8)
            side = 0x3C00 if samples[cycle + 1]["column"] else half_power(exponent)
            wanted.setdefault(cycle + 1, {})["line"] = sum(
                (value & 0xFF) << 8 * n for n, value in enumerate(integers[block])) | side << 256
            wanted.setdefault(cycle + 2, {}).update(
                sum=facts[block] & 0x3FFF, exponent=exponent & 0xFF,
                **{name: value & (1 << BITS) - 1 for name, value in zip(INTEGERS, integers[block], strict=True)})
        if seen["write"]:
            integers[seen["write_address"]] = [signed(seen[name], 9) for name in Q]
            facts[seen["write_address"]] = (signed(seen["write_sum"], 14) & 0xFFFF) | seen["write_exponent"] << 16
        if seen["host_write"]:
            block, odd = seen["host_address"] >> 1, seen["host_address"] & 1
            words = [seen["host_data"] >> 32 * n & 0xFFFF_FFFF for n in range(10)]
            for n in range(6 if odd else 10):
                if seen["host_strobe"] >> n & 1:
                    first = 2 * n + 20 * odd
                    integers[block][first:first + 2] = [signed(words[n] >> 16 * k & (1 << BITS) - 1, BITS)
                                                        for k in (0, 1)]
            if odd and seen["host_strobe"] >> 6 & 1:
                facts[block] = words[6] & 0xFF_FFFF
    return wanted


@cocotb.test()
@cocotb.parametrize(seed=[1, 2], gaps=[0.0, 0.5])
async def equals_the_model(dut, seed, gaps):
    wires = await Wires.start(dut, seed, inputs=INPUTS, outputs=OUTPUTS)
    await wires.drive((engine(wires.random) for _ in range(COUNT)), gaps=gaps, pause=lambda: host(wires.random))
    await wires.drive((host(wires.random) for _ in range(COUNT // 4)), gaps=gaps,
                      pause=lambda: {"host_read": 0, "host_write": 0})
    await wires.cycle(3)
    assert wires.compare(expected(wires.samples)) >= COUNT // 4
