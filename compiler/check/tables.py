"""The tables of one command: what its instructions touch, as functions of the arguments, and at given ones."""

from dataclasses import dataclass

import numpy as np

from compiler.check import kernel
from compiler.check.cache import BY_COLUMN, BY_TILE, Kept, Plane
from compiler.check.control import Complaint, Trace
from compiler.check.fields import ACCESSES, BY_SEGMENT, BY_WORD, COUNTS, FIRST_PASS, LAST_PASS, ROWS, Template
from compiler.check.order import Order
from compiler.check.report import Listing, Report
from compiler.check.words import MANY
from hw.config import SCALARS
from hw.image import Image
from hw.isa import Opcode
from hw.timing import latencies

__all__ = ["ACCESS", "COUNT", "LONGEST", "ROW", "Sums", "Tables", "reach"]

LONGEST = (1 << 16) - 1
"""Most iterations of a loop inside an instruction: counts are resolved to 16 bits."""

# Columns by name.
ACCESS = {name: n for n, name in enumerate(ACCESSES)}
ROW = {name: n for n, name in enumerate(ROWS)}
COUNT = {name: n for n, name in enumerate(COUNTS)}


@dataclass
class Sums:
    """Sums of a field and a register for many executed instructions: values ``base + patterns[pattern]``."""

    base: np.ndarray
    pattern: np.ndarray

    def at(self, values: np.ndarray) -> np.ndarray:
        """The sums where the patterns have these values."""
        return self.base + values[self.pattern]


