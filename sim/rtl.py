"""The Verilog of a whole device under Verilator, driven through its own AXI ports from a C++ harness.

Commands and registers go through the ports, as on a board, and so do transfers up to a size that the user chooses.
Larger ones reach the memories in place, which is why a model loads in a second: `RtlDevice` waits until the core is
idle first.
"""

import ctypes
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from hw import top
from hw.config import BLOCK, LINE_WORDS, HardwareConfig
from hw.emit import SETTINGS
from hw.errors import WordlineError
from hw.memorymap import (
    ARGUMENTS,
    ID,
    OPERAND_WORDS,
    PAGE_BYTES,
    SPACE_TABLE,
    CompletionStatus,
    Control,
    Irq,
    Register,
    Space,
    Status,
    line_words,
    pitch,
    window_address,
)
from hw.paths import cache_directory
from sim.verilator import Trace, build_library

__all__ = ["Completion", "RtlDevice", "RtlError", "library", "sources"]

TOP = "wordline"
HARNESS = Path(__file__).with_name("harness.cpp")

BURST_WORDS = 256
"""Longest burst on the window port."""

CHUNK_CYCLES = 50_000
"""Cycles in one call of the harness: between them, Ctrl-C works and `progress` is called."""


class RtlError(WordlineError):
    """The simulated device did not do what its documentation promises."""


@dataclass(frozen=True)
class Completion:
    """What the completion queue says of a command."""

    tag: int
    cycles: int
    nonfinite: bool


def sources(config: HardwareConfig) -> dict[str, str]:
    """Verilog files of a device by name, from the cache if neither hardware description nor configuration
    changed.
    """
    files = sorted(Path(top.__file__).parent.glob("*.py"))
    facts = [config.fingerprint, version("amaranth"), *(f"{f.name} {f.read_text()}" for f in files)]
    key = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    place = cache_directory() / "verilog" / f"{config.fingerprint}-{key}.json"
    if place.exists():
        return json.loads(place.read_text())
    texts = top.sources(config, TOP)
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = place.with_suffix(".draft")
    draft.write_text(json.dumps(texts))
    draft.rename(place)
    return texts


def library(config: HardwareConfig, *, trace: Trace = "", progress: Callable[[int, int], None] | None = None,
            verilog: Mapping[str, str] | None = None, harness: str = "", extra_flags: Sequence[str] = (),
            quick: bool = False) -> ctypes.CDLL:
    """The simulation of a device as a loaded library; built when it is not in the cache.

    Other `verilog` than `sources` may describe the same device, from gates for instance. `harness` is C++ to go behind
    that of `HARNESS`; the other two are as in `build_library`.
    """
    path = build_library(f"wordline-{config.name}", sources(config) if verilog is None else verilog, TOP,
                         HARNESS.read_text() + harness, SETTINGS, trace=trace, progress=progress,
                         extra_flags=extra_flags, quick=quick)
    lib = ctypes.CDLL(str(path))
    word, long, handle, text = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_char_p
    words = np.ctypeslib.ndpointer(np.uint32, flags="C_CONTIGUOUS")
    for name, result, *arguments in (
        ("wl_open", handle), ("wl_close", None, handle), ("wl_cycles", long, handle),
        ("wl_trace", ctypes.c_int, handle, text), ("wl_advance", long, handle, long),
        ("wl_register_write", ctypes.c_int, handle, word, word),
        ("wl_register_read", ctypes.c_int, handle, word, ctypes.POINTER(word)),
        ("wl_window_write", ctypes.c_int, handle, long, word, words),
        ("wl_window_read", ctypes.c_int, handle, long, word, words),
        ("wl_memory", handle, handle, text, ctypes.POINTER(word), ctypes.POINTER(word)),
        ("wl_memories", ctypes.c_size_t, handle, text, ctypes.c_size_t),
        ("wl_gather", None, ctypes.POINTER(handle), word, long, word, words),
        ("wl_scatter", None, ctypes.POINTER(handle), word, long, word, words),
    ):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


@dataclass(frozen=True)
class _Memory:
    """Copies of one memory of the design, in place: an address for each, entries and 32-bit words of an
    entry.
    """

    addresses: tuple[int, ...]
    entries: int
    words: int


