"""The sequencer: microcode, integer registers and loops; it hands resolved instructions to the engines."""

from amaranth import C, Cat, Module, Mux, Signal
from amaranth.lib import data, enum, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from hw.config import LINE_WORDS, REGISTERS, HardwareConfig
from hw.isa import CONTROL, MATRIX, VECTOR, Alu, Opcode
from hw.payload import Payloads, field_of
from hw.ram import Ram

__all__ = ["ARGUMENTS", "LOOPS", "Sequencer"]

ARGUMENTS = 8
"""Arguments of a command."""

LOOPS = 4
"""Depth of the loop stack."""


class State(enum.Enum):
    """What the sequencer does in a cycle."""

    IDLE = 0
    LOAD = 1
    """Write the registers, one a cycle."""
    FETCH = 2
    """Read a microcode word."""
    EXECUTE = 3
    """Do what it says; a push or HALT may stay here."""


class Sequencer(wiring.Component):
    """Executes microcode words in order, two cycles each.

    Timing: with `start` in cycle 0, registers are written in cycles 1 to 31 and the first word is read in cycle 32. An
    instruction whose EXECUTE ends in cycle c is at its engine's `push` in c + 1. `done` comes in the cycle after HALT's
    EXECUTE has found both engines quiet.

    Parameters
    ----------
    config : HardwareConfig
        The device.

    Members
    -------
    start, entry, arguments : In
        A command; only while not `busy`.
    busy, done : Out(1)
        A command runs; pulse at its end.
    matrix, matrix_push, matrix_room, vector, vector_push, vector_room
        Instructions to the engines.
    quiet : In(1)
        Neither engine has anything to do, and all results are written.
    line : In(320), line_strobe : In(10), line_address, register_address : In
        Host access to microcode (by words) and registers, while idle.
    microcode_write, microcode_read, register_write : In(1)
        What of it; `microcode_q` follows the read by a cycle, `register_q` the address at once.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        self.payloads = Payloads(config)
        super().__init__({
            "start": In(1), "entry": In(16), "arguments": In(data.ArrayLayout(32, ARGUMENTS)),
            "busy": Out(1), "done": Out(1),
            "matrix": Out(self.payloads.matrix), "matrix_push": Out(1), "matrix_room": In(1),
            "vector": Out(self.payloads.vector), "vector_push": Out(1), "vector_room": In(1),
            "quiet": In(1),
            "line": In(32 * LINE_WORDS), "line_strobe": In(LINE_WORDS), "line_address": In(24),
            "microcode_write": In(1), "microcode_read": In(1), "microcode_q": Out(32 * LINE_WORDS),
            "register_write": In(1), "register_q": Out(32),
            "position": Out(16),
        })

    def elaborate(self, platform):
        m = Module()
        state = Signal(State)
        pc = Signal(bits_for(max(1, self.config.microcode - 1)))

        code = Ram(width=32 * LINE_WORDS, depth=self.config.microcode, strobes=LINE_WORDS, name="microcode")
        m.submodules.microcode = code.instance
        word = code.q[0]
        idle = state == State.IDLE
        m.d.comb += [
            code.read[0].eq((state == State.FETCH) | self.microcode_read),
            code.read_address[0].eq(Mux(idle, self.line_address, pc)),
            code.write.eq(self.microcode_write),
            code.strobe.eq(self.line_strobe),
            code.write_address.eq(self.line_address),
            code.data.eq(self.line),
            self.microcode_q.eq(word),
        ]

        # Registers; one write a cycle. Register 0 is never written.
        m.submodules.registers = registers = Memory(shape=32, depth=REGISTERS, init=[])
        write = registers.write_port()
        ports = {}

        def register(number):
            """The value of a register named by a field; one read port for every field that names one."""
            key = repr(number)
            if key not in ports:
                ports[key] = port = registers.read_port(domain="comb")
                m.d.comb += port.addr.eq(number)
            return ports[key].data

        loading = Signal(range(REGISTERS))
        host_register = registers.read_port(domain="comb")
        m.d.comb += [host_register.addr.eq(self.line_address), self.register_q.eq(host_register.data)]

        # ALU: operands in EXECUTE, result written in the cycle after it.
        alu_write, alu_fn, alu_rd = Signal(), Signal(Alu), Signal(range(REGISTERS))
        alu_a, alu_b, alu_o = Signal(32), Signal(32), Signal(32)
        m.d.sync += alu_write.eq(0)
        with m.Switch(alu_fn):
            for fn, value in ((Alu.ADD, alu_a + alu_b), (Alu.SUB, alu_a - alu_b), (Alu.MUL, alu_a * alu_b),
                              (Alu.SHL, alu_a << alu_b[:5]), (Alu.SHR, alu_a >> alu_b[:5]), (Alu.AND, alu_a & alu_b),
                              (Alu.MIN, Mux(alu_a < alu_b, alu_a, alu_b)),
                              (Alu.MAX, Mux(alu_a < alu_b, alu_b, alu_a))):
                with m.Case(fn):
                    m.d.comb += alu_o.eq(value)
        with m.If(state == State.LOAD):
            values = Cat(self.arguments, C(0, 32 * (REGISTERS - ARGUMENTS)))
            m.d.comb += [write.en.eq(1), write.addr.eq(loading),
                         write.data.eq(values.word_select((loading - 1)[:len(loading)], 32))]
        with m.Elif(idle):
            m.d.comb += [write.en.eq(self.register_write & (self.line_address[:len(loading)] != 0)),
                         write.addr.eq(self.line_address), write.data.eq(self.line[:32])]
        with m.Else():
            m.d.comb += [write.en.eq(alu_write & (alu_rd != 0)), write.addr.eq(alu_rd), write.data.eq(alu_o)]

        # Loops: the innermost first.
        begins = [Signal.like(pc, name=f"loop_begin_{n}") for n in range(LOOPS)]
        lefts = [Signal(32, name=f"loop_left_{n}") for n in range(LOOPS)]

        fields = {f.name: field_of(word, CONTROL, f.name) for f in CONTROL.fields}
        opcode = word[:4]
        is_matrix = (opcode >= Opcode.MULTIPLY) & (opcode < Opcode.VECTOR)
        is_vector = opcode == Opcode.VECTOR
        matrix = self.payloads.resolve(MATRIX, self.payloads.matrix, word, register)
        vector = self.payloads.resolve(VECTOR, self.payloads.vector, word, register)
        execute = state == State.EXECUTE
        m.d.sync += [
            self.matrix_push.eq(execute & is_matrix & self.matrix_room),
            self.vector_push.eq(execute & is_vector & self.vector_room),
            self.done.eq(0),
        ]
        with m.If(execute & is_matrix):
            m.d.sync += [self.matrix.opcode.eq(opcode), *(self.matrix[n].eq(v) for n, v in matrix.items())]
        with m.If(execute & is_vector):
            m.d.sync += [self.vector[n].eq(v) for n, v in vector.items()]

        m.d.comb += self.busy.eq(~idle)
        m.d.sync += self.position.eq(pc)
        with m.Switch(state):
            with m.Case(State.IDLE):
                m.d.sync += [pc.eq(self.entry), loading.eq(1)]
                with m.If(self.start):
                    m.d.sync += state.eq(State.LOAD)
            with m.Case(State.LOAD):
                m.d.sync += loading.eq(loading + 1)
                with m.If(loading == REGISTERS - 1):
                    m.d.sync += state.eq(State.FETCH)
            with m.Case(State.FETCH):
                m.d.sync += state.eq(State.EXECUTE)
            with m.Case(State.EXECUTE):
                with m.If(~(is_matrix & ~self.matrix_room) & ~(is_vector & ~self.vector_room)):
                    m.d.sync += [pc.eq(pc + 1), state.eq(State.FETCH)]
                with m.Switch(opcode):
                    with m.Case(Opcode.ALU):
                        m.d.sync += [
                            alu_write.eq(1), alu_fn.eq(fields["fn"]), alu_rd.eq(fields["rd"]),
                            alu_a.eq(register(fields["ra"])),
                            alu_b.eq(register(fields["rb"]) + fields["imm"]),
                        ]
                    with m.Case(Opcode.LOOP):
                        count = Signal(32, name="loop_count")
                        m.d.comb += count.eq(fields["count"] + register(fields["count_reg"]))
                        m.d.sync += [
                            *(inner.eq(value) for inner, value in zip(begins, [pc + 1, *begins], strict=False)),
                            *(inner.eq(value) for inner, value in
                              zip(lefts, [Mux(count == 0, 1, count), *lefts], strict=False)),
                        ]
                    with m.Case(Opcode.END):
                        with m.If(lefts[0] > 1):
                            m.d.sync += [pc.eq(begins[0]), lefts[0].eq(lefts[0] - 1)]
                        with m.Else():
                            m.d.sync += [
                                *(outer.eq(value) for outer, value in zip(begins, begins[1:], strict=False)),
                                *(outer.eq(value) for outer, value in zip(lefts, lefts[1:], strict=False)),
                            ]
                    with m.Case(Opcode.MULTIPLY, Opcode.FETCH, Opcode.STORE_ROW, Opcode.STORE_COLUMN, Opcode.VECTOR):
                        pass
                    with m.Default():
                        # HALT, and whatever does not exist.
                        m.d.sync += [pc.eq(pc), state.eq(State.EXECUTE)]
                        with m.If(self.quiet):
                            m.d.sync += [state.eq(State.IDLE), self.done.eq(1)]
        return m
