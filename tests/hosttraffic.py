"""Random transfers on both AXI ports of a simulated device, with pauses, and a model of what each does by docs/host.md.

The model knows nothing of the hardware but the memory map: it says every answer before the transfer, and what the
memories hold after all of them.
"""

import ctypes
from pathlib import Path

import numpy as np

from hw.memorymap import (
    ARGUMENTS,
    AXI_BITS,
    FIELDS,
    PAGE_BYTES,
    REGISTER_TABLE,
    SPACE_TABLE,
    Register,
    Space,
    line_words,
    lines,
    pitch,
    window_address,
)
from sim.rtl import RtlDevice

__all__ = ["HARNESS", "Traffic"]

HARNESS = Path(__file__).with_name("hosttraffic.cpp").read_text()
"""Transfers of any kind, for behind `sim.rtl.HARNESS`."""

OKAY, SLVERR = 0, 2
FIXED, INCR = 0, 1
WORDS = (Space.ARRAY, Space.SCRATCH, Space.ACCUMULATORS, Space.ROW_BUFFER, Space.SCALARS, Space.MICROCODE)
"""Spaces that keep all bits of what is written to them; of the others, only the answers are foretold."""

KEPT = {Register.TAG: 32, Register.WINDOW: AXI_BITS - 12,
        **{Register.ARGUMENT + 4 * n: 32 for n in range(ARGUMENTS)}}
"""Bits of the registers that hold what the host writes, byte by byte."""


