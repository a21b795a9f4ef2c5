"""Clock, driver, monitor and checker that the benches of single units share.

Drivers change inputs while the clock falls, and the monitor looks when everything has settled after that: it sees what
the registers will see at the next rising edge. Models are fed by the monitor, never by the driver.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, FallingEdge, ReadOnly

__all__ = ["Wires", "signed"]

Sample = dict[str, Any]
"""The watched ports in one cycle, unsigned; None for one with an unknown bit."""


def signed(value: int, bits: int) -> int:
    """The two's complement number in the low `bits` of an unsigned one."""
    return value - (1 << bits) if value >> (bits - 1) else value


class Wires:
    """The ports of a unit under a running clock.

    Attributes
    ----------
    seed : int
        Of `random`; every failure names it.
    samples : list of dict
        What the monitor has seen, a dict a cycle, from the first cycle after reset on.
    """

    def __init__(self, dut: Any, seed: int, watched: Iterable[str]) -> None:
        self.dut, self.seed = dut, seed
        self.random = random.Random(seed)
        self.samples: list[Sample] = []
        self._watched = [(name, getattr(dut, name)) for name in watched]
        self._driven: dict[str, int] = {}

    @classmethod
    async def start(cls, dut: Any, seed: int, *, inputs: Mapping[str, int], outputs: Iterable[str]) -> "Wires":
        """Wires after a reset with all inputs (name: bits) at zero, and the monitor at work."""
        wires = cls(dut, seed, [*inputs, *outputs])
        wires.put(**dict.fromkeys(inputs, 0))
        cocotb.start_soon(Clock(dut.clk, 10, "ns", impl="gpi").start())
        dut.rst.value = 1
        await ClockCycles(dut.clk, 3)
        await FallingEdge(dut.clk)
        dut.rst.value = 0
        cocotb.start_soon(wires._monitor())
        await wires.cycle()
        return wires

    def put(self, **values: int) -> None:
        """Change inputs; those not named keep their values."""
        for name, value in values.items():
            if self._driven.get(name) != value:
                self._driven[name] = value
                getattr(self.dut, name).value = value

    def get(self, name: str) -> int:
        """An output, or an input, now."""
        return int(getattr(self.dut, name).value)

    async def cycle(self, count: int = 1) -> None:
        """To the next moment at which inputs may change."""
        for _ in range(count):
            await FallingEdge(self.dut.clk)

    async def drive(self, items: Iterable[Sample], *, gaps: float, pause: Callable[[], Sample]) -> None:
        """Each item for a cycle; before each, with probability `gaps`, pauses of a cycle or more."""
        for item in items:
            while self.random.random() < gaps:
                self.put(**pause())
                await self.cycle()
            self.put(**item)
            await self.cycle()
        self.put(**pause())

    async def _monitor(self) -> None:
        while True:
            await FallingEdge(self.dut.clk)
            await ReadOnly()
            # An output may be unknown while nothing is said of it, as a payload that is not valid.
            self.samples.append({name: _known(handle.value) for name, handle in self._watched})

    def compare(self, wanted: Mapping[int, Sample] | Iterable[tuple[int, Sample]]) -> int:
        """The checker: outputs by cycle, as numbers of samples, against what was seen; how many there were."""
        count = 0
        for cycle, outputs in dict(wanted).items():
            seen = {name: self.samples[cycle][name] for name in outputs}
            assert seen == outputs, (f"seed {self.seed}, cycle {cycle}: wanted {_hex(outputs)}; got {_hex(seen)}; "
                                     f"just before: {[_hex(s) for s in self.samples[max(0, cycle - 6):cycle + 1]]}")
            count += 1
        assert count, f"seed {self.seed}: nothing was compared"
        return count


def _known(value: Any) -> int | None:
    try:
        return int(value)
    except ValueError:
        return None


def _hex(values: Sample) -> str:
    return ", ".join(f"{name} {'unknown' if value is None else hex(value)}" for name, value in values.items())
