"""The core alone under Verilator: a clock, its command port and its host port, from Python."""

import ctypes
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from amaranth import ClockDomain, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Member

from hw.config import HardwareConfig
from hw.core import Core
from hw.emit import SETTINGS, tile_sources, verilog
from hw.memorymap import SPACE_TABLE, Space, line_words, lines
from hw.timing import latencies
from sim.verilator import build_library

__all__ = ["CoreBench", "Registered", "bench_sources"]

_HARNESS = """
#include "Vtop.h"
#include <cstdint>
#include <cstring>

#ifdef COVERAGE
#include "verilated_cov.h"
#endif

static VerilatedContext context;
static Vtop *top;

// Before the first reset: what registers without a value hold, for builds with `--x-initial unique`.
extern "C" void randomize(int seed) { context.randReset(2); context.randSeed(seed); }

// Which of the planted faults is in force; 0 for none.
extern "C" void fault(int number) {
#ifdef FAULTS
    top->fault = number;
#endif
}

extern "C" void coverage(const char *file) {
#ifdef COVERAGE
    context.coveragep()->write(file);
#endif
}

static void tick() {
    top->clk = 0; top->eval();
    top->clk = 1; top->eval();
}

extern "C" void reset() {
    if (!top) top = new Vtop(&context);
    top->start = 0; top->host_read = 0; top->host_write = 0;
    top->rst = 1;
    for (int n = 0; n < 4; n++) tick();
    top->rst = 0;
    for (int n = 0; n < 64; n++) tick();
}

// Lines in order, an access every cycle. `data` has ten words a line.
extern "C" void host(int space, int tile, uint32_t first, uint32_t count, uint32_t *data, uint64_t strobe,
                     int latency) {
    top->host_space = space; top->host_tile = tile;
    for (uint32_t n = 0; n < count + (strobe ? 4 : latency); n++) {
        if (!strobe && n >= (uint32_t)latency) memcpy(data + 10 * (n - latency), &top->host_q[0], 40);
        bool valid = n < count;
        top->host_address = first + n;
        top->host_strobe = strobe;
        top->host_write = valid && strobe; top->host_read = valid && !strobe;
        if (valid && strobe) for (int k = 0; k < 10; k++) top->host_data[k] = data[10 * n + k];
        tick();
    }
    top->host_write = 0; top->host_read = 0;
}

// Cycles by our own count; the core's count and flag in `facts`. 0 if the command did not end.
extern "C" uint64_t run(int entry, const uint32_t *arguments, uint64_t limit, uint32_t *facts) {
    top->entry = entry; top->start = 1;
    for (int k = 0; k < 8; k++) top->arguments[k] = arguments[k];
    tick();
    top->start = 0;
    for (uint64_t n = 1; n <= limit; n++) {
        if (top->done) {
            facts[0] = top->cycles; facts[1] = top->nonfinite; facts[2] = top->busy;
            return n;
        }
        tick();
    }
    return 0;
}

extern "C" void ticks(uint64_t count) { for (uint64_t n = 0; n < count; n++) tick(); }
"""


class Registered(wiring.Component):
    """The core with a registered reset, as in the whole device: a reset that could change at any time costs the
    simulator a second pass."""

    def __init__(self, core: Core, more: Mapping[str, Member] | None = None) -> None:
        self.core = core
        super().__init__({"clk": In(1), "rst": In(1), **core.signature.members, **(more or {})})

    def elaborate(self, platform):
        m = Module()
        m.domains.sync = sync = ClockDomain(local=True)
        m.domains.pin = pin = ClockDomain(local=True, reset_less=True)
        reset = Signal()
        m.d.pin += reset.eq(self.rst)
        m.d.comb += [sync.clk.eq(self.clk), sync.rst.eq(reset), pin.clk.eq(self.clk)]
        m.submodules.core = core = self.core
        for name, member in core.signature.members.items():
            ours, theirs = getattr(self, name), getattr(core, name)
            m.d.comb += theirs.eq(ours) if member.flow == In else ours.eq(theirs)
        return m


def bench_sources(config: HardwareConfig) -> dict[str, str]:
    """Verilog of the core under a clock and a registered reset, module ``top``, by file name."""
    return {**tile_sources(config), "top.v": verilog(Registered(Core(config)), "top")}


def _load(path: Path, *, private: bool) -> ctypes.CDLL:
    """The library, or a copy of it with a state of its own: a process loads one file only once."""
    if not private:
        return ctypes.CDLL(str(path))
    with tempfile.TemporaryDirectory() as folder:
        return ctypes.CDLL(shutil.copy(path, Path(folder) / path.name))


