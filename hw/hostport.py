"""What stands between the host's two AXI ports and the core: registers, command and completion queues,
window.

Addresses and bits come from `hw.memorymap`. The parts are small and meet in `HostPort`::

    control --> Registers --> CommandQueue --> Dispatcher --> core (start, done)
                    ^------ CompletionQueue <------'  | grant
    window  --> Window -------------------------------'-----> core (host access)
"""

from amaranth import C, Cat, Module, Mux, ResetInserter, Signal
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from hw import axi
from hw.hostwindow import Window
from hw.memorymap import (
    ARGUMENTS,
    AXI_BITS,
    CONTROL_BITS,
    ID,
    PAGE_BYTES,
    VERSION,
    CompletionStatus,
    Control,
    Irq,
    Register,
    Status,
)

__all__ = [
    "COMMAND", "COMPLETION", "CONTROL_PORT", "Dispatcher", "HostPort", "Queue", "Registers", "WINDOW_PORT",
]

CONTROL_PORT = axi.lite(CONTROL_BITS)
WINDOW_PORT = axi.full(AXI_BITS)

COMMAND = data.StructLayout({
    "entry": 16,
    "tag": 32,
    "arguments": data.ArrayLayout(32, ARGUMENTS),
})
"""A command on its way to the core."""

COMPLETION = data.StructLayout({
    "tag": 32,
    "cycles": 32,
    "nonfinite": 1,
})
"""A finished command on its way to the host."""


