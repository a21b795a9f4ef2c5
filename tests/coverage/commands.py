"""What random programs and transfers leave out: full queues, stopped commands, long loops, interrupts switched off."""

import numpy as np

from hw.isa import A, Alu, Instruction, Opcode, Reduce, encode
from hw.memorymap import ARGUMENTS, Control, Register, Space, Status
from runtime.conformance.program import small_image
from sim.functional import FunctionalDevice
from sim.rtl import Completion
from tests.devicebench import DeviceBench

__all__ = ["exercise"]

LOADED = (Space.SCRATCH, Space.SCALARS, Space.MICROCODE, Space.TABLES, Space.FUNCTIONS)
PATTERNS = (0xAAAA_AAAA, 0x5555_5555, 0xFFFF_FFFF, 0)

DEEP = [*(Instruction(Opcode.LOOP, {"count_reg": n}) for n in range(1, 5)),
        Instruction(Opcode.ALU, {"fn": Alu.ADD, "rd": 9, "ra": 9, "imm": 3}), *[Instruction(Opcode.END)] * 4,
        Instruction(Opcode.HALT)]
"""Loops as deep as they go, each as long as an argument says."""
LONG = [[Instruction(Opcode.LOOP, {"count": count}), Instruction(Opcode.END)] for count in (0xAAAA, 0x5555)]
DEEP_ENTRY, LONG_ENTRY = 64, 80

WIDE = [Instruction(Opcode.VECTOR, {"inner": 9, "a": A.X, "x_i": 1, "index_reg": 1, "reduce": Reduce.ARGMAX,
                                    "reduce_init": 1, "reduce_emit": 1, "r_dest": 4}),
        *(Instruction(Opcode.MULTIPLY, {"fence": 1, "init": 1, "row": row, "row_j": step, "nj_reg": reg})
          for row, step, reg in ((0, 1, 2), (0xAAA, -1, 2), (0x555, 2, 3), (0xFFF, -1, 4), (0, 0, 4))),
        Instruction(Opcode.HALT)]
"""Counts and indices of many bits."""
WIDE_ENTRY = 96

TRIES = 10_000
"""Looks, 100 cycles apart, for room in the queue of commands."""


def exercise(bench: DeviceBench) -> None:
    """Run commands on a device at rest; raises `AssertionError` where it does not do as docs/host.md says."""
    device, config = bench.device, bench.config
    image, model = small_image(config), FunctionalDevice(config)
    for space in LOADED:
        bench.write(space, getattr(image, space.name.lower()))
        model.write(space, getattr(image, space.name.lower()))
    entry = {name: entry.address for name, entry in image.entries.items()}
    wanted = [Completion(PATTERNS[n % len(PATTERNS)] ^ n, *_of(model.run(entry["loop"], (n,))))
              for n in range(2 * config.commands)]

    # Nobody takes completions: as many as fit are made, then commands wait, then one is refused.
    assert device.get(Register.CONTROL) == 1 << Control.IRQ_ENABLE
    device.put(Register.CONTROL, 0)
    assert device.get(Register.CONTROL) == 0
    for n, done in enumerate(wanted):
        for _ in range(TRIES):
            if device.submit(entry["loop"], (n, *[PATTERNS[n % 4]] * (ARGUMENTS - 1)), done.tag):
                break
            device.advance(100)
        else:
            raise AssertionError(f"command {n} found no room in {100 * TRIES} cycles")
    device.advance(2000)
    assert device.get(Register.COMPLETIONS) == config.commands and device.get(Register.ROOM) == 0
    device.put(Register.DOORBELL, 1)
    assert device.get(Register.STATUS) >> Status.REFUSED & 1
    assert [device.poll() for _ in wanted[:config.commands]] == wanted[:config.commands]
    device.advance(2000)
    assert [device.poll() for _ in wanted[config.commands:]] == wanted[config.commands:]
    assert device.poll() is None
    device.put(Register.STATUS, 1 << Status.REFUSED | 1 << Status.NONFINITE)
    assert device.get(Register.STATUS) == 0

    device.write(Space.MICROCODE, DEEP_ENTRY, encode(DEEP))
    device.write(Space.MICROCODE, LONG_ENTRY, encode(sum(LONG, [])))
    for pattern in PATTERNS[:2]:
        for first, end in ((DEEP_ENTRY, DEEP_ENTRY + len(DEEP)), (LONG_ENTRY, LONG_ENTRY + 2),
                           (LONG_ENTRY + 2, LONG_ENTRY + 4)):
            device.reset()
            assert device.submit(first, [pattern] * ARGUMENTS, pattern)
            device.advance(100)
            assert device.get(Register.STATUS) == 1 << Status.BUSY
            assert first <= device.get(Register.POSITION) < end
    device.reset()
    assert bench.run(DEEP_ENTRY, (2, 1, 0, 3))[0] < 100

    device.write(Space.MICROCODE, WIDE_ENTRY, encode(WIDE))
    for space in Space:
        model.write(space, bench.read(space))
    for index in (0x2AAA_AAAA, 0x1555_5555, 0x3FFF_FFFF, 0):
        done = model.run(WIDE_ENTRY, (index, 0xAAA, 0x555, 1))
        assert bench.run(WIDE_ENTRY, (index, 0xAAA, 0x555, 1), 300_000) == (done.cycles, done.nonfinite)
        for space in (Space.SCALARS, Space.ACCUMULATORS):
            assert np.array_equal(bench.read(space), model.read(space)), f"{space.name} with index {index:#x}"

    for name, arguments in (("loop", (1 << 31,)), ("stuck", ())):
        device.reset()
        assert device.submit(entry[name], arguments) and device.submit(entry["copy"], (0, 1))
        device.advance(400)
        assert device.get(Register.STATUS) == 1 << Status.BUSY | 1 << Status.PENDING, name
        assert entry[name] <= device.get(Register.POSITION) < entry[name] + 5, name
        assert bool(device.get(Register.ENGINES)) == (name == "stuck"), name
        device.put(Register.CONTROL, 1 << Control.RESET | 1 << Control.IRQ_ENABLE)
        device.advance(8)
        assert device.get(Register.STATUS) == 0 and device.get(Register.ROOM) == config.commands, name
    done = model.run(entry["copy"], (0, 32))
    assert bench.run(entry["copy"], (0, 32)) == (done.cycles, done.nonfinite)


def _of(result: Completion) -> tuple[int, bool]:
    return result.cycles, result.nonfinite
