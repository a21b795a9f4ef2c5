"""The whole device under Verilator with the face of `tests.hw.corebench.CoreBench`, for random programs."""

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from hw.config import HardwareConfig
from hw.memorymap import Irq, Register, Space, Status
from sim.rtl import RtlDevice, library

__all__ = ["DeviceBench"]

COVERAGE = """
#include "verilated_cov.h"
extern "C" void wl_coverage(void *handle, const char *file) { device(handle).context.coveragep()->write(file); }
"""


class DeviceBench:
    """A verilated device.

    Parameters
    ----------
    config : HardwareConfig
        The device.
    sources : mapping of str to str or None
        Verilog instead of the usual one: from gates.
    extra_flags : sequence of str
        Further options of Verilator.
    quick : bool
        Compile soon rather than run fast.
    harness : str
        C++ for behind that of `sim.rtl`.

    Attributes
    ----------
    device, simulation : RtlDevice, CDLL
        The device and what simulates it.
    port_words : int
        Words of the largest space that `read` and `write` move through the window port; they reach into the memories
        for larger ones, where they can.
    """

    def __init__(self, config: HardwareConfig, sources: Mapping[str, str] | None = None, *,
                 extra_flags: Sequence[str] = (), quick: bool = False, harness: str = "") -> None:
        self.config = config
        covered = any(flag.startswith("--coverage") for flag in extra_flags)
        self.simulation = library(config, verilog=sources, harness=harness + COVERAGE * covered,
                                  extra_flags=extra_flags, quick=quick)
        self.device = RtlDevice(config, simulation=self.simulation)
        self._tables: dict[Space, np.ndarray] = {}

    @property
    def port_words(self) -> int:
        return self.device.port_words

    @port_words.setter
    def port_words(self, words: int) -> None:
        self.device.port_words = words

    def reset(self) -> None:
        """Stop the command; memories keep their content."""
        self.device.reset()

    def read(self, space: Space) -> np.ndarray:
        """A whole space in host form (docs/machine.md)."""
        return self.device.read(space)

    def write(self, space: Space, data: np.ndarray) -> None:
        """Write a whole space in host form, but not tables and functions that are there: no program changes them."""
        if space in (Space.TABLES, Space.FUNCTIONS):
            if np.array_equal(self._tables.get(space), data):
                return
            self._tables[space] = data.copy()
        self.device.write(space, 0, data)

    def run(self, entry: int = 0, arguments: tuple[int, ...] = (), limit: int = 1_000_000) -> tuple[int, bool]:
        """Run a command through the queues; (cycles, nonfinite). What they and the flags say must fit together."""
        device, tag = self.device, (entry * 77 + 1 + sum(arguments)) & 0xFFFF_FFFF
        device.put(Register.STATUS, 1 << Status.NONFINITE)
        device.submit(entry, arguments, tag)
        device.advance(limit)
        if not device.get(Register.IRQ) >> Irq.COMPLETION & 1:
            raise RuntimeError(f"the command at {entry} should end within {limit} cycles; it did not")
        sticky = bool(device.get(Register.STATUS) >> Status.NONFINITE & 1)
        done = device.poll()
        assert done is not None, "the interrupt came without a completion"
        assert done.tag == tag, f"the completion has tag {done.tag:#x}, the command {tag:#x}"
        assert done.nonfinite == sticky, f"the completion says nonfinite {done.nonfinite}, STATUS {sticky}"
        assert device.poll() is None, "one command left two completions"
        return done.cycles, done.nonfinite

    def coverage(self, file: Path) -> None:
        """Write what a build with coverage has counted so far."""
        self.simulation.wl_coverage(ctypes.c_void_p(self.device.handle), str(file).encode())
