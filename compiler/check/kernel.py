"""The inner loop of the checker: one command's reads and writes, cell by cell, in program order.

Compiled, and free of everything that changes elsewhere: what an instruction touches comes in as tables whose
columns are named here, so that a compiled form kept on disk is never stale.

Results belong to the sequence whose arguments or results take part in them: a word of bits, 1 and 2, in which
0 is neither and 3, a mixture, is a violation.
"""

import numpy as np
from numba import njit

__all__ = ["ACCESS_COLUMNS", "CELL_COLUMNS", "FOUND_COLUMNS", "INSTRUCTION_COLUMNS", "KINDS", "walk"]

ACCUMULATORS, SCRATCH, OPERANDS, ROW_BUFFER, SCALARS = range(5)
"""Spaces whose cells are followed. Each has one engine that writes it."""

MATRIX, VECTOR = 0, 1

# Columns of `instructions`, one row an executed instruction.
(ENGINE, POSITION, STEPS, FENCE, CHAIN, SCALAR_FENCE, COVERS, FIRST_ACCESS, END_ACCESS, MASKED, LIVE, INDEX,
 LENGTH_BASE,
 LENGTH_PATTERN, OWNER, REDUCES) = range(16)
INSTRUCTION_COLUMNS = 16

BEGINS, CONTINUES = 1, 2
"""Values of REDUCES: a reduction afresh, or one that goes on."""

# Columns of `accesses`: cell ``base + o*step_o + i*step_i`` of a space at step ``time + o*time_o +
# i*time_i``.
(SPACE, WRITES, BASE, OUTER, OUTER_STEP, INNER, INNER_STEP, TIME, TIME_OUTER, TIME_INNER, NEEDS,
 SINGLE) = range(12)
ACCESS_COLUMNS = 12

# Bits of `NEEDS`: what a written cell is, and what a read wants of it. Operand blocks of 8 bits, of a given
# scale, with zeros
# beyond a length; cells that this command wrote; accumulators of which lanes beyond a length are void.
NARROW, GIVEN, OWN, CUT, VOID = 1, 2, 4, 8, 16

# Columns of `cells`.
(DEFINED, WRITTEN, WRITTEN_AT, WRITER, READ, READER, FIRST_READER, USED, SELF_READER, SELF_READ_AT,
 IS) = range(11)
CELL_COLUMNS = 11

# Values of DEFINED.
UNDEFINED, CONSTANT, COMPUTED, KEPT = range(4)

(UNWRITTEN, RACE_READ, RACE_WRITE, TOO_SOON, SELF_READ, TWICE, OVERWRITES_CONSTANT, OVERWRITES_KEPT, LOST,
 PARTLY_LOST,
 UNUSED, STALE, HIDDEN, ALL_HIDDEN, NOT_STORABLE, NOT_OWN, KEPT_EARLY, KEPT_OTHER, KEPT_ORDER, STALE_SUM,
 NOT_CUT,
 UNMASKED, MIXED, MIXED_SUM, ELSEWHERE) = range(25)
KINDS = 25
"""Kinds of violation that `walk` finds."""

FOUND_COLUMNS = 6
"""Of a violation: kind, instruction, space, cell, other instruction or -1, index of the point in its
class."""

# Entries of `distances`.
ACCUMULATE, VECTOR_WRITE, SCALAR_WRITE, MATRIX_DONE = range(4)


@njit(cache=True)
def _report(found, flags, kind, k, space, address, other, point):
    """Note a violation once for every (instruction, kind)."""
    if flags[k] >> kind & 1:
        return
    flags[k] |= 1 << kind
    n = found[0, 0]
    if n + 1 < len(found):
        found[0, 0] = n + 1
        found[n + 1, 0], found[n + 1, 1], found[n + 1, 2] = kind, k, space
        found[n + 1, 3], found[n + 1, 4], found[n + 1, 5] = address, other, point


