"""Clock, reset, AXI masters and register names for the cocotb tests of the host port."""

import os
import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiMaster

from hw.memorymap import ARGUMENTS, CompletionStatus, Register

__all__ = ["Bench", "OKAY", "SLVERR"]

OKAY, SLVERR = 0, 2


class Bench:
    """The device under test with masters on both ports.

    Attributes
    ----------
    control : AxiLiteMaster, window : AxiMaster
        Their transfers have pauses when `stalls` was called.
    """

    def __init__(self, dut):
        self.dut = dut
        self.control = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "control"), dut.clk, dut.rst)
        self.window = AxiMaster(AxiBus.from_prefix(dut, "window"), dut.clk, dut.rst)
        for master in (self.control, self.window):
            for part in (master.write_if, master.read_if):
                part.log.setLevel("WARNING")

    @classmethod
    async def start(cls, dut):
        """A bench after reset."""
        if "FAULT" in os.environ:
            dut.fault.value = int(os.environ["FAULT"])  # of tests.mutation.hostfaults
        # The masters look at the device from the beginning: before a first reset, that may say anything.
        dut.rst.value = 1
        cocotb.start_soon(Clock(dut.clk, 10, "ns", impl="gpi").start())
        await ClockCycles(dut.clk, 4)
        bench = cls(dut)
        await bench.reset()
        return bench

    async def reset(self):
        self.dut.rst.value = 1
        await ClockCycles(self.dut.clk, 4)
        self.dut.rst.value = 0
        await ClockCycles(self.dut.clk, 3)

    def stalls(self, share):
        """Pause each channel in this share of cycles, differently on each."""
        def pauses(seed):
            generator = random.Random(seed)
            while True:
                yield generator.random() < share
        for master in (self.control, self.window):
            channels = (master.write_if.aw_channel, master.write_if.w_channel, master.write_if.b_channel,
                        master.read_if.ar_channel, master.read_if.r_channel)
            for n, channel in enumerate(channels):
                channel.set_pause_generator(pauses(n))

    async def get(self, register, index=0):
        """A register, which must answer OKAY."""
        found = await self.control.read(register + 4 * index, 4)
        assert found.resp == OKAY, f"{register!r} answered {found.resp!r}"
        return int.from_bytes(found.data, "little")

    async def put(self, register, value, index=0):
        """Write a register; the response."""
        return (await self.control.write(register + 4 * index, value.to_bytes(4, "little"))).resp

    async def command(self, entry=0, arguments=(), tag=0):
        """Queue a command through the registers."""
        for n in range(ARGUMENTS):
            await self.put(Register.ARGUMENT, arguments[n] if n < len(arguments) else 0, n)
        await self.put(Register.ENTRY, entry)
        await self.put(Register.TAG, tag)
        await self.put(Register.DOORBELL, 1)

    async def completion(self):
        """Wait for a completion and take it: (tag, cycles, nonfinite)."""
        for _ in range(10_000):
            status = await self.get(Register.COMPLETION_STATUS)
            if status >> CompletionStatus.VALID & 1:
                break
        else:
            raise AssertionError("no completion came")
        found = (await self.get(Register.COMPLETION_TAG), await self.get(Register.COMPLETION_CYCLES),
                 status >> CompletionStatus.NONFINITE & 1)
        await self.put(Register.COMPLETION_POP, 1)
        return found

    async def words(self, address, count):
        """`count` words of the window, which must exist."""
        found = await self.window.read(address, 4 * count)
        assert found.resp == OKAY, f"{address:#x} answered {found.resp!r}"
        return [int.from_bytes(found.data[4 * n:4 * n + 4], "little") for n in range(count)]

    async def write_words(self, address, words):
        """Write words to the window; the response."""
        return (await self.window.write(address, b"".join(w.to_bytes(4, "little") for w in words))).resp

    async def edge(self):
        await RisingEdge(self.dut.clk)