class RtlDevice:
    """A device in simulation.

    Parameters
    ----------
    config : HardwareConfig
        Up to 32 tiles. Building takes a minute or so the first time, and is cached.
    trace : Path or None
        Where to write a waveform (``.fst`` or ``.vcd``); tracing makes a build of its own, and is slow.
    progress : callable or None
        Called with (done, total) C++ files while building.
    port_words : int
        Words of the largest transfer that goes through the window port. Scalars, registers, tables and functions have
        no other way.
    simulation : CDLL or None
        A `library` of this configuration that was built otherwise.

    Raises `sim.verilator.ToolMissing` when the build needs a program that is not installed.
    """

    def __init__(self, config: HardwareConfig, *, trace: Path | None = None,
                 progress: Callable[[int, int], None] | None = None, port_words: int = 0,
                 simulation: ctypes.CDLL | None = None) -> None:
        self.config = config
        self.port_words = port_words
        kind: Trace = "" if trace is None else "vcd" if trace.suffix == ".vcd" else "fst"
        self._lib = library(config, trace=kind, progress=progress) if simulation is None else simulation
        self._handle = self._lib.wl_open()
        if trace is not None:
            self._lib.wl_trace(self._handle, str(trace).encode())
        tiles = [f"tile_{n}." for n in range(config.tiles)]
        self._array = self._memory([f"{t}array" for t in tiles])
        self._scratch = self._memory([f"{t}scratch" for t in tiles])
        self._row_buffer = self._memory([f"{t}row_buffer" for t in tiles])
        self._banks = [self._memory([f"{t}accumulators_{bank}" for t in tiles]) for bank in ("even", "odd")]
        self._microcode = self._memory(["microcode"])
        self._integers = self._memory(["operands.integers"])
        self._facts = self._memory(["operands.facts"])
        found = self.get(Register.FINGERPRINT_LOW) | self.get(Register.FINGERPRINT_HIGH) << 32
        if self.get(Register.ID) != ID or f"{found:016x}" != config.fingerprint:
            raise RtlError(f"a device of configuration {config.fingerprint} was wanted; the simulation says "
                           f"{found:016x}: clear the cache in {cache_directory()}")
        self.put(Register.CONTROL, 1 << Control.IRQ_ENABLE)

    def __repr__(self) -> str:
        return f"RtlDevice({self.config!r})"

    def close(self) -> None:
        """Free the simulation."""
        if self._handle is not None:
            self._lib.wl_close(self._handle)
            self._handle = None

    # Registers and commands
    # ---------------------------------------------------------------------------------------

    @property
    def handle(self) -> int:
        """What functions of the simulation take for this device."""
        return self._handle

    @property
    def cycles(self) -> int:
        """Clock cycles since power-up."""
        return self._lib.wl_cycles(self._handle)

    def get(self, register: int) -> int:
        """Content of a control register."""
        value = ctypes.c_uint32()
        self._answered(self._lib.wl_register_read(self._handle, register, value), "read of", register)
        return value.value

    def put(self, register: int, value: int) -> None:
        """Write a control register."""
        self._answered(self._lib.wl_register_write(self._handle, register, value), f"write of {value} to", register)

    def submit(self, entry: int, arguments: Sequence[int] = (), tag: int = 0) -> bool:
        """Queue a command; False when the queue is full."""
        if not self.get(Register.ROOM):
            return False
        for n in range(ARGUMENTS):
            self.put(Register.ARGUMENT + 4 * n, arguments[n] if n < len(arguments) else 0)
        self.put(Register.ENTRY, entry)
        self.put(Register.TAG, tag)
        self.put(Register.DOORBELL, 1)
        return True

    def poll(self) -> Completion | None:
        """Take the oldest completion, if there is one."""
        self.put(Register.IRQ, 1 << Irq.COMPLETION)
        status = self.get(Register.COMPLETION_STATUS)
        if not status >> CompletionStatus.VALID & 1:
            return None
        done = Completion(self.get(Register.COMPLETION_TAG), self.get(Register.COMPLETION_CYCLES),
                          bool(status >> CompletionStatus.NONFINITE & 1))
        self.put(Register.COMPLETION_POP, 1)
        return done

    def advance(self, cycles: int) -> int:
        """Clock until a command completes, at most `cycles`; the cycles clocked. None when there is no
        command.
        """
        if not self.get(Register.STATUS) & (1 << Status.BUSY | 1 << Status.PENDING):
            return 0
        return self._lib.wl_advance(self._handle, cycles)

    def run(self, entry: int, arguments: Sequence[int] = (), *, timeout_cycles: int = 100_000_000,
            progress: Callable[[int], None] | None = None) -> Completion:
        """Run one command to its end. Raises `RtlError` if it takes more than `timeout_cycles`."""
        self.submit(entry, arguments)
        spent = 0
        while (done := self.poll()) is None:
            if spent >= timeout_cycles:
                raise RtlError(f"the command at {entry} was to end within {timeout_cycles} cycles; it runs "
                               "on\n"
                               f"{self.dump()}")
            self.advance(min(CHUNK_CYCLES, timeout_cycles - spent))
            spent += CHUNK_CYCLES
            if progress is not None:
                progress(spent)
        return done

    def reset(self) -> None:
        """Stop the running command and empty the queues; memories keep their contents."""
        self.put(Register.CONTROL, 1 << Control.RESET | 1 << Control.IRQ_ENABLE)
        self._lib.wl_advance(self._handle, 8)

    def dump(self) -> str:
        """Control registers and integer registers, for the message about a command that hangs."""
        names = (Register.STATUS, Register.ROOM, Register.COMPLETIONS, Register.ENTRY, Register.TAG)
        facts = ", ".join(f"{r.name} {self.get(r):#x}" for r in names)
        arguments = ", ".join(str(self.get(Register.ARGUMENT + 4 * n)) for n in range(ARGUMENTS))
        return f"after {self.cycles} cycles: {facts}; last arguments {arguments}"

    # Spaces
    # -------------------------------------------------------------------------------------------------------

    def read(self, space: Space, first: int = 0, count: int | None = None) -> np.ndarray:
        """Entries of a space, uint32, shaped as docs/machine.md has them."""
        shape = SPACE_TABLE[space].shape(self.config)
        count = shape[0] - first if count is None else count
        self._idle()
        out = np.empty((count, *shape[1:]), np.uint32)
        if self._through_port(space, out):
            return self._read_lines(space, first, out)
        match space:
            case Space.ARRAY | Space.SCRATCH | Space.ROW_BUFFER | Space.MICROCODE:
                self._gather(self._in_place(space), first, out)
            case Space.ACCUMULATORS:
                # The banks hold even and odd accumulators: read whole pairs around the wanted range.
                pairs = (first + count + 1) // 2 - first // 2
                both = np.empty((pairs, 2, self.config.tiles), np.uint32)
                for bank, memory in enumerate(self._banks):
                    half = np.empty((pairs, self.config.tiles), np.uint32)
                    self._gather(memory, first // 2, half)
                    both[:, bank] = half
                out[:] = both.reshape(-1, self.config.tiles)[first % 2:first % 2 + count]
            case Space.OPERANDS:
                self._read_operands(first, out)
        return out

    def write(self, space: Space, first: int, values: np.ndarray) -> None:
        """Entries of a space from `first` on, as `read` gives them."""
        self._idle()
        values = np.ascontiguousarray(values, np.uint32)
        if self._through_port(space, values):
            self._write_lines(space, first, values)
            return
        match space:
            case Space.ARRAY | Space.SCRATCH | Space.ROW_BUFFER | Space.MICROCODE:
                self._scatter(self._in_place(space), first, values)
            case Space.ACCUMULATORS:
                for bank, memory in enumerate(self._banks):
                    skip = (first + bank) % 2
                    self._scatter(memory, (first + skip) // 2, np.ascontiguousarray(values[skip::2]))
            case Space.OPERANDS:
                self._write_operands(first, values)

    def _through_port(self, space: Space, words: np.ndarray) -> bool:
        return words.size <= self.port_words or space in (Space.SCALARS, Space.REGISTERS, Space.TABLES, Space.FUNCTIONS)

    def _in_place(self, space: Space) -> _Memory:
        return {Space.ARRAY: self._array, Space.SCRATCH: self._scratch, Space.ROW_BUFFER: self._row_buffer,
                Space.MICROCODE: self._microcode}[space]

    def _read_operands(self, first: int, out: np.ndarray) -> None:
        bits, count = self.config.activation_bits, len(out)
        words = np.empty((count, self._integers.words), np.uint32)
        self._gather(self._integers, first, words)
        single = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")[:, :BLOCK * bits]
        integers = single.reshape(count, BLOCK, bits) @ (1 << np.arange(bits, dtype=np.int32))
        integers = integers - (integers >> (bits - 1) << bits)
        out[:, :-1] = integers.astype(np.int16).view(np.uint32)
        facts = np.empty((count, 1), np.uint32)
        self._gather(self._facts, first, facts)
        out[:, -1] = facts[:, 0]

    def _write_operands(self, first: int, values: np.ndarray) -> None:
        bits, count = self.config.activation_bits, len(values)
        integers = np.ascontiguousarray(values[:, :OPERAND_WORDS - 1]).view(np.uint16)
        single = (integers[:, :, None] >> np.arange(bits, dtype=np.uint16) & 1).astype(np.uint8)
        packed = np.packbits(single.reshape(count, -1), axis=1, bitorder="little")
        words = np.zeros((count, 4 * self._integers.words), np.uint8)
        words[:, :packed.shape[1]] = packed
        self._scatter(self._integers, first, words.view(np.uint32))
        self._scatter(self._facts, first, np.ascontiguousarray(values[:, -1:] & 0xFF_FFFF))

    def read_window(self, address: int, words: np.ndarray) -> None:
        """Fill `words` from byte address `address` of the window on, through the AXI port."""
        for start, part in _bursts(address, words):
            self._answered(self._lib.wl_window_read(self._handle, start, len(part), part), "read of window", start)

    def write_window(self, address: int, words: np.ndarray) -> None:
        """Write words from byte address `address` of the window on, through the AXI port."""
        for start, part in _bursts(address, np.ascontiguousarray(words, np.uint32)):
            self._answered(self._lib.wl_window_write(self._handle, start, len(part), part), "write of window", start)

    def _read_lines(self, space: Space, first: int, out: np.ndarray) -> np.ndarray:
        """Entries through the window port. An operand block is two lines, all others one."""
        sizes, tiles = line_words(space), self._tiles(space)
        entry = 1 + (space == Space.OPERANDS)
        words = np.empty((len(out), entry, pitch(space)), np.uint32)
        by_tile = out.reshape(len(out), -1, tiles)
        for tile in range(tiles if len(out) else 0):
            self.read_window(window_address(space, self.config, first * entry, tile=tile), words.reshape(-1))
            by_tile[:, :, tile] = np.concatenate([words[:, n, :sizes[n]] for n in range(entry)], axis=1)
        return out

    def _write_lines(self, space: Space, first: int, values: np.ndarray) -> None:
        """The other way round. A burst is one line, since what is between two lines cannot be written."""
        sizes, tiles = line_words(space), self._tiles(space)
        entry = 1 + (space == Space.OPERANDS)
        by_tile = values.reshape(len(values), -1, tiles)
        for tile in range(tiles):
            if sizes[0] == pitch(space) and len(values):  # nothing between them
                address = window_address(space, self.config, first, tile=tile)
                self.write_window(address, by_tile[:, :, tile].reshape(-1))
                continue
            for n in range(len(values)):
                for k, part in enumerate(np.split(by_tile[n, :, tile], [sizes[0]])[:entry]):
                    self.write_window(window_address(space, self.config, (first + n) * entry + k, tile=tile), part)

    def _tiles(self, space: Space) -> int:
        return self.config.tiles if SPACE_TABLE[space].per_tile else 1

    def _idle(self) -> None:
        """Let the device work until no command runs and none can start."""
        while self.get(Register.STATUS) & 1 << Status.BUSY:
            if self._lib.wl_advance(self._handle, CHUNK_CYCLES) == 0:
                # The interrupt is up for a completion that nobody took; it says nothing about this command.
                self.put(Register.IRQ, 1 << Irq.COMPLETION)

    def _answered(self, response: int, what: str, address: int) -> None:
        if response:
            said = "did not answer" if response < 0 else f"answered with AXI response {response}"
            raise RtlError(f"{what} {address:#x}: the device {said}")

    # Memories in place
    # --------------------------------------------------------------------------------------------

    def _memory(self, scopes: Sequence[str]) -> _Memory:
        entries, size = ctypes.c_uint32(), ctypes.c_uint32()
        addresses = []
        for scope in scopes:
            address = self._lib.wl_memory(self._handle, scope.encode(), entries, size)
            if not address:
                text = ctypes.create_string_buffer(1 << 16)
                self._lib.wl_memories(self._handle, text, len(text))
                raise RtlError(f"the design must have a memory {scope!r}; it has\n{text.value.decode()}")
            addresses.append(address)
        return _Memory(tuple(addresses), entries.value, size.value // 4)

    def _places(self, memory: _Memory, first: int) -> ctypes.Array:
        offset = 4 * memory.words * first
        return (ctypes.c_void_p * len(memory.addresses))(*(a + offset for a in memory.addresses))

    def _gather(self, memory: _Memory, first: int, out: np.ndarray) -> None:
        self._lib.wl_gather(self._places(memory, first), len(memory.addresses), len(out), memory.words, out)

    def _scatter(self, memory: _Memory, first: int, values: np.ndarray) -> None:
        self._lib.wl_scatter(self._places(memory, first), len(memory.addresses), len(values), memory.words, values)


def _bursts(address: int, words: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Cut a range of the window into bursts that stay in a page: (address, words)."""
    done = 0
    while done < len(words):
        size = min(len(words) - done, BURST_WORDS, (PAGE_BYTES - address % PAGE_BYTES) // 4)
        yield address, words[done:done + size]
        address, done = address + 4 * size, done + size


assert OPERAND_WORDS == BLOCK // 2 + 1 and LINE_WORDS == line_words(Space.MICROCODE)[0]
