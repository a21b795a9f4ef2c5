"""One command for every legal argument: classes of arguments, and for each class ranges, hazards and cache
rows.

Nothing that an instruction touches depends on data, and registers are functions of the arguments
(`compiler.check.control`). Two points (position, slot) are in one class when every count, every address and
every number of unmasked words is the same at both; so what is proved of a class's first point holds for all
of it, and the classes cover all points. Only what depends on the exact length, the tiles of a half masked
word, is looked at point by point. Tokens take part in rows of FETCH, the tile and the half of a row alone, of
which the range is checked. Commands for two sequences have classes of either; `compiler.check.pairs` says
which pairs of classes are walked.
"""

from collections.abc import Iterator

import numpy as np

from compiler.check import kernel, rowreads
from compiler.check.pairs import Widest
from compiler.check.slots import Alike
from compiler.check.tables import COUNT, LONGEST, ROW, Tables, reach
from compiler.check.words import sentence
from hw.isa import Opcode

__all__ = ["Walker"]

_FOUND = 256


class Walker(Tables):
    """The walk over the classes of one trace.

    `walked` has the instructions, accesses, lengths and slots of a walk that others may be like.
    """

    walked: tuple[np.ndarray, np.ndarray, np.ndarray, list[int]] | None = None

    def refuse_mixtures(self) -> bool:
        """Reports instructions that depend on the arguments of both sequences; whether there are none."""
        mixed = np.flatnonzero(self.owner == 3)
        for k in mixed[:20].tolist():
            self.complain(self._at(k), "mixed sequences", "an instruction works for one sequence; registers of this "
                                                          "one depend on the arguments of both")
        return not len(mixed)

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
        counts and steps of `rowreads.mark`, pattern added to the row. For MULTIPLY only those whose rows no
        argument changes either."""
        counts = np.stack([count.base for count in self.counts], axis=1)
        varying = np.stack([count.pattern for count in self.counts], axis=1)
        sizes = np.minimum(np.maximum(self._row_counts(counts), 1), LONGEST)
        fixed = ~self._row_counts(varying).any(axis=1) & ~self.row_stores
        fixed &= self.fetches | (self.row_sum.pattern == 0)
        steps = self.row[:, [ROW["row_j"], ROW["row_h"], ROW["row_r"]]]
        for n in np.flatnonzero(fixed).tolist():
            (nj, nh, nr), (row_j, row_h, row_r) = sizes[n].tolist(), steps[n].tolist()
            yield (self._at(int(self.row_k[n])), bool(self.fetches[n]), int(self.row_sum.base[n]),
                   [nj, row_j, nh, row_h, nr, row_r], int(self.row_sum.pattern[n]))

    # Classes

    def classes(self, sequence: int = 1) -> Iterator[np.ndarray]:
        """Points of each class of a sequence's arguments, ascending."""
        patterns = self.trace.patterns
        used = [self.address.pattern, self.live.pattern, self.index.pattern,
                self.row_sum.pattern[~self.fetches],
                *(count.pattern for count in self.counts),
                np.array([p.pattern for p in self.planes], np.int64)]
        numbers = [int(p) for p in np.unique(np.concatenate(used)) if p > 0 and patterns.family(p) == sequence]
        key = patterns.slot.copy()
        for number in numbers:
            values = patterns.points[number] - patterns.points[number].min()
            _, key = np.unique(key * (values.max() + 1) + values, return_inverse=True)
            key = key.reshape(-1)
        order = np.argsort(key, kind="stable")
        return iter(np.split(order, np.flatnonzero(np.diff(key[order])) + 1))

    def run(self) -> None:
        """Check every class."""
        if not self.prepare():
            return
        position = self.trace.patterns.position
        for sequence in range(1, 1 + self.sequences):
            groups: dict[bytes, list[np.ndarray]] = {}      # classes that differ in their slots, perhaps alone
            for points in self.classes(sequence):
                groups.setdefault(position[points].tobytes(), []).append(points)
            for group in groups.values():
                self.walked = None
                for points in group:
                    self.walk(sequence, points)

    def prepare(self) -> bool:
        """Check what is the same for all classes; whether they can be walked."""
        if not (self.refuse_tokens() and self.refuse_mixtures()):
            return False
        self._fixed_rows()
        self.cells = np.full((int(self.sizes.sum()), kernel.CELL_COLUMNS), -1, np.int32)
        self.fresh = fresh = self.cells.copy()
        fresh[:, kernel.USED] = fresh[:, kernel.IS] = 0
        fresh[:, kernel.DEFINED] = kernel.UNDEFINED
        scratch, scalars = self.starts[kernel.SCRATCH], self.starts[kernel.SCALARS]
        fresh[scratch:scratch + self.config.scratch][self.kept.word >= 0, kernel.DEFINED] = kernel.KEPT
        fresh[scratch:scratch + len(self.image.scratch), kernel.DEFINED] = kernel.CONSTANT
        fresh[scalars:scalars + len(self.image.scalars), kernel.DEFINED] = kernel.CONSTANT
        self.own = np.full(self.config.rows, -1)
        self.expected = np.full(self.n, -1)
        self.alike = Alike(self.kept, self.image.kv.slots, self.chooses, self.owner[self.access_k] - 1)
        self.widest: Widest | None = None
        if self.sequences == 2:
            self._widest()
        return True

    def _widest(self) -> None:
        """The tables of the least and of the greatest arguments of both sequences."""
        patterns, ends = self.trace.patterns, list[tuple[np.ndarray, np.ndarray]]()
        for position in (0, self.trace.entry.context - 1):
            self.points = [np.flatnonzero((patterns.position == position) & (patterns.slot == slot))
                           for slot in (0, 1)]
            values = self._values()
            counts = self._counts(values)
            accesses = self._resolved(counts, values)
            self._resolve_instructions(counts, values)
            ends.append((self.instructions.copy(), accesses))
        self.widest = Widest(ends[0][0][:, kernel.STEPS], *ends[1], self.access_k, self.alike)

    def walk(self, sequence: int, points: np.ndarray, beside: int | None = None) -> None:
        """Check one class of the arguments of `sequence`.

        Beside it another sequence, if there is one, has the footprints of its greatest arguments and the steps
        of its least, or, for comparison, both of the point `beside`.
        """
        patterns, times, ins = self.trace.patterns, self.times, self.instructions
        self.points = [points]
        if self.sequences == 2:
            slot = int(patterns.slot[points[0]] == 0)
            other = np.flatnonzero((patterns.position == self.trace.entry.context - 1) & (patterns.slot == slot))
            self.points.insert(2 - sequence, other if beside is None else np.array([beside]))
        values = self._values()
        counts = self._counts(values)
        accesses = self._resolved(counts, values)
        self._resolve_instructions(counts, values)
        if self.widest is not None:
            for k, kind, problem in self.widest.exceeded(sequence, ins, accesses):
                self.complain(self._at(k), kind, f"{problem} ({self._where()})")
            if beside is None:
                self.widest.shorten(3 - sequence, ins)
        self._cache_rows(counts, values, sequence)
        self.report.classes += 1
        if beside is None and self._like_the_last(accesses):
            return
        self.report.words += self.trace.words
        self.cells[:] = self.fresh
        found, totals = np.zeros((_FOUND, kernel.FOUND_COLUMNS), np.int64), np.zeros(2, np.int64)
        distances = np.array([times.accumulate, times.vector_write, times.scalar_write, times.matrix_done])
        origin = np.zeros(self.n, np.int64)
        of = [(np.ascontiguousarray(self.table[:, p]), patterns.position[p], int(patterns.slot[p[0]]))
              for p in self.points]
        if self.sequences == 1:
            of.append((of[0][0][:, :0].copy(), of[0][1][:0], -1))
        kernel.walk(ins, accesses, self.cells, self.starts, self.sizes, distances, self.kept.word, self.kept.tiles,
                    self.kept.word_slot, of[0][0], of[1][0], of[0][1], of[1][1], np.array([of[0][2], of[1][2]]),
                    self.config.tiles, np.full((5, self.n), -1), np.zeros((5, self.n), np.int64), origin,
                    self.expected, 3 - sequence if self.sequences == 2 and beside is None else 0, found, totals)
        if self.sequences == 2 and beside is None:
            self.expected = origin
        for row in found[1:1 + found[0, 0]].tolist():
            self._say(row, sequence)
        self.report.cells += int(totals[0])
        self.report.pairs += int(totals[1])

    def _like_the_last(self, accesses: np.ndarray) -> bool:
        """Whether the class is one of the group that has been walked, but for the names of kept words."""
        if self.image.kv.slots == 1:
            return False
        patterns = self.trace.patterns
        slots = [int(patterns.slot[points[0]]) for points in self.points]
        used = np.unique(self.length.pattern[self.masked > 0])
        lengths = np.concatenate([self.table[used][:, points].ravel() for points in self.points])
        if self.walked is None:
            if self.alike.keeps_to_kept(accesses):
                self.walked = self.instructions.copy(), accesses, lengths, slots
            return False
        instructions, walked, of_walked, walked_slots = self.walked
        return (np.array_equal(instructions, self.instructions) and np.array_equal(lengths, of_walked)
                and self.alike.same(walked, accesses, walked_slots, slots))

    def _say(self, row: list[int], sequence: int) -> None:
        """Report a violation that the kernel found."""
        kind, k, space, cell, other, point = row
        address = self.listing.name(int(self.trace.address[other])) if 0 <= other < self.real else ""
        text = sentence(kind, space, cell, address, self.times)
        self.complain(self._at(k), f"{kind} {space}", f"{text} ({self._where(sequence, point)})")

    # Rows

    def _row_counts(self, counts: np.ndarray) -> np.ndarray:
        return np.stack([counts[self.row_k, self.row[:, ROW[name]]] for name in ("nj", "nh", "nr")], axis=1)

    def _row_reads(self, base: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Rows of `rowreads.READ_COLUMNS` for every access to the array."""
        nj, nh, nr = self._row_counts(counts).T
        steps = [self.row[:, ROW[name]] for name in ("row_j", "row_h", "row_r")]
        return np.stack([self.row_k, base, nj, steps[0], nh, steps[1], nr, steps[2]], axis=1)

    def _cache_rows(self, counts: np.ndarray, values: np.ndarray, sequence: int) -> None:
        """Rows in range, and rows of the cache stored before they are read, of one sequence's instructions."""
        point = int(self.points[sequence - 1][0])
        fixed = np.where(self.row_sum.pattern > 0, self.row_sum.pattern, 0)
        reads = self._row_reads(self.row_sum.base + values[fixed], counts)
        low, high = reach(reads[:, 1], *((reads[:, n], reads[:, n + 1]) for n in (2, 4, 6)))
        for n in np.flatnonzero((low < 0) | (high >= self.config.rows))[:20].tolist():
            self.complain(self._at(int(self.row_k[n])), "range", "array rows are 0 to "
                                                                 f"{self.config.rows - 1}; this instruction "
                          f"reaches {int(low[n])} to {int(high[n])} ({self._where()})")
        twice = _meets_twice(reads[:, 2], reads[:, 3], reads[:, 6], reads[:, 7])
        for n in np.flatnonzero(twice & (self.opcode[self.row_k] == Opcode.MULTIPLY))[:20].tolist():
            self.complain(self._at(int(self.row_k[n])), "rows twice", "a row meets one operand block of a "
                                                                      "group; steps "
                          f"row_j={int(reads[n, 3])} and row_r={int(reads[n, 7])} meet some twice "
                          f"({self._where()})")
        constant = len(self.image.array)
        wanted = (low >= 0) & (high >= constant) & (high < self.config.rows) & ~self.row_stores
        wanted &= self.owner[self.row_k] != 3 - sequence
        chosen = np.flatnonzero(wanted)
        results = np.zeros((len(chosen), 2), np.int64)
        planes = [p for p in self.planes if not p.scratch and p.family == sequence]
        stored = np.array([p.base + values[p.pattern] for p in planes], np.int64)
        by = np.array([p.k for p in planes], np.int64)
        patterns = self.trace.patterns
        self.report.rows += rowreads.read_rows(
            reads[chosen], stored, by, constant, self.kept.rows, self.kept.row_slot,
            int(patterns.position[point]), int(patterns.slot[point]), self.own, results)
        for n in np.flatnonzero(results[:, 0]).tolist():
            text = {rowreads.EARLY: "which no command of this slot has stored by then",
                    rowreads.OTHER_SLOT: "which belongs to another slot",
                    rowreads.ORDER: "which this command stores only later"}[int(results[n, 0])]
            self.complain(self._at(int(self.row_k[chosen[n]])), "cache", "rows must be stored before they "
                                                                         "are read; this "
                          f"instruction reads row {int(results[n, 1])}, {text} ({self._where()})")

    def _fixed_rows(self) -> None:
        """Rows of FETCH over all points and tokens, once for all classes."""
        patterns, constant = self.trace.patterns, len(self.image.array)
        for n in np.flatnonzero(self.fetches).tolist():
            k = int(self.row_k[n])
            span = [self.counts[COUNT["nj"]].base[k] - 1, self.row[n, ROW["row_j"]]]
            low, high = patterns.range((int(self.row_sum.base[n]), int(self.row_sum.pattern[n])))
            low, high = low + min(0, int(span[0] * span[1])), high + max(0, int(span[0] * span[1]))
            if low < 0 or high >= constant:
                self.complain(self._at(k), "fetch", f"rows to fetch are rows 0 to {constant - 1} of the "
                                                    "image; this instruction "
                              f"reaches {low} to {high}")


def _meets_twice(nj: np.ndarray, row_j: np.ndarray, nr: np.ndarray, row_r: np.ndarray) -> np.ndarray:
    """Whether ``j*row_j + r*row_r`` takes a value twice."""
    common = np.maximum(np.gcd(row_j, row_r), 1)
    # Two points of the lattice coincide when they differ by a multiple of (row_r, -row_j) / common.
    return (np.abs(row_r) // common < nj) & (np.abs(row_j) // common < nr) & ((nj > 1) | (nr > 1))
