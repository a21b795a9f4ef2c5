"""One command for every legal argument: classes of arguments, and for each class ranges, hazards and cache
rows.

Nothing that an instruction touches depends on data, and registers are functions of the arguments
(`compiler.check_control`). Two points (position, slot) are in one class when every count, every address and
every number of unmasked words is the same at both; so what is proved of a class's first point holds for all
of it, and the classes cover all points. Only what depends on the exact length, the tiles of a half masked
word, is looked at point by point. Tokens take part in rows of FETCH, the tile and the half of a row alone, of
which the range is checked.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from compiler import check_kernel as kernel
from compiler import check_rows
from compiler.check_cache import BY_COLUMN, BY_TILE, Kept, Plane
from compiler.check_control import Complaint, Trace
from compiler.check_fields import ACCESSES, BY_SEGMENT, BY_WORD, COUNTS, FIRST_PASS, LAST_PASS, ROWS, Template
from compiler.check_order import Order
from compiler.check_report import Listing, Report
from compiler.check_words import MANY, sentence
from hw.config import SCALARS
from hw.image import Image
from hw.isa import Opcode
from hw.timing import latencies

__all__ = ["LONGEST", "Walker"]

LONGEST = (1 << 16) - 1
"""Most iterations of a loop inside an instruction: counts are resolved to 16 bits."""

_A = {name: n for n, name in enumerate(ACCESSES)}
_R = {name: n for n, name in enumerate(ROWS)}
_C = {name: n for n, name in enumerate(COUNTS)}
_FOUND = 256


@dataclass
class _Sums:
    """Sums of a field and a register for many executed instructions: values ``base + patterns[pattern]``."""

    base: np.ndarray
    pattern: np.ndarray

    def at(self, values: np.ndarray) -> np.ndarray:
        """The sums where the patterns have these values."""
        return self.base + values[self.pattern]


class Walker:
    """The tables of one trace, and the walk over its classes."""

    def __init__(self, image: Image, trace: Trace, templates: dict[int, Template], order: Order,
                 planes: list[Plane],
                 kept: Kept, listing: Listing, report: Report, complain: Complaint) -> None:
        self.image, self.trace, self.templates, self.order = image, trace, templates, order
        self.planes, self.kept, self.listing, self.report = planes, kept, listing, report
        self.complain = complain
        self.config = image.config
        self.times = latencies(image.config)
        # A last, imaginary instruction reads what the command is for, when everything is done.
        self.n = len(trace.address) + 1
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

    # Tables

    def _register(self, k: np.ndarray, number: np.ndarray) -> _Sums:
        at = self.trace.snapshot[k]
        return _Sums(self.trace.base[at, number], self.trace.pattern[at, number])

    def _column(self, values: dict[int, int]) -> np.ndarray:
        """Values by microcode address, for every executed instruction, and 0 for the last."""
        table = np.zeros(len(self.listing), np.int64)
        table[list(values)] = list(values.values())
        return np.append(table[self.trace.address], 0)

    def _sum(self, base: dict[int, int], register: dict[int, int]) -> _Sums:
        """A field and its register, by microcode address."""
        sums = self._register(np.arange(self.n - 1), self._column(register)[:-1])
        return _Sums(self._column(base) + np.append(sums.base, 0), np.append(sums.pattern, 0))

    def _field(self, name: str) -> dict[int, int]:
        return {address: t.fields.get(name, 0) for address, t in self.templates.items()}

    def _instructions(self) -> None:
        self.counts = [self._sum({a: t.counts[n][0] for a, t in self.templates.items()},
                                 {a: t.counts[n][1] for a, t in self.templates.items()})
                       for n in range(len(COUNTS))]
        for n, count in enumerate(self.counts):
            count.base[-1] = {"two": 2}.get(COUNTS[n], 1)
        self.opcode = self._column({a: int(t.opcode) for a, t in self.templates.items()})
        self.opcode[-1] = Opcode.VECTOR
        self.masked = self._column(self._field("mask"))
        self.index = self._sum(self._field("index"), self._field("index_reg"))
        self.length = self._sum({}, {a: t.fields.get("length_reg", 0) for a, t in self.templates.items()})
        ins = self.instructions = np.zeros((self.n, kernel.INSTRUCTION_COLUMNS), np.int64)
        matrix = int((self.order.engine == kernel.MATRIX).sum())
        ins[:, kernel.ENGINE] = np.append(self.order.engine, kernel.VECTOR)
        ins[:, kernel.POSITION] = np.append(self.order.place, self.n - 1 - matrix)
        ins[:, kernel.COVERS] = np.append(self.order.covers, matrix - 1)
        for column, name in ((kernel.FENCE, "fence"), (kernel.CHAIN, "chain"),
                             (kernel.SCALAR_FENCE, "reduce_fence")):
            ins[:, column] = self._column(self._field(name))
            ins[-1, column] = name != "chain"
        ins[:, kernel.MASKED] = self.masked

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
        last = self._results()
        many[-1] = len(last)
        ends = np.cumsum(many)
        self.instructions[:, kernel.FIRST_ACCESS], self.instructions[:, kernel.END_ACCESS] = ends - many, ends
        k = self.access_k = np.repeat(np.arange(self.n), many)
        place = np.arange(len(k)) - (ends - many)[k] + self._column(first)[k]
        self.access = np.concatenate([table[place[:len(k) - len(last)]],
                                      np.array(last, np.int64).reshape(-1, len(ACCESSES))])
        self.address = _Sums(self.access[:, _A["base"]].copy(), np.zeros(len(k), np.int64))
        inside = k < self.n - 1
        sums = self._register(k[inside], self.access[inside, _A["reg"]])
        self.address.base[inside] += sums.base
        self.address.pattern[inside] = sums.pattern

    def _results(self) -> list[tuple[int, ...]]:
        """Reads of the command's results at its end."""
        if not self.trace.name.startswith("decode@"):
            return []
        first, logits = self.image.logits
        words = -(-logits // self.config.tiles)
        self.counts[_C["inner"]].base[-1] = words
        one = _C["one"]
        return [(kernel.SCRATCH, 0, first, 0, one, 0, _C["inner"], 1, BY_WORD, kernel.OWN, 0, 0),
                (kernel.SCALARS, 0, self.image.argmax, 0, one, 0, one, 0, BY_WORD, kernel.OWN, 0, 0)]

    def _rows(self) -> None:
        """Accesses to the array."""
        with_rows = {a: t for a, t in self.templates.items() if t.rows is not None}
        k = self.row_k = np.flatnonzero(self._column({a: 1 for a in with_rows})).astype(np.int64)
        columns = [self._column({a: t.rows[n] for a, t in with_rows.items() if t.rows})
                   for n in range(len(ROWS))]
        self.row = np.stack([column[k] for column in columns], axis=1)
        sums = self._register(k, self.row[:, _R["reg"]])
        self.row_sum = _Sums(self.row[:, _R["row"]] + sums.base, sums.pattern)
        self.fetches = self.opcode[k] == Opcode.FETCH
        self.row_stores = np.isin(self.opcode[k], (Opcode.STORE_ROW, Opcode.STORE_COLUMN))

    def _length(self) -> None:
        """Words that the mask leaves: derived patterns, so that they take part in the classes."""
        tiles, patterns = self.config.tiles, self.trace.patterns
        self.live = _Sums(np.zeros(self.n, np.int64), np.zeros(self.n, np.int64))
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
                              f"are; here it is {int(patterns.values(value)[n])} ({self._where(n)})")
            if value not in known:
                known[value] = patterns.add(-(-patterns.values(value) // tiles), False)
            self.live.base[k], self.live.pattern[k] = known[value]

    def _void(self) -> None:
        """Products with the cache: lanes of rows by tile, and columns of rows by column, are void beyond the
        length."""
        kinds = np.zeros(self.n, np.int64)
        first = self.row_sum.base
        inside = (self.opcode[self.row_k] == Opcode.MULTIPLY) & (first >= 0) & (first < self.config.rows)
        kinds[self.row_k[inside]] = self.kept.row_kind[first[inside]]
        kind, space = kinds[self.access_k], self.access[:, _A["space"]]
        needs = self.access[:, _A["needs"]]
        needs[(kind == BY_TILE) & (space == kernel.ACCUMULATORS)] |= kernel.VOID
        needs[(kind == BY_COLUMN) & (space == kernel.OPERANDS)] |= kernel.CUT

    # Tokens

    def refuse_tokens(self) -> bool:
        """Reports counts and addresses that depend on the token; whether there are none.

        Only rows of FETCH, tiles and halves may.
        """
        fine = True
        allowed = {"tile_reg", "half_reg", "w_tile_reg", "column_reg"}
        for address, snapshot in dict.fromkeys(zip(self.trace.address.tolist(), self.trace.snapshot.tolist(),
                                                   strict=True)):
            t = self.templates[address]
            for name, register in t.registers.items():
                if self.trace.pattern[snapshot, register] >= 0 or name in allowed:
                    continue
                if not (name == "row_reg" and t.opcode == Opcode.FETCH or name == "length_reg"
                        and not t.fields["mask"]):
                    self.complain(address, "token", "only a row to FETCH, a tile and a half may depend on "
                                                    f"the token; {name} "
                                  f"is register {register}, which does")
                    fine = False
        return fine

    def fixed_reads(self) -> Iterator[tuple[int, bool, int, list[int], int]]:
        """Reads of the array whose size no argument changes: address, whether it is a FETCH, first row, the
        counts and steps of `check_rows.mark`, pattern added to the row. For MULTIPLY only those whose rows no
        argument changes either."""
        counts = np.stack([count.base for count in self.counts], axis=1)
        varying = np.stack([count.pattern for count in self.counts], axis=1)
        sizes = np.minimum(np.maximum(self._row_counts(counts), 1), LONGEST)
        fixed = ~self._row_counts(varying).any(axis=1) & ~self.row_stores
        fixed &= self.fetches | (self.row_sum.pattern == 0)
        steps = self.row[:, [_R["row_j"], _R["row_h"], _R["row_r"]]]
        for n in np.flatnonzero(fixed).tolist():
            (nj, nh, nr), (row_j, row_h, row_r) = sizes[n].tolist(), steps[n].tolist()
            yield (self._at(int(self.row_k[n])), bool(self.fetches[n]), int(self.row_sum.base[n]),
                   [nj, row_j, nh, row_h, nr, row_r], int(self.row_sum.pattern[n]))

    # Classes

    def classes(self) -> Iterator[np.ndarray]:
        """Points of each class, ascending."""
        patterns = self.trace.patterns
        used = [self.address.pattern, self.live.pattern, self.index.pattern,
                self.row_sum.pattern[~self.fetches],
                *(count.pattern for count in self.counts),
                np.array([p.pattern for p in self.planes], np.int64)]
        numbers = [int(p) for p in np.unique(np.concatenate(used)) if p > 0]
        key = patterns.slot.copy()
        for number in numbers:
            values = patterns.points[number] - patterns.points[number].min()
            _, key = np.unique(key * (values.max() + 1) + values, return_inverse=True)
            key = key.reshape(-1)
        order = np.argsort(key, kind="stable")
        return iter(np.split(order, np.flatnonzero(np.diff(key[order])) + 1))

    def run(self) -> None:
        """Check every class."""
        if not self.refuse_tokens():
            return
        self._fixed_rows()
        table = np.stack(self.trace.patterns.points)
        cells = np.full((int(self.sizes.sum()), kernel.CELL_COLUMNS), -1, np.int32)
        fresh = cells.copy()
        fresh[:, kernel.USED] = fresh[:, kernel.IS] = 0
        fresh[:, kernel.DEFINED] = kernel.UNDEFINED
        scratch, scalars = self.starts[kernel.SCRATCH], self.starts[kernel.SCALARS]
        fresh[scratch:scratch + self.config.scratch][self.kept.word >= 0, kernel.DEFINED] = kernel.KEPT
        fresh[scratch:scratch + len(self.image.scratch), kernel.DEFINED] = kernel.CONSTANT
        fresh[scalars:scalars + len(self.image.scalars), kernel.DEFINED] = kernel.CONSTANT
        own = np.full(self.config.rows, -1)
        totals = np.zeros(2, np.int64)
        for points in self.classes():
            self._class(points, table, cells, fresh, own, totals)
        self.report.cells += int(totals[0])
        self.report.pairs += int(totals[1])

    def _class(self, points: np.ndarray, table: np.ndarray, cells: np.ndarray, fresh: np.ndarray,
               own: np.ndarray,
               totals: np.ndarray) -> None:
        patterns, times = self.trace.patterns, self.times
        values, first = table[:, points[0]], int(points[0])
        counts = self._counts(values, first)
        accesses = self._resolved(counts, values, first)
        ins = self.instructions
        passes = np.maximum(counts[:, _C["nh"]] * counts[:, _C["nr"]], times.accumulate)
        nj = counts[:, _C["nj"]]
        ins[:, kernel.STEPS] = np.select(
            [self.opcode == Opcode.VECTOR, self.opcode == Opcode.MULTIPLY,
             self.opcode == Opcode.STORE_COLUMN],
            [counts[:, _C["outer"]] * counts[:, _C["inner"]], nj * passes, nj * self.config.lanes_per_block],
                                         nj)
        index = self.index.at(values)
        ins[:, kernel.INDEX], ins[:, kernel.LIVE] = index, self.live.at(values) - index
        ins[:, kernel.LENGTH_BASE], ins[:, kernel.LENGTH_PATTERN] = self.length.base, self.length.pattern
        cells[:] = fresh
        found = np.zeros((_FOUND, kernel.FOUND_COLUMNS), np.int64)
        distances = np.array([times.accumulate, times.vector_write, times.scalar_write, times.matrix_done])
        kernel.walk(ins, accesses, cells, self.starts, self.sizes, distances, self.kept.word, self.kept.tiles,
                    self.kept.word_slot, np.ascontiguousarray(table[:, points]), patterns.position[points],
                    int(patterns.slot[first]), self.config.tiles, np.full((5, self.n), -1),
                    np.zeros((5, self.n), np.int64),
                    found, totals)
        for row in found[1:1 + found[0, 0]].tolist():
            self._say(row, points)
        self._cache_rows(counts, values, first, own)
        self.report.classes += 1
        self.report.words += self.trace.words

    def _where(self, point: int) -> str:
        p = self.trace.patterns
        return f"position {int(p.position[point])}, slot {int(p.slot[point])}"

    def _say(self, row: list[int], points: np.ndarray) -> None:
        """Report a violation that the kernel found."""
        kind, k, space, cell, other, point = row
        address = self.listing.name(int(self.trace.address[other])) if 0 <= other < self.n - 1 else ""
        text = sentence(kind, space, cell, address, self.times)
        self.complain(self._at(k), f"{kind} {space}", f"{text} ({self._where(int(points[point]))})")

    def _counts(self, values: np.ndarray, point: int) -> np.ndarray:
        """Counts after resolution, int64 (n, 8); reports those that are too long or not whole blocks."""
        counts = np.stack([count.at(values) for count in self.counts], axis=1)
        counts[:, _C["blocks"]] = counts[:, _C["inner"]] // self.config.lanes_per_block
        for k, column in np.argwhere((counts < 0) | (counts > LONGEST))[:20].tolist():
            self.complain(self._at(k), "count", f"a loop inside an instruction has 0 to {LONGEST} "
                                                f"iterations; {COUNTS[column]} is "
                          f"{int(counts[k, column])} here ({self._where(point)})")
        counts = np.clip(counts, 1, LONGEST)
        unit = self.config.lanes_per_block
        for k in np.flatnonzero(self.quantizes & (counts[:, _C["inner"]] % unit != 0))[:20].tolist():
            self.complain(self._at(k), "blocks", f"inner is a multiple of 32/T = {unit} when quantizing; it "
                                                 "is "
                          f"{int(counts[k, _C['inner']])} here ({self._where(point)})")
        return counts

    def _at(self, k: int) -> int:
        return int(self.trace.address[k]) if k < self.n - 1 else self.trace.halt

    def _resolved(self, counts: np.ndarray, values: np.ndarray, point: int) -> np.ndarray:
        """The kernel's accesses, int64 (m, ACCESS_COLUMNS); reports addresses out of range and leaves these
        out."""
        a, k = self.access, self.access_k
        out = self.fixed.copy()
        base = self.address.at(values)
        outer, inner = counts[k, a[:, _A["outer"]]], counts[k, a[:, _A["inner"]]]
        low, high = _reach(base, (outer, a[:, _A["outer_step"]]), (inner, a[:, _A["inner_step"]]))
        size = self.sizes[a[:, _A["space"]]]
        bad = (low < 0) | (high >= size)
        for n in np.flatnonzero(bad)[:20].tolist():
            name = MANY[int(a[n, _A["space"]])]
            self.complain(self._at(int(k[n])), f"range {name}", f"{name} are 0 to {int(size[n]) - 1}; this "
                                                                "instruction reaches "
                          f"{int(low[n])} to {int(high[n])} ({self._where(point)})")
        for n in np.flatnonzero((a[:, _A["even"]] == 1) & (base % 2 == 1))[:20].tolist():
            self.complain(self._at(int(k[n])), "even", "rows of a two-row format fill pairs of "
                                                       "accumulators; acc must be even, it "
                          f"is {int(base[n])} ({self._where(point)})")
        overlap = self._overlap(a, outer, inner)
        for n in np.flatnonzero(overlap)[:20].tolist():
            self.complain(self._at(int(k[n])), "overlap", "groups of accumulators must lie apart; "
                                                          f"{int(inner[n])} of them at a "
                          f"step of {int(a[n, _A['outer_step']])} overlap ({self._where(point)})")
        out[:, kernel.BASE], out[:, kernel.OUTER], out[:, kernel.INNER] = base, np.where(bad, 0, outer), inner
        by_lanes, passes_of, at_end, at_last = self.timed
        width = counts[k[by_lanes], _C["inner"]]
        out[by_lanes, kernel.TIME_OUTER] = width
        out[at_end, kernel.TIME] = counts[k[at_end], _C["inner"]] - 1
        out[passes_of, kernel.TIME_OUTER] = counts[k[passes_of], _C["nr"]]
        last = k[at_last]
        rows = np.maximum(counts[last, _C["nh"]] * counts[last, _C["nr"]], self.times.accumulate)
        out[at_last, kernel.TIME] = (counts[last, _C["nj"]] - 1) * rows
        return out

    def _fixed(self) -> None:
        """The columns of the kernel's accesses that no argument changes, and where the others are."""
        a, time = self.access, self.access[:, _A["time"]]
        self.fixed = np.zeros((len(a), kernel.ACCESS_COLUMNS), np.int64)
        for column, name in ((kernel.SPACE, "space"), (kernel.WRITES, "writes"),
                             (kernel.OUTER_STEP, "outer_step"), (kernel.INNER_STEP, "inner_step"),
                             (kernel.NEEDS, "needs"), (kernel.SINGLE, "single")):
            self.fixed[:, column] = a[:, _A[name]]
        self.fixed[:, kernel.TIME_INNER] = np.isin(time, (BY_WORD, FIRST_PASS, LAST_PASS))
        self.timed = tuple(np.flatnonzero(np.isin(time, kinds)) for kinds in (
            (BY_WORD, BY_SEGMENT), (FIRST_PASS, LAST_PASS), (BY_SEGMENT,), (LAST_PASS,)))
        self.quantizes = self._column(self._field("quantize")).astype(bool)

    @staticmethod
    def _overlap(a: np.ndarray, outer: np.ndarray, inner: np.ndarray) -> np.ndarray:
        """Accesses to accumulators whose groups overlap: in part for the lanes, at all for a MULTIPLY's."""
        step = np.abs(a[:, _A["outer_step"]])
        width = inner * np.abs(a[:, _A["inner_step"]])
        of_lanes = (a[:, _A["time"]] == BY_WORD) & (step > 0)
        # The halves of a pair are two accesses whose cells interleave.
        meets = (outer > 1) & (step < width) & (step != 0) | (outer > 1) & (step == 0) & (inner > 0)
        return (a[:, _A["space"]] == kernel.ACCUMULATORS) & meets & (of_lanes | (a[:, _A["time"]] != BY_WORD))

    # Rows

    def _row_counts(self, counts: np.ndarray) -> np.ndarray:
        return np.stack([counts[self.row_k, self.row[:, _R[name]]] for name in ("nj", "nh", "nr")], axis=1)

    def _row_reads(self, base: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Rows of `check_rows.READ_COLUMNS` for every access to the array."""
        nj, nh, nr = self._row_counts(counts).T
        steps = [self.row[:, _R[name]] for name in ("row_j", "row_h", "row_r")]
        return np.stack([self.row_k, base, nj, steps[0], nh, steps[1], nr, steps[2]], axis=1)

    def _cache_rows(self, counts: np.ndarray, values: np.ndarray, point: int, own: np.ndarray) -> None:
        """Rows in range, and rows of the cache stored before they are read."""
        fixed = np.where(self.row_sum.pattern > 0, self.row_sum.pattern, 0)
        reads = self._row_reads(self.row_sum.base + values[fixed], counts)
        low, high = _reach(reads[:, 1], *((reads[:, n], reads[:, n + 1]) for n in (2, 4, 6)))
        for n in np.flatnonzero((low < 0) | (high >= self.config.rows))[:20].tolist():
            self.complain(self._at(int(self.row_k[n])), "range", "array rows are 0 to "
                                                                 f"{self.config.rows - 1}; this instruction "
                          f"reaches {int(low[n])} to {int(high[n])} ({self._where(point)})")
        twice = _meets_twice(reads[:, 2], reads[:, 3], reads[:, 6], reads[:, 7])
        for n in np.flatnonzero(twice & (self.opcode[self.row_k] == Opcode.MULTIPLY))[:20].tolist():
            self.complain(self._at(int(self.row_k[n])), "rows twice", "a row meets one operand block of a "
                                                                      "group; steps "
                          f"row_j={int(reads[n, 3])} and row_r={int(reads[n, 7])} meet some twice "
                          f"({self._where(point)})")
        constant = len(self.image.array)
        wanted = (low >= 0) & (high >= constant) & (high < self.config.rows) & ~self.row_stores
        chosen = np.flatnonzero(wanted)
        results = np.zeros((len(chosen), 2), np.int64)
        stored = np.array([p.base + values[p.pattern] for p in self.planes if not p.scratch], np.int64)
        by = np.array([p.k for p in self.planes if not p.scratch], np.int64)
        patterns = self.trace.patterns
        self.report.rows += check_rows.read_rows(
            reads[chosen], stored, by, constant, self.kept.rows, self.kept.row_slot,
            int(patterns.position[point]), int(patterns.slot[point]), own, results)
        for n in np.flatnonzero(results[:, 0]).tolist():
            text = {check_rows.EARLY: "which no command of this slot has stored by then",
                    check_rows.OTHER_SLOT: "which belongs to another slot",
                    check_rows.ORDER: "which this command stores only later"}[int(results[n, 0])]
            self.complain(self._at(int(self.row_k[chosen[n]])), "cache", "rows must be stored before they "
                                                                         "are read; this "
                          f"instruction reads row {int(results[n, 1])}, {text} ({self._where(point)})")

    def _fixed_rows(self) -> None:
        """Rows of FETCH over all points and tokens, once for all classes."""
        patterns, constant = self.trace.patterns, len(self.image.array)
        for n in np.flatnonzero(self.fetches).tolist():
            k = int(self.row_k[n])
            span = [self.counts[_C["nj"]].base[k] - 1, self.row[n, _R["row_j"]]]
            low, high = patterns.range((int(self.row_sum.base[n]), int(self.row_sum.pattern[n])))
            low, high = low + min(0, int(span[0] * span[1])), high + max(0, int(span[0] * span[1]))
            if low < 0 or high >= constant:
                self.complain(self._at(k), "fetch", f"rows to fetch are rows 0 to {constant - 1} of the "
                                                    "image; this instruction "
                              f"reaches {low} to {high}")


def _reach(base: np.ndarray, *loops: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Least and greatest address of patterns with (count, step) loops."""
    low, high = base, base
    for count, step in loops:
        span = (count - 1) * step
        low, high = low + np.minimum(span, 0), high + np.maximum(span, 0)
    return low, high


def _meets_twice(nj: np.ndarray, row_j: np.ndarray, nr: np.ndarray, row_r: np.ndarray) -> np.ndarray:
    """Whether ``j*row_j + r*row_r`` takes a value twice."""
    common = np.maximum(np.gcd(row_j, row_r), 1)
    # Two points of the lattice coincide when they differ by a multiple of (row_r, -row_j) / common.
    return (np.abs(row_r) // common < nj) & (np.abs(row_j) // common < nr) & ((nj > 1) | (nr > 1))