class CoreBench:
    """A verilated core.

    Parameters
    ----------
    config : HardwareConfig
        The device.
    sources : mapping of str to str
        Verilog instead of what `bench_sources` gives: with faults, from gates.
    extra_flags : sequence of str
        Further options of Verilator.
    seed : int
        For builds with ``--x-initial unique``: what registers without a value hold.
    quick : bool
        Compile soon rather than run fast.
    """

    def __init__(self, config: HardwareConfig, sources: Mapping[str, str] | None = None, *,
                 extra_flags: Sequence[str] = (), seed: int | None = None, quick: bool = False) -> None:
        self.config = config
        name = f"core-{config.name}-{config.tiles}"
        covered = any(flag.startswith("--coverage") for flag in extra_flags)
        faulty = sources is not None and "input [15:0] fault;" in sources["top.v"]
        harness = "#define COVERAGE\n" * covered + "#define FAULTS\n" * faulty + _HARNESS
        self.path = build_library(name, bench_sources(config) if sources is None else sources, "top", harness, SETTINGS,
                                  extra_flags=extra_flags, quick=quick)
        self._library = _load(self.path, private=seed is not None)
        if seed is not None:
            self._library.randomize(seed)
        self._library.run.restype = ctypes.c_uint64
        self._latency = latencies(config).host_read
        self.reset()

    def reset(self) -> None:
        """Reset; memories keep their content."""
        self._library.reset()

    def read(self, space: Space) -> np.ndarray:
        """A whole space in host form (docs/machine.md)."""
        tiles = self.config.tiles if SPACE_TABLE[space].per_tile else 1
        out = np.zeros((tiles, lines(space, self.config), 10), np.uint32)
        for tile in range(tiles):
            self._host(space, tile, out[tile], 0)
        if space == Space.OPERANDS:
            pairs = out[0].reshape(-1, 20)
            return pairs[:, :17].copy()
        words = line_words(space)[0]
        out = out[:, :, :words]
        if SPACE_TABLE[space].per_tile:
            out = np.moveaxis(out, 0, 2)
            return np.ascontiguousarray(out[:, 0] if words == 1 else out)
        return out[0, :, 0].copy() if words == 1 else out[0].copy()

    def write(self, space: Space, data: np.ndarray, *, strobe: int = (1 << 40) - 1) -> None:
        """Write a whole space in host form, every line with the same byte enables."""
        tiles = self.config.tiles if SPACE_TABLE[space].per_tile else 1
        rows = lines(space, self.config)
        words = line_words(space)[0]
        padded = np.zeros((tiles, rows, 10), np.uint32)
        if space == Space.OPERANDS:
            padded.reshape(-1, 20)[:, :17] = data
        elif SPACE_TABLE[space].per_tile:
            padded[:, :, :words] = np.moveaxis(data.reshape(rows, words, tiles), 2, 0)
        else:
            padded[0, :, :words] = data.reshape(rows, words)
        for tile in range(tiles):
            self._host(space, tile, padded[tile], strobe)

    def _host(self, space: Space, tile: int, data: np.ndarray, strobe: int) -> None:
        assert data.flags.c_contiguous
        self._library.host(int(space), tile, 0, len(data), ctypes.c_void_p(data.ctypes.data),
                           ctypes.c_uint64(strobe), self._latency)

    def run(self, entry: int = 0, arguments: tuple[int, ...] = (), limit: int = 1_000_000) -> tuple[int, bool]:
        """Run a command; (cycles, nonfinite)."""
        values = np.zeros(8, np.uint32)
        values[:len(arguments)] = arguments
        facts = np.zeros(3, np.uint32)
        cycles = self._library.run(entry, ctypes.c_void_p(values.ctypes.data), ctypes.c_uint64(limit),
                                   ctypes.c_void_p(facts.ctypes.data))
        if not cycles:
            raise RuntimeError(f"the command at {entry} should end within {limit} cycles; it did not")
        assert facts[0] == cycles, f"the core counted {facts[0]} cycles, the bench {cycles}"
        assert not facts[2], "the core is busy although it is done"
        return cycles, bool(facts[1])

    def plant(self, fault: int) -> None:
        """For sources with planted faults: the one in force from now on, 0 for none."""
        self._library.fault(fault)
        self.reset()

    def coverage(self, file: Path) -> None:
        """Write what a build with coverage has counted so far."""
        self._library.coverage(str(file).encode())

    def ticks(self, count: int) -> None:
        """Let the clock run."""
        self._library.ticks(ctypes.c_uint64(count))