class Queue(wiring.Component):
    """First in, first out, of `depth` entries, with a count.

    Latency is two cycles. `count` includes an entry from the cycle after its transfer on `i`.

    Members
    -------
    i : In(stream), o : Out(stream)
    count : Out, 0 to depth
    clear : In(1)
        Forget all entries.
    """

    def __init__(self, shape, *, depth):
        self.shape = shape
        self.depth = depth
        super().__init__({
            "i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape)),
            "count": Out(range(depth + 1)), "clear": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        inner = fifo.SyncFIFOBuffered(width=self.shape.size, depth=self.depth)
        m.submodules.store = ResetInserter(self.clear)(inner)
        m.d.comb += [
            inner.w_data.eq(self.i.payload), inner.w_en.eq(self.i.valid), self.i.ready.eq(inner.w_rdy),
            self.o.payload.as_value().eq(inner.r_data), self.o.valid.eq(inner.r_rdy),
            inner.r_en.eq(self.o.ready), self.count.eq(inner.level),
        ]
        return m


class Registers(wiring.Component):
    """The control registers behind an AXI4-Lite port.

    A write is answered when its address and its data are there, a read when its address is. Byte strobes
    work on ENTRY, TAG, WINDOW and the arguments; elsewhere byte 0 must be strobed for a write to do
    anything. An address without register, a write to a register that has none, and an ENTRY beyond the
    microcode answer SLVERR and change nothing.

    Parameters
    ----------
    config : HardwareConfig

    Members
    -------
    aw, w, b, ar, r : streams of the control port
    commands : Out(stream.Signature(COMMAND))
        One transfer for every doorbell. A doorbell while it is not ready sets REFUSED.
    room, waiting : In
        Free entries of the command queue, entries of the completion queue.
    completions : In(stream.Signature(COMPLETION))
        Shown in the COMPLETION registers, taken by COMPLETION_POP.
    busy, pending : In(1)
        A command runs; commands wait.
    completed, nonfinite : In(1)
        Strobes: a completion was queued; its command met a word that was not finite.
    position, engines : In
        Contents of the registers of these names.
    page : Out
        The WINDOW register.
    reset : Out(1)
        Strobe, one cycle after the write of CONTROL.
    irq : Out(1)
        Interrupt level.
    """

    def __init__(self, config):
        self.config = config
        super().__init__({
            **axi.streams(CONTROL_PORT),
            "commands": Out(stream.Signature(COMMAND)), "room": In(range(config.commands + 1)),
            "completions": In(stream.Signature(COMPLETION)), "waiting": In(range(config.commands + 1)),
            "busy": In(1), "pending": In(1), "completed": In(1), "nonfinite": In(1),
            "position": In(16), "engines": In(32),
            "page": Out(AXI_BITS - (PAGE_BYTES - 1).bit_length()), "reset": Out(1), "irq": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        command = Signal(COMMAND)
        nonfinite, refused = Signal(), Signal()
        irq_enable, irq_completion = Signal(), Signal()
        m.d.comb += self.commands.payload.eq(command)
        m.d.sync += [self.irq.eq(irq_enable & irq_completion), self.reset.eq(0)]

        self._read(m, command, nonfinite, refused, irq_enable, irq_completion)
        self._write(m, command, nonfinite, refused, irq_enable, irq_completion)

        # After the writes: what happens in the same cycle as its acknowledgement must not get lost.
        with m.If(self.completed):
            m.d.sync += irq_completion.eq(1)
        with m.If(self.nonfinite):
            m.d.sync += nonfinite.eq(1)
        with m.If(self.reset):
            m.d.sync += [nonfinite.eq(0), refused.eq(0), irq_completion.eq(0)]
        return m

    def _read(self, m, command, nonfinite, refused, irq_enable, irq_completion):
        done = self.completions.payload
        fingerprint = int(self.config.fingerprint, 16)
        contents = {
            Register.ID: C(ID, 32),
            Register.VERSION: C(VERSION, 32),
            Register.FINGERPRINT_LOW: C(fingerprint & 0xFFFF_FFFF, 32),
            Register.FINGERPRINT_HIGH: C(fingerprint >> 32, 32),
            Register.STATUS: _bits({Status.BUSY: self.busy, Status.PENDING: self.pending,
                                    Status.NONFINITE: nonfinite, Status.REFUSED: refused}),
            Register.CONTROL: _bits({Control.IRQ_ENABLE: irq_enable}),
            Register.IRQ: _bits({Irq.COMPLETION: irq_completion}),
            Register.WINDOW: self.page,
            Register.ENTRY: command.entry,
            Register.TAG: command.tag,
            Register.ROOM: self.room,
            Register.COMPLETIONS: self.waiting,
            Register.COMPLETION_TAG: done.tag,
            Register.COMPLETION_STATUS: _bits({CompletionStatus.VALID: self.completions.valid,
                                               CompletionStatus.NONFINITE: done.nonfinite & self.completions.valid}),
            Register.COMPLETION_CYCLES: done.cycles,
            Register.POSITION: self.position,
            Register.ENGINES: self.engines,
            **{Register.ARGUMENT + 4 * n: command.arguments[n] for n in range(ARGUMENTS)},
        }
        m.d.comb += [self.ar.ready.eq(self.r.ready), self.r.valid.eq(self.ar.valid)]
        with m.Switch(self.ar.payload.araddr[2:]):
            for offset, content in contents.items():
                with m.Case(offset >> 2):
                    m.d.comb += self.r.payload.rdata.eq(content)
            with m.Default():
                m.d.comb += self.r.payload.rresp.eq(axi.Response.SLVERR)

    def _write(self, m, command, nonfinite, refused, irq_enable, irq_completion):
        value, strobe = self.w.payload.wdata, self.w.payload.wstrb
        taken = Signal()
        m.d.comb += [
            self.b.valid.eq(self.aw.valid & self.w.valid), taken.eq(self.b.valid & self.b.ready),
            self.aw.ready.eq(taken), self.w.ready.eq(taken),
        ]
        first = taken & strobe[0]
        stored = {
            Register.TAG: command.tag,
            Register.WINDOW: self.page,
            **{Register.ARGUMENT + 4 * n: command.arguments[n] for n in range(ARGUMENTS)},
        }
        with m.Switch(self.aw.payload.awaddr[2:]):
            for offset, register in stored.items():
                with m.Case(offset >> 2), m.If(taken):
                    m.d.sync += register.eq(_merge(register, value, strobe))
            with m.Case(Register.ENTRY >> 2):
                entry = _merge(command.entry, value, strobe)
                with m.If(entry >= self.config.microcode):
                    m.d.comb += self.b.payload.bresp.eq(axi.Response.SLVERR)
                with m.Elif(taken):
                    m.d.sync += command.entry.eq(entry)
            with m.Case(Register.STATUS >> 2), m.If(first):
                m.d.sync += [nonfinite.eq(nonfinite & ~value[Status.NONFINITE]),
                             refused.eq(refused & ~value[Status.REFUSED])]
            with m.Case(Register.CONTROL >> 2), m.If(first):
                m.d.sync += [self.reset.eq(value[Control.RESET]), irq_enable.eq(value[Control.IRQ_ENABLE])]
            with m.Case(Register.IRQ >> 2), m.If(first):
                m.d.sync += irq_completion.eq(irq_completion & ~value[Irq.COMPLETION])
            with m.Case(Register.DOORBELL >> 2), m.If(first):
                m.d.comb += self.commands.valid.eq(1)
                with m.If(~self.commands.ready):
                    m.d.sync += refused.eq(1)
            with m.Case(Register.COMPLETION_POP >> 2), m.If(first):
                m.d.comb += self.completions.ready.eq(1)
            with m.Default():
                m.d.comb += self.b.payload.bresp.eq(axi.Response.SLVERR)


def _bits(flags):
    """A word of single bits at their numbers."""
    return Cat(flags.get(n, C(0, 1)) for n in range(max(flags) + 1))


def _merge(register, value, strobe):
    """32 bits: the strobed bytes of `value`, the others of `register`."""
    old = Cat(register, C(0, 32))[:32]
    return Cat(Mux(strobe[n], value.word_select(n, 8), old.word_select(n, 8)) for n in range(4))


class Dispatcher(wiring.Component):
    """Starts commands one after the other, and shares the core with the window.

    A command starts when none runs, the completion queue has room for its result, and the window is not at
    work. A window that asks while a command runs is served before the next command. `reset` stops the
    core: it is held in reset for two cycles, and a running command leaves no completion.

    Members
    -------
    commands : In(stream.Signature(COMMAND)), completions : Out(stream.Signature(COMPLETION))
    start : Out(1), entry, arguments : Out
        To the core; valid with `start`, one cycle.
    core_busy, core_done, core_cycles, core_nonfinite : In
        From the core. `core_done` is a strobe; the other two are valid with it.
    core_reset : Out(1)
    window_request : In(1), window_grant : Out(1)
        The grant holds for as long as the request does.
    busy : Out(1)
    """

    def __init__(self):
        super().__init__({
            "commands": In(stream.Signature(COMMAND)), "completions": Out(stream.Signature(COMPLETION)),
            "start": Out(1), "entry": Out(16), "arguments": Out(data.ArrayLayout(32, ARGUMENTS)),
            "core_busy": In(1), "core_done": In(1), "core_cycles": In(32), "core_nonfinite": In(1),
            "core_reset": Out(1), "reset": In(1), "window_request": In(1), "window_grant": Out(1),
            "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        running = Signal()
        tag = Signal(32)
        # The core's reset comes a cycle later than `core_reset`; a start before it ends would be lost.
        resetting = Signal(3)
        command = self.commands.payload

        free = ~running & ~self.core_busy & ~resetting.any() & ~self.reset
        m.d.comb += [
            self.busy.eq(running), self.core_reset.eq(resetting[:2].any()),
            self.window_grant.eq(free & ~self.start), self.commands.ready.eq(self.start),
            self.start.eq(free & self.commands.valid & self.completions.ready & ~self.window_request),
            self.entry.eq(command.entry), self.arguments.eq(command.arguments),
            self.completions.valid.eq(running & self.core_done & ~resetting.any() & ~self.reset),
            self.completions.payload.tag.eq(tag),
            self.completions.payload.cycles.eq(self.core_cycles),
            self.completions.payload.nonfinite.eq(self.core_nonfinite),
        ]
        m.d.sync += resetting.eq(Cat(self.reset, resetting))
        with m.If(self.start):
            m.d.sync += [running.eq(1), tag.eq(command.tag)]
        with m.If(self.core_done | self.reset | resetting.any()):
            m.d.sync += running.eq(0)
        return m


class HostPort(wiring.Component):
    """Both AXI ports and all that is behind them, up to the core.

    Every input from outside ends in a register slice or is registered by the core.

    Parameters
    ----------
    config : HardwareConfig
    read_latency : int
        Cycles from `host_read` to a valid `host_q`.

    Members
    -------
    control_*, window_* : flat AXI4-Lite and AXI4 ports
    irq : Out(1)
    start, entry, arguments, core_busy, core_done, core_cycles, core_nonfinite, core_reset
        As in `Dispatcher`.
    core_position, core_engines : In
        For the registers POSITION and ENGINES.
    host_*
        docs/machine.md, "Host access".
    """

    def __init__(self, config, *, read_latency):
        self.config = config
        self.read_latency = read_latency
        super().__init__({
            **axi.members(CONTROL_PORT, "control"), **axi.members(WINDOW_PORT, "window"), "irq": Out(1),
            "start": Out(1), "entry": Out(16), "arguments": Out(data.ArrayLayout(32, ARGUMENTS)),
            "core_busy": In(1), "core_done": In(1), "core_cycles": In(32), "core_nonfinite": In(1),
            "core_reset": Out(1), "core_position": In(16), "core_engines": In(32),
            "host_space": Out(4), "host_tile": Out(5), "host_address": Out(24), "host_read": Out(1),
            "host_q": In(320), "host_write": Out(1), "host_data": Out(320), "host_strobe": Out(40),
        })

    def elaborate(self, platform):
        m = Module()
        depth = self.config.commands
        m.submodules.registers = registers = Registers(self.config)
        m.submodules.commands = commands = Queue(COMMAND, depth=depth)
        m.submodules.completions = completions = Queue(COMPLETION, depth=depth)
        m.submodules.dispatcher = dispatcher = Dispatcher()
        m.submodules.window = window = Window(self.config, read_latency=self.read_latency)

        axi.slices(m, self, CONTROL_PORT, "control", registers)
        axi.slices(m, self, WINDOW_PORT, "window", window)
        wiring.connect(m, registers.commands, commands.i)
        wiring.connect(m, commands.o, dispatcher.commands)
        wiring.connect(m, dispatcher.completions, completions.i)
        wiring.connect(m, completions.o, registers.completions)

        completed = dispatcher.completions.valid & dispatcher.completions.ready
        m.d.comb += [
            registers.room.eq(depth - commands.count), registers.waiting.eq(completions.count),
            registers.busy.eq(dispatcher.busy), registers.pending.eq(commands.count != 0),
            registers.completed.eq(completed),
            registers.nonfinite.eq(completed & dispatcher.completions.payload.nonfinite),
            registers.position.eq(self.core_position), registers.engines.eq(self.core_engines),
            commands.clear.eq(registers.reset), completions.clear.eq(registers.reset),
            dispatcher.reset.eq(registers.reset), self.irq.eq(registers.irq),
            window.page.eq(registers.page), window.grant.eq(dispatcher.window_grant),
            dispatcher.window_request.eq(window.request),
        ]
        for name in ("start", "entry", "arguments", "core_reset"):
            m.d.comb += getattr(self, name).eq(getattr(dispatcher, name))
        for name in ("core_busy", "core_done", "core_cycles", "core_nonfinite"):
            m.d.comb += getattr(dispatcher, name).eq(getattr(self, name))
        for name in ("space", "tile", "address", "read", "write", "data", "strobe"):
            m.d.comb += getattr(self, f"host_{name}").eq(getattr(window, f"host_{name}"))
        m.d.comb += window.host_q.eq(self.host_q)
        return m