@njit(cache=True)
def _kept(found, flags, k, ins, address, word, live_word, tiles, cell, kept, lengths, positions):
    """A read of a scratch word that earlier commands wrote, one tile each: every live element must be there.

    `kept` (words, T + 1): the latest of the first positions that wrote tiles below n; `lengths` (points,) of
    the instruction at each point of the class, whose `positions` are ascending; `live_word` is the word's
    index as the mask counts.
    """
    if kept[word, tiles] <= positions[0] - 1:
        return
    for n in range(len(positions)):
        live = min(tiles, lengths[n] - live_word * tiles) if ins[MASKED] else tiles
        if live <= 0:
            continue
        latest = kept[word, live]
        if latest > positions[n]:
            _report(found, flags, KEPT_EARLY, k, SCRATCH, address, -1, n)
        elif latest == positions[n] and cell[WRITTEN] < 0:
            _report(found, flags, KEPT_ORDER, k, SCRATCH, address, -1, n)


@njit(cache=True)
def walk(instructions, accesses, cells, starts, sizes, distances, kept_word, kept, owners, patterns, patterns2,
         positions, positions2, slots, tiles,
         lost, used, origin, expected, untimed, found, totals):
    """Check one command for one class of arguments.

    Parameters
    ----------
    instructions, accesses : int64 (n, INSTRUCTION_COLUMNS), (m, ACCESS_COLUMNS)
        In program order; an instruction's reads come before its writes.
    cells : int32 (c, CELL_COLUMNS)
        DEFINED as the command finds it, all else -1, USED and IS 0.
    starts, sizes : int64 (5,)
        First cell and number of cells of each space.
    kept_word : int64 (scratch words,)
        Row of `kept` of a word that outlives commands, else -1.
    kept, owners : int64 (words, T + 1), (words,)
        See `_kept`; the slot a word belongs to.
    patterns, patterns2 : int64 (patterns, points)
        Register values at each point of the class, less a base, for the first and the second sequence.
    positions, positions2 : int64 (points,)
        Argument `position` at each point, ascending; for a sequence all of one slot.
    slots : int64 (2,)
        The slot of each sequence; -1 for a second one that there is not.
    lost, used : int64 (5, n)
        Working space, -1 and 0.
    origin : int64 (n,)
        Receives the sequence that each instruction belongs to.
    expected : int64 (n,)
        What `origin` must be, or -1.
    untimed : int
        Sequences whose instructions' distances are not looked at.
    found : int64 (limit, FOUND_COLUMNS)
        Row 0 counts the violations in the others.
    totals : int64 (2,)
        Cells followed and pairs of conflicting accesses of the two engines found in order; added to.
    """
    count = len(instructions)
    flags = np.zeros(count, np.int64)
    lengths = np.zeros(max(len(positions), len(positions2)), np.int64)
    partials = np.int64(0)
    first = np.zeros(2, np.int64)
    last = np.full(2, -1, np.int64)
    scalars_before = -1
    for k in range(count):
        ins = instructions[k]
        engine, place, covers = ins[ENGINE], ins[POSITION], ins[COVERS]
        # Earliest start, counted from the engine's previous instruction: the real one is no nearer to any
        # earlier one.
        start = last[engine] + 1
        if ins[FENCE] and place > 0:
            start = max(start, last[engine] + distances[VECTOR_WRITE if engine == VECTOR else MATRIX_DONE])
        if ins[CHAIN] and place > 0:
            start = max(start, first[engine] + distances[VECTOR_WRITE])
        if ins[SCALAR_FENCE]:
            scalars_before = place - 1
        first[engine], last[engine] = start, start + ins[STEPS] - 1
        if ins[MASKED]:
            lengths[:] = ins[LENGTH_BASE]
            if ins[OWNER] & 2:
                for n in range(len(positions2)):
                    lengths[n] += patterns2[ins[LENGTH_PATTERN], n]
            elif ins[OWNER]:
                for n in range(len(positions)):
                    lengths[n] += patterns[ins[LENGTH_PATTERN], n]
        mine = ins[OWNER]
        if ins[REDUCES] == CONTINUES:
            if mine and partials & ~mine:
                _report(found, flags, MIXED_SUM, k, SCALARS, np.int64(-1), -1, 0)
            else:
                mine |= partials
        for a in range(ins[FIRST_ACCESS], ins[END_ACCESS]):
            acc = accesses[a]
            space, base = acc[SPACE], starts[acc[SPACE]]
            writer_engine = MATRIX if space == ACCUMULATORS or space == ROW_BUFFER else VECTOR
            outer, inner, again = acc[OUTER], acc[INNER], np.int64(0)
            if acc[INNER_STEP] == 0 and not acc[WRITES]:
                again, inner = (inner - 1) * acc[TIME_INNER], min(inner, 1)
            if acc[WRITES]:
                for o in range(outer):
                    for i in range(inner):
                        address = acc[BASE] + o * acc[OUTER_STEP] + i * acc[INNER_STEP]
                        at = start + acc[TIME] + o * acc[TIME_OUTER] + i * acc[TIME_INNER]
                        cell = cells[base + address]
                        totals[0] += 1
                        if cell[READ] >= 0:
                            if cell[READ] > covers:
                                _report(found, flags, RACE_WRITE, k, space, address, cell[READER], 0)
                            totals[1] += 1
                        if cell[DEFINED] == CONSTANT:
                            _report(found, flags, OVERWRITES_CONSTANT, k, space, address, -1, 0)
                        elif cell[DEFINED] == KEPT and not acc[SINGLE]:
                            _report(found, flags, OVERWRITES_KEPT, k, space, address, -1, 0)
                        if cell[SELF_READER] == k and cell[SELF_READ_AT] > at:
                            _report(found, flags, SELF_READ, k, space, address, -1, 0)
                        before = cell[WRITER]
                        if before == k:
                            if space == SCRATCH or space == OPERANDS:
                                _report(found, flags, TWICE, k, space, address, -1, 0)
                        elif before >= 0 and not cell[USED] and not acc[SINGLE] and lost[space, before] < 0:
                            lost[space, before] = k
                        if cell[DEFINED] == UNDEFINED:
                            cell[DEFINED] = COMPUTED
                        cell[WRITTEN] = place
                        cell[WRITTEN_AT] = last[engine] if space == SCALARS else at
                        cell[WRITER] = k
                        cell[FIRST_READER] = -1
                        cell[READ] = -1
                        cell[USED] = 0
                        cell[IS] = acc[NEEDS]
                continue
            need = (distances[VECTOR_WRITE] if space == SCRATCH else
                    distances[SCALAR_WRITE] if space == SCALARS else distances[ACCUMULATE])
            limit = min(inner, max(ins[LIVE],
                                   0)) if ins[MASKED] and space != SCALARS and space != ROW_BUFFER else inner
            seen = np.int32(-1)
            for o in range(outer):
                newest, oldest_read = np.int64(-1), np.int64(1 << 62)
                for i in range(limit):
                    address = acc[BASE] + o * acc[OUTER_STEP] + i * acc[INNER_STEP]
                    at = start + acc[TIME] + o * acc[TIME_OUTER] + i * acc[TIME_INNER]
                    cell = cells[base + address]
                    totals[0] += 1
                    writer = cell[WRITER]
                    if cell[DEFINED] == UNDEFINED:
                        _report(found, flags, UNWRITTEN, k, space, address, -1, 0)
                    elif cell[DEFINED] == KEPT:
                        word = kept_word[address]
                        whose = 1 if owners[word] == slots[0] else 2 if owners[word] == slots[1] else 0
                        if not whose:
                            _report(found, flags, KEPT_OTHER, k, space, address, -1, 0)
                        elif mine and whose != mine:
                            _report(found, flags, MIXED, k, space, address, -1, 0)
                        else:
                            mine = whose
                            _kept(found, flags, k, ins, address, word, ins[INDEX] + i, tiles, cell, kept,
                                  lengths, positions if whose == 1 else positions2)
                    if writer != seen:
                        seen = writer
                        if writer >= 0 and origin[writer] & ~mine:
                            if mine:
                                _report(found, flags, MIXED, k, space, address, writer, 0)
                            else:
                                mine = origin[writer]
                    if writer < 0:
                        if acc[NEEDS] & OWN:
                            _report(found, flags, NOT_OWN, k, space, address, -1, 0)
                    elif writer_engine != engine:
                        if cell[WRITTEN] > covers:
                            _report(found, flags, RACE_READ, k, space, address, writer, 0)
                        totals[1] += 1
                    elif (at - cell[WRITTEN_AT] < need and not mine & untimed
                          and not (space == SCALARS and cell[WRITTEN] <= scalars_before)):
                        _report(found, flags, TOO_SOON, k, space, address, writer, 0)
                    if writer >= 0:
                        if acc[NEEDS] & (NARROW | GIVEN) & ~cell[IS]:
                            _report(found, flags, NOT_STORABLE, k, space, address, writer, 0)
                        if acc[NEEDS] & CUT & ~cell[IS]:
                            _report(found, flags, NOT_CUT, k, space, address, writer, 0)
                        if cell[IS] & VOID and not ins[MASKED] and engine == VECTOR:
                            _report(found, flags, UNMASKED, k, space, address, writer, 0)
                        used[space, writer] = 1
                        if lost[space, writer] >= 0:
                            _report(found, flags, PARTLY_LOST, k, space, address, lost[space, writer], 0)
                        cell[USED] = 1
                    if writer_engine != engine:
                        cell[READ] = place
                        cell[READER] = k
                    if cell[SELF_READER] != k or at + again > cell[SELF_READ_AT]:
                        cell[SELF_READER], cell[SELF_READ_AT] = k, at + again
                    if engine == MATRIX and space == ACCUMULATORS and cell[FIRST_READER] >= 0:
                        _report(found, flags, STALE_SUM, k, space, address, cell[FIRST_READER], 0)
                    if engine == VECTOR and space == ACCUMULATORS:
                        newest = max(newest, writer)
                        if cell[FIRST_READER] < 0:
                            cell[FIRST_READER] = k
                        oldest_read = min(oldest_read, cell[FIRST_READER])
                if engine == VECTOR and space == ACCUMULATORS:
                    if oldest_read < newest:
                        _report(found, flags, STALE, k, space, acc[BASE] + o * acc[OUTER_STEP], newest, 0)
                    for i in range(limit, inner):
                        address = acc[BASE] + o * acc[OUTER_STEP] + i * acc[INNER_STEP]
                        writer = cells[base + address, WRITER]
                        if writer >= 0 and writer >= newest:
                            _report(found, flags, HIDDEN if limit else ALL_HIDDEN, k, space, address, writer,
                                    0)
        origin[k] = mine
        if ins[REDUCES]:
            partials = mine
        if expected[k] >= 0 and expected[k] != mine:
            _report(found, flags, ELSEWHERE, k, SCRATCH, np.int64(-1), -1, 0)
    for space in range(5):
        for k in range(count):
            if lost[space, k] >= 0 and not used[space, k]:
                _report(found, flags, LOST, lost[space, k], space, np.int64(-1), k, 0)
    first_cell = starts[ACCUMULATORS]
    for n in range(sizes[ACCUMULATORS]):
        writer = cells[first_cell + n, WRITER]
        if writer >= 0 and not used[ACCUMULATORS, writer]:
            _report(found, flags, UNUSED, writer, ACCUMULATORS, n, -1, 0)
