"""The core: sequencer, engines, operand buffer, scalars, quantizer, reduction tree and tiles.

Ports, all registered inside:

* `start` (one cycle, only while `busy` is low) with `entry` (16 bits) and `arguments` (8 x 32 bits): a command.
  `busy` rises in the next cycle. `done` is high for one cycle at the end, `busy` is low again in that cycle;
  `cycles`, from the cycle of `start` to that of `done`, and `nonfinite` stand from there until the next command.
* `host_space`, `host_tile`, `host_address` with `host_read` or `host_write` (and `host_data`, `host_strobe`):
  one access of docs/machine.md, "Host access", in every cycle in which no command runs. `host_q` belongs to the
  read `latencies(config).host_read` cycles before.
  `host_strobe` has a bit a byte. In the array every byte can be written alone; elsewhere a 32-bit word is
  written if bit 0 of its four is set; an entry of the tables is written whole. Scratch, accumulators, scalars and
  registers use word 0 alone.

Reset stops everything and keeps the memories.
"""

from amaranth import Array as Choice
from amaranth import C, Cat, ClockDomain, ClockSignal, DomainRenamer, Instance, Module, Mux, ResetSignal, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw import stages
from hw.config import LINE_WORDS, HardwareConfig
from hw.control import Controls
from hw.delay import delay
from hw.fp32 import CANONICAL_NAN, NEGATIVE_ZERO
from hw.isa import FUNCTION_FIELDS, FUNCTIONS, A, B, D, Reduce, RowFormat
from hw.matrix import Matrix
from hw.memorymap import Space
from hw.operands import Operands
from hw.quantizer import Quantizer
from hw.reducer import Reducer
from hw.scalars import Scalars
from hw.sequencer import ARGUMENTS, Sequencer
from hw.tile import LANE_CONTROLS, MATRIX_CONTROLS, tile_ports
from hw.timing import latencies
from hw.vector import Vector

__all__ = ["Core"]

LINE_BITS = 32 * LINE_WORDS
_SHORT_FIELDS = sum(width for name, width, _ in FUNCTION_FIELDS if name not in ("lo", "hi"))
TABLE_FIELDS = (32, 28, 20)
"""Bits of c0, c1, c2 that are kept."""


