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
    ID,
    PAGE_BYTES,
    REGISTER_TABLE,
    SPACE_TABLE,
    VERSION,
    Register,
    Space,
    Status,
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

PAGE_BITS = AXI_BITS - (PAGE_BYTES - 1).bit_length()
KEPT = {Register.TAG: 32, Register.WINDOW: PAGE_BITS,
        **{Register.ARGUMENT + 4 * n: 32 for n in range(ARGUMENTS)}}
"""Bits of the registers that hold what the host writes, byte by byte."""


BURST = np.dtype([("address", np.uint64), *((name, np.uint32) for name in ("id", "count", "size", "kind"))])


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
        self.registers = dict.fromkeys([*KEPT, Register.ENTRY], 0)
        self.memories = {space: device.read(space) for space in WORDS}
        self.left = 0
        self._call = simulation
        self._handle = ctypes.c_void_p(device.handle)
        for register in self.registers:
            device.put(register, 0)
        device.put(Register.STATUS, 1 << Status.NONFINITE | 1 << Status.REFUSED)   # clears what commands left

    def run(self, transfers: int) -> None:
        """Random transfers; raises `AssertionError` where an answer is wrong, or what the memories hold at the end."""
        self.left = transfers
        while self.left:
            kind = self.random.random()
            (self.register_writes if kind < 0.1 else self.register_reads if kind < 0.2 else
             self.burst_writes if kind < 0.6 else self.burst_reads)()
        self.device.put(Register.WINDOW, 0)
        self.registers[Register.WINDOW] = 0
        for space, wanted in self.memories.items():
            found = self.device.read(space)
            assert np.array_equal(found, wanted), f"{space.name} differs at {np.argwhere(found != wanted)[:3].tolist()}"

    # Control port ----------------------------------------------------------------------------------------------------

    def register_writes(self) -> None:
        """Writes of kept registers and of addresses that take none, with any strobes."""
        random, count = self.random, self._some()
        readable = [info.register for info in REGISTER_TABLE.values() if info.access == "r"]
        refusing = random.random(count) < 0.3
        addresses = np.array([random.choice([*readable, 0x4C, 0xFC] if refuse else [*KEPT, Register.ENTRY])
                              for refuse in refusing], np.uint32)
        values = random.integers(0, 1 << 32, count, dtype=np.uint32)
        values >>= random.choice([0, 0, 21], count).astype(np.uint32)
        strobes, answers = random.integers(0, 16, count).astype(np.uint8), np.zeros(count, np.uint8)
        self._ended(self._call.wl_control_writes(
            self._handle, count, *map(_at, (addresses, values, strobes)), self._pauses(), _at(answers)))
        for address, value, strobe, answer in zip(*(a.tolist() for a in (addresses, values, strobes, answers)),
                                                  strict=True):
            wanted = OKAY if self._keep(address, value, strobe) else SLVERR
            assert answer == wanted, f"write of {value:#x} with strobes {strobe:#x} to {address:#x} answered {answer}"

    def register_reads(self) -> None:
        """Reads of kept registers, of constants and of none."""
        count = self._some()
        constants = {Register.ID: ID, Register.VERSION: VERSION, Register.STATUS: 0, Register.COMPLETIONS: 0,
                     Register.ROOM: self.config.commands, Register.COMPLETION_STATUS: 0, **self.registers}
        addresses = self.random.choice([*constants, Register.DOORBELL, 0x4C, 0xF8], count).astype(np.uint32)
        values, answers = np.zeros(count, np.uint32), np.zeros(count, np.uint8)
        self._ended(self._call.wl_control_reads(
            self._handle, count, _at(addresses), self._pauses(), *map(_at, (values, answers))))
        for address, value, answer in zip(*(a.tolist() for a in (addresses, values, answers)), strict=True):
            wanted = (OKAY, constants[address]) if address in constants else (SLVERR, 0)
            assert (answer, value) == wanted, f"read of {address:#x} gave {answer, value}, not {wanted}"

    def _keep(self, address: int, value: int, strobe: int) -> bool:
        """Carry out a write of a register; False if it is one that must be refused."""
        if address not in self.registers:
            return False
        merged = self.registers[address] & ~_mask(strobe) | value & _mask(strobe)
        if address == Register.ENTRY and merged >= self.config.microcode:
            return False
        self.registers[address] = merged & ((1 << KEPT.get(address, 16)) - 1)
        return True

    # Window port -----------------------------------------------------------------------------------------------------

    def burst_writes(self) -> None:
        """Bursts of any kind to anywhere, with any strobes."""
        bursts, targets = self._bursts()
        total = int(bursts["count"].sum())
        words = self.random.integers(0, 1 << 32, total, dtype=np.uint32)
        strobes = np.where(self.random.random(total) < 0.6, 15, self.random.integers(0, 16, total)).astype(np.uint8)
        answers = np.zeros(len(bursts), np.uint8)
        self._ended(self._call.wl_window_writes(
            self._handle, len(bursts), *map(_at, (bursts, words, strobes)), self._pauses(), _at(answers)))
        beat = 0
        for burst, target, answer in zip(bursts, targets, answers.tolist(), strict=True):
            refused = failed = _refused(burst)
            for address in _addresses(target, burst):
                if strobes[beat] and not refused:
                    failed |= not self._store(address, int(words[beat]), int(strobes[beat]))
                beat += 1
            assert answer == (SLVERR if failed else OKAY), f"write {burst} at {target:#x} answered {answer}"

    def burst_reads(self) -> None:
        """Bursts of any kind from anywhere."""
        bursts, targets = self._bursts()
        total = int(bursts["count"].sum())
        words, answers = np.zeros(total, np.uint32), np.zeros(total, np.uint8)
        self._ended(self._call.wl_window_reads(
            self._handle, len(bursts), _at(bursts), self._pauses(), *map(_at, (words, answers))))
        found = iter(zip(words.tolist(), answers.tolist(), strict=True))
        for burst, target in zip(bursts, targets, strict=True):
            for address in _addresses(target, burst):
                (word, answer), (space, _, _, _, exists, padding) = next(found), self._decode(address)
                bad = _refused(burst) or not exists
                assert answer == (SLVERR if bad else OKAY), f"read of {address:#x} in {burst} answered {answer}"
                wanted = 0 if bad or padding else self._word(address) if space in WORDS else word
                assert word == wanted, f"read of {address:#x} in {burst} gave {word:#x}, not {wanted:#x}"

    def _bursts(self) -> tuple[np.ndarray, list[int]]:
        """Some bursts, and where in the window each begins."""
        targets = [self._target() for _ in range(self._some())]
        bursts = np.zeros(len(targets), BURST)
        for burst, target in zip(bursts, targets, strict=True):
            pages = target // PAGE_BYTES - self.registers[Register.WINDOW]
            burst["address"] = pages % (1 << PAGE_BITS) * PAGE_BYTES + target % PAGE_BYTES
        random, count = self.random, len(targets)
        bursts["id"] = random.integers(0, 16, count)
        bursts["count"] = np.where(random.random(count) < 0.02, 256, random.integers(1, 20, count))
        bursts["size"] = np.where(random.random(count) < 0.05, random.integers(3, 8, count),
                                  random.choice([0, 1, 2, 2, 2, 2], count))
        bursts["kind"] = random.choice([INCR] * 12 + [FIXED, FIXED, 2, 3], count)
        return bursts, targets

    def _target(self) -> int:
        """A byte address of the window: mostly of a space, its padding and what lies behind its end included."""
        random, config = self.random, self.config
        if random.random() < 0.1:
            return int(random.integers(0, 1 << AXI_BITS))
        space = Space(int(random.integers(0, len(Space))))
        end = lines(space, config)
        line = int(random.choice([0, end - 1, *random.integers(0, end, 2)]))
        tile = int(random.integers(0, config.tiles)) if SPACE_TABLE[space].per_tile else 0
        beyond = 4 * pitch(space) if random.random() < 0.1 else 0
        return window_address(space, config, line, 0, tile) + beyond + int(random.integers(0, 4 * pitch(space)))

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
            memory[index] = int(memory[index]) & ~_mask(strobe) | word & _mask(strobe)
        return True

    def _some(self) -> int:
        """How many transfers to have under way at once."""
        count = min(self.left, int(self.random.choice([1, 2, 6, 12])))
        self.left -= count
        return count

    def _pauses(self) -> int:
        """Seed of the pauses in transfers, or 0 for none."""
        return int(self.random.integers(1, 1 << 31)) if self.random.random() < 0.7 else 0

    @staticmethod
    def _ended(problem: int) -> None:
        assert problem == 0, {-1: "a transfer was not answered", -2: "answers came in a wrong order"}[problem]


def _addresses(target: int, burst: np.void) -> list[int]:
    """Addresses of the beats of a burst. It stays in its page, and all but the first are multiples of the size."""
    found, step = [target], 0 if burst["kind"] == FIXED else 1 << int(burst["size"]) % 4
    for _ in range(int(burst["count"]) - 1):
        last = found[-1]
        found.append(last if not step else
                     last // PAGE_BYTES * PAGE_BYTES + (last // step + 1) * step % PAGE_BYTES)
    return found


def _refused(burst: np.void) -> bool:
    """Whether all beats must be refused."""
    return bool(burst["size"] > 2 or burst["kind"] > INCR)


def _mask(strobe: int) -> int:
    """Bits of the bytes that are strobed."""
    return sum(0xFF << 8 * n for n in range(4) if strobe >> n & 1)


def _at(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