class Tables:
    """The tables of one trace.

    Attributes
    ----------
    table, family : int64 (patterns, points), (patterns,)
        Values of each pattern, and the sequence of whose arguments it is a function.
    instructions : int64 (n, INSTRUCTION_COLUMNS)
        Of the kernel; what depends on arguments is that of the last ones.
    points : list of int64
        For each sequence the points, of one class, at which the tables are resolved.
    """

    def __init__(self, image: Image, trace: Trace, templates: dict[int, Template], order: Order,
                 planes: list[Plane],
                 kept: Kept, listing: Listing, report: Report, complain: Complaint) -> None:
        self.image, self.trace, self.templates, self.order = image, trace, templates, order
        self.planes, self.kept, self.listing, self.report = planes, kept, listing, report
        self.complain = complain
        self.config = image.config
        self.times = latencies(image.config)
        # A last, imaginary instruction for each sequence reads what the command is for, when everything is done.
        self.sequences = trace.sequences
        self.real, self.n = len(trace.address), len(trace.address) + trace.sequences
        self.points = [np.zeros(1, np.int64)] * self.sequences
        self.sizes = np.array([self.config.accumulators, self.config.scratch, self.config.operands,
                               self.config.row_buffer,
                               SCALARS])
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)[:-1]])
        self._instructions()
        self._accesses()
        self._rows()
        self._length()
        self._void()
        self._fixed()
        self._owners()
        self.table = np.stack(trace.patterns.points)
        self.family = np.array(trace.patterns.families)

    # Tables

    def _register(self, k: np.ndarray, number: np.ndarray) -> Sums:
        at = self.trace.snapshot[k]
        return Sums(self.trace.base[at, number], self.trace.pattern[at, number])

    def _column(self, values: dict[int, int]) -> np.ndarray:
        """Values by microcode address, for every executed instruction, and 0 for the last ones."""
        table = np.zeros(len(self.listing), np.int64)
        table[list(values)] = list(values.values())
        return self._and_last(table[self.trace.address])

    def _and_last(self, column: np.ndarray, value: int = 0) -> np.ndarray:
        return np.append(column, [value] * self.sequences)

    def _sum(self, base: dict[int, int], register: dict[int, int]) -> Sums:
        """A field and its register, by microcode address."""
        sums = self._register(np.arange(self.real), self._column(register)[:self.real])
        return Sums(self._column(base) + self._and_last(sums.base), self._and_last(sums.pattern))

    def _field(self, name: str) -> dict[int, int]:
        return {address: t.fields.get(name, 0) for address, t in self.templates.items()}

    def _instructions(self) -> None:
        self.counts = [self._sum({a: t.counts[n][0] for a, t in self.templates.items()},
                                 {a: t.counts[n][1] for a, t in self.templates.items()})
                       for n in range(len(COUNTS))]
        for n, count in enumerate(self.counts):
            count.base[self.real:] = {"two": 2}.get(COUNTS[n], 1)
        self.opcode = self._column({a: int(t.opcode) for a, t in self.templates.items()})
        self.opcode[self.real:] = Opcode.VECTOR
        self.masked = self._column(self._field("mask"))
        self.index = self._sum(self._field("index"), self._field("index_reg"))
        self.length = self._sum({}, {a: t.fields.get("length_reg", 0) for a, t in self.templates.items()})
        ins = self.instructions = np.zeros((self.n, kernel.INSTRUCTION_COLUMNS), np.int64)
        matrix = int((self.order.engine == kernel.MATRIX).sum())
        ins[:, kernel.ENGINE] = self._and_last(self.order.engine, kernel.VECTOR)
        ins[:, kernel.POSITION] = np.append(self.order.place,
                                            self.real - matrix + np.arange(self.sequences))
        ins[:, kernel.COVERS] = self._and_last(self.order.covers, matrix - 1)
        for column, name in ((kernel.FENCE, "fence"), (kernel.CHAIN, "chain"),
                             (kernel.SCALAR_FENCE, "reduce_fence")):
            ins[:, column] = self._column(self._field(name))
            ins[self.real:, column] = name != "chain"
        ins[:, kernel.MASKED] = self.masked
        reduces, begins = self._column(self._field("reduce")), self._column(self._field("reduce_init"))
        ins[:, kernel.REDUCES] = np.where(reduces > 0, np.where(begins > 0, kernel.BEGINS, kernel.CONTINUES), 0)

    def _accesses(self) -> None:
        """One row of `ACCESSES` for every access of every executed instruction, with the sums of its
        addresses."""
        rows: list[tuple[int, ...]] = []
        first: dict[int, int] = {}
        for address, t in self.templates.items():
            first[address] = len(rows)
            rows += t.accesses
        table = np.array(rows, np.int64).reshape(-1, len(ACCESSES))
        many = self._column({a: len(t.accesses) for a, t in self.templates.items()})
        results = self._results()
        last = [access for of_sequence in results for access in of_sequence]
        many[self.real:] = [len(of_sequence) for of_sequence in results]
        ends = np.cumsum(many)
        self.instructions[:, kernel.FIRST_ACCESS], self.instructions[:, kernel.END_ACCESS] = ends - many, ends
        k = self.access_k = np.repeat(np.arange(self.n), many)
        place = np.arange(len(k)) - (ends - many)[k] + self._column(first)[k]
        self.access = np.concatenate([table[place[:len(k) - len(last)]],
                                      np.array(last, np.int64).reshape(-1, len(ACCESSES))])
        self.address = Sums(self.access[:, ACCESS["base"]].copy(), np.zeros(len(k), np.int64))
        inside = k < self.real
        sums = self._register(k[inside], self.access[inside, ACCESS["reg"]])
        self.address.base[inside] += sums.base
        self.address.pattern[inside] = sums.pattern

    def _results(self) -> list[list[tuple[int, ...]]]:
        """Reads of the results of each sequence at the end of the command."""
        if not self.trace.name.startswith(("decode@", "pair@")):
            return [[]] * self.sequences
        first, logits = self.image.logits
        places = [(first, self.image.argmax)]
        if self.sequences == 2 and self.image.second is None:
            self.complain(self.trace.entry.address, "second", "an image with entries for two sequences says where "
                                                              "the results of the second are; this one does not")
        places += [self.image.second or places[0]] * (self.sequences - 1)
        self.counts[COUNT["inner"]].base[self.real:] = -(-logits // self.config.tiles)
        one = COUNT["one"]
        return [[(kernel.SCRATCH, 0, first, 0, one, 0, COUNT["inner"], 1, BY_WORD, kernel.OWN, 0, 0),
                 (kernel.SCALARS, 0, argmax, 0, one, 0, one, 0, BY_WORD, kernel.OWN, 0, 0)]
                for first, argmax in places]

    def _rows(self) -> None:
        """Accesses to the array."""
        with_rows = {a: t for a, t in self.templates.items() if t.rows is not None}
        k = self.row_k = np.flatnonzero(self._column({a: 1 for a in with_rows})).astype(np.int64)
        columns = [self._column({a: t.rows[n] for a, t in with_rows.items() if t.rows})
                   for n in range(len(ROWS))]
        self.row = np.stack([column[k] for column in columns], axis=1)
        sums = self._register(k, self.row[:, ROW["reg"]])
        self.row_sum = Sums(self.row[:, ROW["row"]] + sums.base, sums.pattern)
        self.fetches = self.opcode[k] == Opcode.FETCH
        self.row_stores = np.isin(self.opcode[k], (Opcode.STORE_ROW, Opcode.STORE_COLUMN))

    def _length(self) -> None:
        """Words that the mask leaves: derived patterns, so that they take part in the classes."""
        tiles, patterns = self.config.tiles, self.trace.patterns
        self.live = Sums(np.zeros(self.n, np.int64), np.zeros(self.n, np.int64))
        known: dict[tuple[int, int], tuple[int, int]] = {}
        for k in np.flatnonzero(self.masked).tolist():
            value = int(self.length.base[k]), int(self.length.pattern[k])
            address = int(self.trace.address[k])
            if value[1] < 0 or patterns.range(value)[0] < 0:
                self.complain(address, "length", "a length depends on position and slot and is at least 0; "
                                                 "this one comes from "
                              f"register {self.templates[address].fields['length_reg']}, which does not fit")
                value = (0, 0)
                self.length.pattern[k] = 0
            if value[1] > 0 and (patterns.values(value) > patterns.position + 1).any():
                n = int((patterns.values(value) > patterns.position + 1).argmax())
                self.complain(address, "length", "a length that depends on the position is at most position "
                                                 "+ 1, as many as there "
                              f"are; here it is {int(patterns.values(value)[n])} "
                              f"(position {int(patterns.position[n])}, slot {int(patterns.slot[n])})")
            if value not in known:
                known[value] = patterns.add(-(-patterns.values(value) // tiles), False,
                                            patterns.family(value[1]) or 1)
            self.live.base[k], self.live.pattern[k] = known[value]

    def _void(self) -> None:
        """Products with the cache: lanes of rows by tile, and columns of rows by column, are void beyond the
        length."""
        kinds = np.zeros(self.n, np.int64)
        first = self.row_sum.base
        inside = (self.opcode[self.row_k] == Opcode.MULTIPLY) & (first >= 0) & (first < self.config.rows)
        kinds[self.row_k[inside]] = self.kept.row_kind[first[inside]]
        kind, space = kinds[self.access_k], self.access[:, ACCESS["space"]]
        needs = self.access[:, ACCESS["needs"]]
        needs[(kind == BY_TILE) & (space == kernel.ACCUMULATORS)] |= kernel.VOID
        needs[(kind == BY_COLUMN) & (space == kernel.OPERANDS)] |= kernel.CUT

    def _owners(self) -> None:
        """The sequence whose arguments an instruction depends on, and those of its accesses that choose among
        what a slot keeps."""
        owner, patterns = np.zeros(self.n, np.int64), self.trace.patterns
        families = np.array(patterns.families + patterns.token_families[:0:-1])     # negative numbers from the end
        for name in sorted({name for t in self.templates.values() for name in t.registers}):
            used = {a: t.registers.get(name, 0) for a, t in self.templates.items()
                    if name != "length_reg" or t.fields.get("mask")}
            owner |= families[self._sum({}, used).pattern]
        owner[self.real:] = np.arange(self.sequences) + 1
        self.instructions[:, kernel.OWNER] = self.owner = owner
        self.chooses = (self.address.pattern > 0) & (self.access[:, ACCESS["space"]] == kernel.SCRATCH)

    # Tables at given arguments

    def _where(self, sequence: int = 1, point: int = 0) -> str:
        """The arguments of the walk, those of `sequence` at one of the points of its class."""
        p = self.trace.patterns
        at = [int(points[point if n == sequence else 0]) for n, points in enumerate(self.points, 1)]
        return "; ".join(f"position {int(p.position[n])}, slot {int(p.slot[n])}" for n in at)

    def _values(self) -> np.ndarray:
        """Patterns at the first point of each class that is walked."""
        values: np.ndarray = self.table[:, self.points[0][0]].copy()
        if self.sequences == 2:
            second = self.family == 2
            values[second] = self.table[second, self.points[1][0]]
        return values

    def _counts(self, values: np.ndarray) -> np.ndarray:
        """Counts after resolution, int64 (n, 8); reports those that are too long or not whole blocks."""
        counts = np.stack([count.at(values) for count in self.counts], axis=1)
        counts[:, COUNT["blocks"]] = counts[:, COUNT["inner"]] // self.config.lanes_per_block
        for k, column in np.argwhere((counts < 0) | (counts > LONGEST))[:20].tolist():
            self.complain(self._at(k), "count", f"a loop inside an instruction has 0 to {LONGEST} "
                                                f"iterations; {COUNTS[column]} is "
                          f"{int(counts[k, column])} here ({self._where()})")
        counts = np.clip(counts, 1, LONGEST)
        unit = self.config.lanes_per_block
        for k in np.flatnonzero(self.quantizes & (counts[:, COUNT["inner"]] % unit != 0))[:20].tolist():
            self.complain(self._at(k), "blocks", f"inner is a multiple of 32/T = {unit} when quantizing; it "
                                                 "is "
                          f"{int(counts[k, COUNT['inner']])} here ({self._where()})")
        return counts

    def _at(self, k: int) -> int:
        return int(self.trace.address[k]) if k < self.real else self.trace.halt

    def _resolved(self, counts: np.ndarray, values: np.ndarray) -> np.ndarray:
        """The kernel's accesses, int64 (m, ACCESS_COLUMNS); reports addresses out of range and leaves these
        out."""
        a, k = self.access, self.access_k
        out = self.fixed.copy()
        base = self.address.at(values)
        outer, inner = counts[k, a[:, ACCESS["outer"]]], counts[k, a[:, ACCESS["inner"]]]
        low, high = reach(base, (outer, a[:, ACCESS["outer_step"]]), (inner, a[:, ACCESS["inner_step"]]))
        size = self.sizes[a[:, ACCESS["space"]]]
        bad = (low < 0) | (high >= size)
        for n in np.flatnonzero(bad)[:20].tolist():
            name = MANY[int(a[n, ACCESS["space"]])]
            self.complain(self._at(int(k[n])), f"range {name}", f"{name} are 0 to {int(size[n]) - 1}; this "
                                                                "instruction reaches "
                          f"{int(low[n])} to {int(high[n])} ({self._where()})")
        for n in np.flatnonzero((a[:, ACCESS["even"]] == 1) & (base % 2 == 1))[:20].tolist():
            self.complain(self._at(int(k[n])), "even", "rows of a two-row format fill pairs of "
                                                       "accumulators; acc must be even, it "
                          f"is {int(base[n])} ({self._where()})")
        overlap = self._overlap(a, outer, inner)
        for n in np.flatnonzero(overlap)[:20].tolist():
            self.complain(self._at(int(k[n])), "overlap", "groups of accumulators must lie apart; "
                                                          f"{int(inner[n])} of them at a "
                          f"step of {int(a[n, ACCESS['outer_step']])} overlap ({self._where()})")
        out[:, kernel.BASE], out[:, kernel.OUTER], out[:, kernel.INNER] = base, np.where(bad, 0, outer), inner
        by_lanes, passes_of, at_end, at_last = self.timed
        width = counts[k[by_lanes], COUNT["inner"]]
        out[by_lanes, kernel.TIME_OUTER] = width
        out[at_end, kernel.TIME] = counts[k[at_end], COUNT["inner"]] - 1
        out[passes_of, kernel.TIME_OUTER] = counts[k[passes_of], COUNT["nr"]]
        last = k[at_last]
        rows = np.maximum(counts[last, COUNT["nh"]] * counts[last, COUNT["nr"]], self.times.accumulate)
        out[at_last, kernel.TIME] = (counts[last, COUNT["nj"]] - 1) * rows
        return out

    def _fixed(self) -> None:
        """The columns of the kernel's accesses that no argument changes, and where the others are."""
        a, time = self.access, self.access[:, ACCESS["time"]]
        self.fixed = np.zeros((len(a), kernel.ACCESS_COLUMNS), np.int64)
        for column, name in ((kernel.SPACE, "space"), (kernel.WRITES, "writes"),
                             (kernel.OUTER_STEP, "outer_step"), (kernel.INNER_STEP, "inner_step"),
                             (kernel.NEEDS, "needs"), (kernel.SINGLE, "single")):
            self.fixed[:, column] = a[:, ACCESS[name]]
        self.fixed[:, kernel.TIME_INNER] = np.isin(time, (BY_WORD, FIRST_PASS, LAST_PASS))
        self.timed = tuple(np.flatnonzero(np.isin(time, kinds)) for kinds in (
            (BY_WORD, BY_SEGMENT), (FIRST_PASS, LAST_PASS), (BY_SEGMENT,), (LAST_PASS,)))
        self.quantizes = self._column(self._field("quantize")).astype(bool)

    @staticmethod
    def _overlap(a: np.ndarray, outer: np.ndarray, inner: np.ndarray) -> np.ndarray:
        """Accesses to accumulators whose groups overlap: in part for the lanes, at all for a MULTIPLY's."""
        step = np.abs(a[:, ACCESS["outer_step"]])
        width = inner * np.abs(a[:, ACCESS["inner_step"]])
        of_lanes = (a[:, ACCESS["time"]] == BY_WORD) & (step > 0)
        # The halves of a pair are two accesses whose cells interleave.
        meets = (outer > 1) & (step < width) & (step != 0) | (outer > 1) & (step == 0) & (inner > 0)
        return (a[:, ACCESS["space"]] == kernel.ACCUMULATORS) & meets & (of_lanes | (a[:, ACCESS["time"]] != BY_WORD))

    def _resolve_instructions(self, counts: np.ndarray, values: np.ndarray) -> None:
        ins, nj = self.instructions, counts[:, COUNT["nj"]]
        passes = np.maximum(counts[:, COUNT["nh"]] * counts[:, COUNT["nr"]], self.times.accumulate)
        ins[:, kernel.STEPS] = np.select(
            [self.opcode == Opcode.VECTOR, self.opcode == Opcode.MULTIPLY,
             self.opcode == Opcode.STORE_COLUMN],
            [counts[:, COUNT["outer"]] * counts[:, COUNT["inner"]], nj * passes, nj * self.config.lanes_per_block],
                                         nj)
        index = self.index.at(values)
        ins[:, kernel.INDEX], ins[:, kernel.LIVE] = index, self.live.at(values) - index
        ins[:, kernel.LENGTH_BASE], ins[:, kernel.LENGTH_PATTERN] = self.length.base, self.length.pattern



def reach(base: np.ndarray, *loops: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Least and greatest address of patterns with (count, step) loops."""
    low, high = base, base
    for count, step in loops:
        span = (count - 1) * step
        low, high = low + np.minimum(span, 0), high + np.maximum(span, 0)
    return low, high