class Traffic:
    """Transfers on a device whose commands rest, and the model of them.

    Parameters
    ----------
    device : RtlDevice
        Its simulation was built with `HARNESS`.
    simulation : CDLL
        That simulation.
    seed : int
        Of the transfers.
    """

    def __init__(self, device: RtlDevice, simulation: ctypes.CDLL, seed: int) -> None:
        self.device, self.config = device, device.config
        self.random = np.random.default_rng(seed)
        self.page = 0
        self.registers = dict.fromkeys(KEPT, 0)
        self.memories = {space: device.read(space) for space in WORDS}
        self._call = simulation
        self._handle = ctypes.c_void_p(device.handle)
        for register in KEPT:
            device.put(register, 0)

    def run(self, transfers: int) -> None:
        """Random transfers, one after the other; raises `AssertionError` where an answer or the end is another."""
        for _ in range(transfers):
            kind = self.random.random()
            (self.register_write if kind < 0.15 else self.register_read if kind < 0.3 else
             self.burst_write if kind < 0.65 else self.burst_read)()
        self.device.put(Register.WINDOW, 0)
        self.page = self.registers[Register.WINDOW] = 0
        for space, wanted in self.memories.items():
            found = self.device.read(space)
            assert np.array_equal(found, wanted), f"{space.name} differs at {np.argwhere(found != wanted)[:3].tolist()}"

    # Control port ----------------------------------------------------------------------------------------------------

    def register_write(self) -> None:
        """A write of a kept register or of an address that takes none, with any strobes."""
        strobe, value = int(self.random.integers(0, 16)), int(self.random.integers(0, 1 << 32))
        refuse = self.random.random() < 0.3
        readable = [info.register for info in REGISTER_TABLE.values() if info.access == "r"]
        address = int(self.random.choice([*readable, 0x4C, 0xFC] if refuse else list(KEPT)))
        answer = self._call.wl_control_write(self._handle, address, value, strobe, self._pauses())
        assert answer == (SLVERR if refuse else OKAY), f"write of {address:#x} answered {answer}"
        if not refuse:
            mask = sum(0xFF << 8 * n for n in range(4) if strobe >> n & 1)
            kept = (self.registers[address] & ~mask | value & mask) & ((1 << KEPT[address]) - 1)
            self.registers[address] = kept
            self.page = self.registers[Register.WINDOW]

    def register_read(self) -> None:
        """A read of a kept register, or of none."""
        address = int(self.random.choice([*KEPT, Register.DOORBELL, 0x4C, 0xF8]))
        value = ctypes.c_uint32()
        answer = self._call.wl_control_read(self._handle, address, self._pauses(), ctypes.byref(value))
        wanted = (OKAY, self.registers[address]) if address in KEPT else (SLVERR, 0)
        assert (answer, value.value) == wanted, f"read of {address:#x} gave {answer, value.value}, not {wanted}"

    # Window port -----------------------------------------------------------------------------------------------------

    def burst_write(self) -> None:
        """A burst of any kind to anywhere, with any strobes."""
        first, target, count, size, burst, ident = self._burst()
        data = self.random.integers(0, 1 << 32, count, dtype=np.uint32)
        strobes = np.where(self.random.random(count) < 0.6, 15, self.random.integers(0, 16, count)).astype(np.uint8)
        found = ctypes.c_uint32()
        answer = self._call.wl_burst_write(self._handle, ident, ctypes.c_uint64(first), count, size, burst,
                                           ctypes.c_void_p(data.ctypes.data), ctypes.c_void_p(strobes.ctypes.data),
                                           self._pauses(), ctypes.byref(found))
        refused = size > 2 or burst > INCR
        failed = refused
        for address, word, strobe in zip(_addresses(target, count, size, burst), data, strobes, strict=True):
            if strobe and not refused:
                failed |= not self._store(address, int(word), int(strobe))
        assert (answer, found.value) == (SLVERR if failed else OKAY, ident), \
            f"write of {count} beats of size {size}, kind {burst} at {target:#x} answered {answer}"

    def burst_read(self) -> None:
        """A burst of any kind from anywhere."""
        first, target, count, size, burst, ident = self._burst()
        data, answers = np.zeros(count, np.uint32), np.zeros(count, np.uint8)
        done = self._call.wl_burst_read(self._handle, ident, ctypes.c_uint64(first), count, size, burst,
                                        ctypes.c_void_p(data.ctypes.data), ctypes.c_void_p(answers.ctypes.data),
                                        self._pauses())
        assert done == 0, f"read of {count} beats at {target:#x}: {done}"
        refused = size > 2 or burst > INCR
        for n, address in enumerate(_addresses(target, count, size, burst)):
            space, _, line, word, exists, padding = self._decode(address)
            bad = refused or not exists
            assert answers[n] == (SLVERR if bad else OKAY), f"beat {n} of a read at {address:#x} answered {answers[n]}"
            if bad or padding:
                assert data[n] == 0, f"beat {n} at {address:#x} gave {data[n]:#x}"
            elif space in WORDS:
                wanted = self._word(address)
                assert data[n] == wanted, f"beat {n} at {address:#x} gave {data[n]:#x}, not {wanted:#x}"

    def _burst(self) -> tuple[int, int, int, int, int, int]:
        """Address on the port, where it leads, beats, size, kind, identifier."""
        random, config = self.random, self.config
        space = Space(int(random.integers(0, len(Space))))
        line = int(random.choice([0, lines(space, config) - 1, int(random.integers(0, lines(space, config)))]))
        tile = int(random.integers(0, config.tiles)) if SPACE_TABLE[space].per_tile else 0
        target = window_address(space, config, line, 0, tile) + int(random.integers(0, 4 * pitch(space)))
        if random.random() < 0.05:
            target = int(random.integers(0, 1 << AXI_BITS))
        count = 256 if random.random() < 0.03 else int(random.integers(1, 20))
        size = int(random.integers(0, 8)) if random.random() < 0.1 else int(random.choice([0, 1, 2, 2, 2, 2]))
        burst = int(random.choice([INCR, INCR, INCR, INCR, INCR, INCR, FIXED, 2, 3]))
        pages = 1 << (AXI_BITS - 12)
        first = (target // PAGE_BYTES - self.page) % pages * PAGE_BYTES + target % PAGE_BYTES
        return first, target, count, size, burst, int(random.integers(0, 16))

    def _decode(self, address: int) -> tuple[int, int, int, int, bool, bool]:
        """Space, tile, line, word, whether there is such a word or padding, and whether it is padding."""
        parts, rest = {}, address
        for name, width in FIELDS:
            parts[name], rest = rest & ((1 << width) - 1), rest >> width
        number, tile = parts["space"], parts["tile"]
        if number not in set(Space):
            return number, tile, 0, 0, False, False
        space = Space(number)
        line, word = divmod(parts["offset"] // 4, pitch(space))
        tiles = self.config.tiles if SPACE_TABLE[space].per_tile else 1
        exists = line < lines(space, self.config) and tile < tiles and rest == 0
        return number, tile, line, word, exists, word >= line_words(space)[line & 1]

    def _index(self, address: int) -> tuple[np.ndarray, tuple[int, ...]]:
        space, tile, line, word, _, _ = self._decode(address)
        info = SPACE_TABLE[Space(space)]
        return self.memories[Space(space)], (line, *((word,) if info.words > 1 else ()),
                                             *((tile,) if info.per_tile else ()))

    def _word(self, address: int) -> int:
        memory, index = self._index(address)
        return int(memory[index])

    def _store(self, address: int, word: int, strobe: int) -> bool:
        """Carry out a beat that strobes something; False if it is one that must be refused."""
        space, _, _, _, exists, padding = self._decode(address)
        if not exists or padding or not (strobe == 15 or SPACE_TABLE[Space(space)].bytewise):
            return False
        if space in WORDS:
            memory, index = self._index(address)
            mask = sum(0xFF << 8 * n for n in range(4) if strobe >> n & 1)
            memory[index] = int(memory[index]) & ~mask | word & mask
        return True

    def _pauses(self) -> int:
        """Seed of the pauses in a transfer, or 0 for none."""
        return int(self.random.integers(1, 1 << 31)) if self.random.random() < 0.5 else 0


def _addresses(first: int, count: int, size: int, burst: int) -> list[int]:
    """Addresses of the beats of a burst. It stays in its page, and all but the first are multiples of the size."""
    found, step = [first], 0 if burst == FIXED or size > 2 else 1 << size
    for _ in range(count - 1):
        last = found[-1]
        found.append(last if not step else
                     last // PAGE_BYTES * PAGE_BYTES + (last // step + 1) * step % PAGE_BYTES)
    return found