class Core(wiring.Component):
    """Everything but the host port.

    Timing: `hw.timing`. Tiles are instances of the Verilog module ``tile`` (`hw.emit`).

    Parameters
    ----------
    config : HardwareConfig
        The device; up to `MAX_TILES` tiles.

    Members
    -------
    start, entry, arguments, busy, done, cycles, nonfinite
        Commands; see the module.
    position, engines : Out
        Microcode address of the sequencer and state of both engines, for the host to look at.
    host_space, host_tile, host_address, host_read, host_q, host_write, host_data, host_strobe
        Host access; see the module.
    """

    def __init__(self, config: HardwareConfig) -> None:
        config.require_hardware()
        self.config = config
        super().__init__({
            "start": In(1), "entry": In(16), "arguments": In(data.ArrayLayout(32, ARGUMENTS)),
            "busy": Out(1), "done": Out(1), "cycles": Out(32), "nonfinite": Out(1),
            "position": Out(16), "engines": Out(32),
            "host_space": In(4), "host_tile": In(5), "host_address": In(24),
            "host_read": In(1), "host_q": Out(LINE_BITS),
            "host_write": In(1), "host_data": In(LINE_BITS), "host_strobe": In(4 * LINE_WORDS),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        controls = Controls(config)
        word = {name: Signal(getattr(controls, name), name=name) for name in MATRIX_CONTROLS + LANE_CONTROLS}
        """The control words, each in its stage."""

        m.submodules.sequencer = sequencer = Sequencer(config)
        m.submodules.matrix = matrix = Matrix(config)
        m.submodules.vector = vector = Vector(config)
        m.submodules.operands = operands = Operands(config)
        m.submodules.scalars = scalars = Scalars()
        quantizer = Quantizer(tiles=config.tiles, bits=config.activation_bits,
                              address_width=len(operands.address))
        reducer = Reducer(tiles=config.tiles)
        m.submodules.quantizer = DomainRenamer("quantize")(quantizer)
        m.submodules.reducer = DomainRenamer("reduce")(reducer)

        host, late_host = self._host_request(m)
        self._sleeping_clocks(m, vector.step, host, late_host)
        tiles = self._tiles(m, word, operands, scalars, host)
        self._command(m, sequencer, matrix, vector, quantizer)
        self._matrix_stages(m, word, matrix.step, operands, host)
        self._vector_stages(m, word, vector.step, operands, scalars, quantizer, reducer, tiles, host)
        self._host_tiles(m, word, host)
        self._host_answer(m, word, tiles, sequencer, operands, scalars, host, late_host)
        return m

    # Commands -----------------------------------------------------------------------------------------------------

    def _command(self, m, sequencer, matrix, vector, quantizer):
        start = Signal()
        m.d.sync += start.eq(self.start)
        with m.If(self.start):
            m.d.sync += [sequencer.entry.eq(self.entry), sequencer.arguments.eq(self.arguments)]
        m.d.comb += [
            sequencer.start.eq(start),
            self.busy.eq(start | sequencer.busy),
            self.done.eq(sequencer.done),
            sequencer.quiet.eq(matrix.quiet & vector.quiet),
            matrix.payload.eq(sequencer.matrix), matrix.push.eq(sequencer.matrix_push),
            sequencer.matrix_room.eq(matrix.room),
            vector.payload.eq(sequencer.vector), vector.push.eq(sequencer.vector_push),
            sequencer.vector_room.eq(vector.room),
            matrix.token_i.eq(vector.token_o), vector.token_i.eq(matrix.token_o),
            matrix.clear.eq(start), vector.clear.eq(start),
            self.position.eq(sequencer.position), self.engines.eq(Cat(matrix.state, vector.state)),
        ]
        with m.If(start):
            # The counter is right from the next cycle on, which is the second after that of `start`.
            m.d.sync += [self.cycles.eq(2), self.nonfinite.eq(0)]
        with m.Elif(sequencer.busy):
            m.d.sync += self.cycles.eq(self.cycles + 1)
        with m.If(quantizer.nonfinite):
            m.d.sync += self.nonfinite.eq(1)

    # Matrix side --------------------------------------------------------------------------------------------------

    def _matrix_stages(self, m, word, step, operands, host):
        """Control words of the matrix side, from the engine's step."""
        valid, two = step.valid, step.format != RowFormat.Q8
        store = step.store_row | step.store_column
        first = {name: Signal(word[name].shape(), name=f"{name}_0") for name in MATRIX_CONTROLS}
        m.d.comb += [
            first["array"].address.eq(step.row),
            first["array"].read.eq(valid & (step.multiply | step.fetch)),
            first["array"].write.eq(valid & store),
            first["array"].one.eq(step.store_row),
            first["array"].tile.eq(step.tile),
            first["array"].column.eq(step.store_column),
            first["array"].element.eq(step.element),
            first["array"].strobe.eq(Mux(step.store_column, Cat((C(1, 32) << step.column)[:32], C(-1, 8)), -1)),

            first["row"].format.eq(step.format),
            first["row"].take.eq(valid & step.fetch),
            first["row"].one.eq(step.all),
            first["row"].tile.eq(step.tile),

            first["buffer"].write.eq(valid & step.fetch),
            first["buffer"].entry.eq(step.acc),
            first["buffer"].shared.eq(step.all),
            first["buffer"].strobe.eq(-1),

            first["acc_read"].read.eq(valid & step.multiply),
            first["acc_read"].pair.eq(step.acc[1:]),
            first["acc_add"].init.eq(step.init),
            first["acc_add"].two.eq(two),
            first["acc_write"].even.eq(valid & step.multiply & (two | ~step.acc[0])),
            first["acc_write"].odd.eq(valid & step.multiply & (two | step.acc[0])),
            first["acc_write"].pair.eq(step.acc[1:]),

            # The block is a memory's output in stage ARRAY, where stores need it, and a register in stage ROW.
            operands.column.eq(word["array"].column),
        ]
        m.d.sync += [operands.read.eq(valid & (step.multiply | store)), operands.address.eq(step.block)]
        for name, stage in (("array", stages.ARRAY), ("row", stages.ROW), ("buffer", stages.BUFFER),
                            ("acc_read", stages.ACC_READ), ("acc_add", stages.ACC_ADD),
                            ("acc_write", stages.ACC_WRITE)):
            m.d.sync += word[name].eq(delay(m, first[name], stage - 1, name))

    # Vector side --------------------------------------------------------------------------------------------------

    def _vector_stages(self, m, word, step, operands, scalars, quantizer, reducer, tiles, host):
        """Control words of the vector side, from the engine's step; quantizer and reducer."""
        first = {name: Signal(word[name].shape(), name=f"{name}_0") for name in LANE_CONTROLS}
        late = Signal(data.StructLayout({
            "quantize": 1, "first": 1, "narrow": 1, "given": 1, "block": len(operands.address),
            "reduces": 1, "op": 3, "init": 1, "emit": 1, "index": 32, "dest": 6,
        }))
        m.d.comb += [
            word["read"].read.eq(step.valid | host.read),
            word["read"].x.eq(Mux(host.read, host.address, step.x)),
            word["read"].y.eq(step.y),
            word["read"].pair.eq(Mux(host.read, host.address[1:], step.z[1:])),
            word["read"].entry.eq(Mux(host.read, host.address, step.z)),

            *(first["select"][name].eq(step[name]) for name in ("a", "b", "c", "c_negate", "d", "half", "element",
                                                                "word")),
            first["select"].format.eq(step.row_format),
            first["select"].odd.eq(step.z[0]),
            first["factor"].a_element.eq(step.a == A.ROW_ELEMENT),
            first["factor"].b_a.eq(step.b == B.A),
            first["factor"].d_a.eq(step.d == D.A),
            first["last"].d_e.eq(step.d == D.E),

            first["result"].write.eq(step.write),
            first["result"].one.eq(step.w_single),
            first["result"].tile.eq(step.w_tile),
            first["result"].word.eq(step.w_word),
            first["result"].w_early.eq(step.w_early),
            first["result"].q_early.eq(step.quantize_early),
            first["result"].r_early.eq(step.reduce_early),
            first["result"].absolute.eq(step.absolute),
            first["result"].live.eq(step.live),

            late.quantize.eq(step.quantize), late.first.eq(step.block_first), late.narrow.eq(step.narrow),
            late.given.eq(step.given), late.block.eq(step.block),
            late.reduces.eq(step.reduces), late.op.eq(step.reduce), late.init.eq(step.init), late.emit.eq(step.emit),
            late.index.eq(step.index), late.dest.eq(step.r_dest),
        ]
        neutral = Signal(first["result"].neutral.shape())
        m.d.comb += first["result"].neutral.eq(neutral)
        with m.Switch(step.reduce):
            with m.Case(Reduce.SUM):
                m.d.comb += neutral.eq(NEGATIVE_ZERO >> 21)
            with m.Case(Reduce.MAX, Reduce.ARGMAX):
                m.d.comb += neutral.eq(CANONICAL_NAN >> 21)
        for name, stage in (("select", stages.SELECT), ("factor", stages.FACTOR), ("last", stages.LAST),
                            ("result", stages.RESULT)):
            m.d.lane += word[name].eq(delay(m, first[name], stage - 1, name, "lane"))
        late = delay(m, late, stages.RESULT, "late", "lane")

        m.d.comb += [
            scalars.address[0].eq(Mux(host.read, host.address, step.p)),
            scalars.address[1].eq(step.q),
            scalars.address[2].eq(step.r),
            scalars.address[3].eq(step.scale),
        ]
        self._functions(m, word["apply"], delay(m, step.function, stages.FUNCTION - 1, "function_number", "lane"), host)

        exponent = delay(m, scalars.q[3][23:31], stages.RESULT - stages.SELECT, "given_exponent",
                         "lane")
        m.d.comb += [
            quantizer.valid.eq(late.quantize),
            quantizer.first.eq(late.first),
            *(quantizer.x[n].eq(tile["quantize"]) for n, tile in enumerate(tiles)),
            quantizer.narrow.eq(late.narrow),
            quantizer.given.eq(late.given),
            quantizer.scale.eq(exponent << 23),
            quantizer.address.eq(late.block),
            operands.write.eq(quantizer.o_valid),
            operands.write_address.eq(quantizer.o_address),
            *(operands.q[n].eq(quantizer.o_q[n]) for n in range(len(quantizer.o_q))),
            operands.write_sum.eq(quantizer.o_sum),
            operands.write_exponent.eq(quantizer.o_e),

            reducer.valid.eq(late.reduces),
            *(reducer.x[n].eq(tile["reduce"]) for n, tile in enumerate(tiles)),
            reducer.op.eq(late.op),
            reducer.init.eq(late.init),
            reducer.emit.eq(late.emit),
            reducer.word.eq(late.index),
            reducer.dest.eq(late.dest),
            scalars.write.eq(reducer.o_valid | (host.write & (host.space == Space.SCALARS))),
            scalars.write_address.eq(Mux(host.write, host.address, reducer.o_dest)),
            scalars.data.eq(Mux(host.write, host.data, reducer.o_value)),
            scalars.both.eq(reducer.o_argmax & ~host.write),
            scalars.index.eq(reducer.o_index),
        ]

    def _functions(self, m, apply, number, host):
        """The function table: one descriptor a word, read a stage before it is used."""
        m.submodules.functions = memory = Memory(shape=96, depth=FUNCTIONS, init=[])
        write, read = memory.write_port(granularity=32), memory.read_port(domain="lane")
        self._function_q = read.data
        chosen = host.write & (host.space == Space.FUNCTIONS)
        m.d.comb += [
            write.en.eq(Cat(chosen & host.strobe[4 * n] for n in range(3))),
            write.addr.eq(host.address),
            write.data.eq(Cat(host.data[:_SHORT_FIELDS], C(0, 32 - _SHORT_FIELDS), host.data[32:96])),
            read.addr.eq(Mux(host.read, host.address, number)),
        ]
        offset = 0
        for name, width, _ in FUNCTION_FIELDS:
            if name in ("lo", "hi"):
                offset = 32 if name == "lo" else 64
            m.d.comb += apply[name].eq(read.data[offset:offset + width])
            offset += width

    def _sleeping_clocks(self, m, step, host, later):
        """Domains ``lane``, ``quantize`` and ``reduce``: clocks of what follows a vector step, while it takes."""
        distances = latencies(self.config)
        accessed = self._first.read | self._first.write | host.read | host.write
        accessed |= Cat(fact.read for fact in later).any()
        self._sleeping(m, "lane", distances.vector_write, step.valid, accessed)
        self._sleeping(m, "quantize", distances.vector_done, step.quantize)
        self._sleeping(m, "reduce", distances.scalar_write, step.reduces)

    def _sleeping(self, m, name, distance, begun, accessed=0):
        """Domain `name`, awake while `accessed`, and from `begun` until everything is written after a distance."""
        m.domains += (domain := ClockDomain(name, local=True))
        # One cycle more than it takes, in which what was written is forgotten.
        left = Signal(range(distance + 2), name=f"{name}_left")
        with m.If(begun):
            m.d.sync += left.eq(distance + 1)
        with m.Elif(left != 0):
            m.d.sync += left.eq(left - 1)
        # An edge more after a reset: it takes the reset away, which would swallow the first step.
        awake = begun | (left != 0) | accessed | ResetSignal() | domain.rst
        m.submodules[f"{name}_gate"] = Instance("wordline_gate", i_clk=ClockSignal(), i_enable=awake,
                                                o_gated=domain.clk)
        # With a reset of its own clock, nothing behind the registers depends on the other clock.
        m.domains += (reset := ClockDomain(f"{name}_reset", local=True, reset_less=True))
        m.d.comb += reset.clk.eq(domain.clk)
        m.d[reset.name] += domain.rst.eq(ResetSignal())

    # Tiles --------------------------------------------------------------------------------------------------------

    def _tiles(self, m, word, operands, scalars, host):
        """Instances of the tiles; their outputs by name, a dict each."""
        ports = tile_ports(self.config)
        line, shared = Signal(LINE_BITS), Signal(LINE_BITS)
        tiles = []
        for n in range(self.config.tiles):
            outputs = {name: Signal(member.shape, name=f"{name}_{n}")
                       for name, member in ports.items() if member.flow == Out}
            inputs = {
                "clk": ClockSignal(), "lane_clk": ClockSignal("lane"), "lane": C(n, 5), **word,
                "line": line, "shared": shared, "word": host.data[:32],
                **{f"integer_{k}": value for k, value in enumerate(operands.integers)},
                "sum": operands.sum, "exponent": operands.exponent,
                "p": scalars.q[0], "q": scalars.q[1], "r": scalars.q[2],
            }
            m.submodules[f"tile_{n}"] = Instance(
                "tile",
                **{f"i_{name}": value for name, value in inputs.items()},
                **{f"o_{name}": value for name, value in outputs.items()})
            tiles.append(outputs)

        m.d.comb += line.eq(Mux(host.write, host.data, operands.line))
        self._row = Signal(LINE_BITS)
        # One tile's row, for the others are zero. Only made when it is wanted: it is wide.
        wanted = (word["buffer"].write & word["buffer"].shared) | self._row_wanted
        with m.If(wanted):
            m.d.comb += self._row.eq(_any(tile["row_out"] for tile in tiles))
        m.d.comb += shared.eq(Mux(host.write, host.data, self._row))
        return tiles

    # Host ---------------------------------------------------------------------------------------------------------

    def _host_request(self, m):
        """The host's request one cycle after the input register, in step with the tiles' control words; and later."""
        layout = data.StructLayout({"write": 1, "read": 1, "space": 4, "tile": 5, "address": 24,
                                    "strobe": 4 * LINE_WORDS, "data": LINE_BITS})
        self._first = first = Signal(layout, name="host_0")
        host = Signal(layout, name="host_1")
        m.d.sync += [first.write.eq(self.host_write), first.read.eq(self.host_read),
                     host.write.eq(first.write), host.read.eq(first.read)]
        with m.If(self.host_write | self.host_read):
            m.d.sync += [getattr(first, name).eq(getattr(self, f"host_{name}"))
                         for name in ("space", "tile", "address", "strobe", "data")]
        with m.If(first.write | first.read):
            m.d.sync += [host[name].eq(first[name]) for name in ("space", "tile", "address", "strobe", "data")]
        facts = data.StructLayout({"read": 1, "space": 4, "tile": 5, "odd": 1})
        second, third = Signal(facts, name="host_2"), Signal(facts, name="host_3")
        m.d.sync += [second.read.eq(host.read), second.space.eq(host.space), second.tile.eq(host.tile),
                     second.odd.eq(host.address[0]), third.eq(second)]
        self._row_wanted = third.read
        return host, (second, third)

    def _host_tiles(self, m, word, host):
        """The host's access to the tiles, into the same control words; the engines are idle then."""
        first = self._first
        written = {space: Signal(name=f"host_writes_{space.name.lower()}") for space in Space}
        m.d.comb += [signal.eq(first.write & (first.space == space)) for space, signal in written.items()]
        words = Cat(first.strobe[4 * n] for n in range(LINE_WORDS))
        array, buffer, acc_write, result, tables = (
            word[name] for name in ("array", "buffer", "acc_write", "result", "tables"))
        with m.If(first.write | first.read):
            m.d.sync += [
                array.address.eq(first.address), array.read.eq(first.read), array.write.eq(written[Space.ARRAY]),
                array.one.eq(1), array.tile.eq(first.tile), array.column.eq(0), array.strobe.eq(first.strobe),

                buffer.write.eq(written[Space.ROW_BUFFER]), buffer.entry.eq(first.address), buffer.shared.eq(1),
                buffer.one.eq(1), buffer.tile.eq(first.tile), buffer.strobe.eq(words),

                acc_write.even.eq(written[Space.ACCUMULATORS] & ~first.address[0]),
                acc_write.odd.eq(written[Space.ACCUMULATORS] & first.address[0]),
                acc_write.pair.eq(first.address[1:]), acc_write.host.eq(1), acc_write.tile.eq(first.tile),
            ]
            m.d.lane += [
                result.write.eq(written[Space.SCRATCH]), result.one.eq(1), result.tile.eq(first.tile),
                result.word.eq(first.address), result.host.eq(1),
            ]
        m.d.lane += [
            tables.write.eq(written[Space.TABLES]),
            tables.read.eq(first.read & (first.space == Space.TABLES)),
        ]
        with m.If(written[Space.TABLES] | (first.read & (first.space == Space.TABLES))):
            m.d.lane += [
                tables.entry.eq(first.address),
                tables.data.eq(Cat(first.data[32 * n:32 * n + width] for n, width in enumerate(TABLE_FIELDS))),
            ]
        with m.If(host.read):
            m.d.sync += [
                word["row"].take.eq(1), word["row"].buffer.eq(host.space == Space.ROW_BUFFER),
                word["row"].one.eq(1), word["row"].tile.eq(host.tile),
            ]
            m.d.lane += [
                word["select"].a.eq(Mux(host.space == Space.SCRATCH, A.X, A.ACC)),
                word["select"].odd.eq(host.address[0]),
            ]

    def _host_answer(self, m, word, tiles, sequencer, operands, scalars, host, later):
        second, third = later
        words = Cat(host.strobe[4 * n] for n in range(LINE_WORDS))
        m.d.comb += [
            operands.host_write.eq(host.write & (host.space == Space.OPERANDS)),
            operands.host_read.eq(host.read),
            operands.host_address.eq(host.address),
            operands.host_data.eq(host.data),
            operands.host_strobe.eq(words),
            sequencer.line.eq(host.data), sequencer.line_strobe.eq(words),
            sequencer.line_address.eq(host.address),
            sequencer.microcode_write.eq(host.write & (host.space == Space.MICROCODE)),
            sequencer.microcode_read.eq(host.read),
            sequencer.register_write.eq(host.write & (host.space == Space.REGISTERS)),
        ]
        register_q = Signal(32)
        core_q = Signal(LINE_BITS)
        with m.If(host.read):
            m.d.sync += register_q.eq(sequencer.register_q)
        entry, offset, entry_words = tiles[0]["table_q"], 0, []
        for width in TABLE_FIELDS:
            entry_words.append(Cat(entry[offset:offset + width], entry[offset + width - 1].replicate(32 - width)))
            offset += width
        with m.If(second.read):
            with m.Switch(second.space):
                for space, value in ((Space.OPERANDS, operands.host_q), (Space.SCALARS, scalars.q[0]),
                                     (Space.REGISTERS, register_q), (Space.MICROCODE, sequencer.microcode_q),
                                     (Space.TABLES, Cat(*entry_words)), (Space.FUNCTIONS, self._function_q)):
                    with m.Case(space):
                        m.d.sync += core_q.eq(value)
        with m.If(third.read):
            with m.Switch(third.space):
                with m.Case(Space.ARRAY, Space.ROW_BUFFER):
                    m.d.sync += self.host_q.eq(self._row)
                with m.Case(Space.SCRATCH, Space.ACCUMULATORS):
                    m.d.sync += self.host_q.eq(Choice(tile["a"] for tile in tiles)[third.tile])
                with m.Default():
                    m.d.sync += self.host_q.eq(core_q)


def _any(values):
    """Bitwise or, as a balanced tree."""
    values = list(values)
    while len(values) > 1:
        values = [a | b for a, b in zip(values[::2], values[1::2], strict=True)]
    return values[0]
