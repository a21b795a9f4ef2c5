"""Array rows that instructions read: rows of the image, or cache rows that were stored before.

A row read at position p of a slot must be one that some position up to p of that slot stores (`Kept`); a row
that the same command stores must be stored before. Finer than a row nothing is needed: what earlier sequences
left in other tiles and bytes belongs to elements beyond the length, whose scores are masked and whose
probabilities are zero.
"""

from numba import njit

__all__ = ["EARLY", "OTHER_SLOT", "ORDER", "READ_COLUMNS", "mark", "read_rows"]

K, ROW, NJ, ROW_J, NH, ROW_H, NR, ROW_R = range(8)
READ_COLUMNS = 8
"""Of a read: executed instruction, first row, three counts with their steps."""

OK, EARLY, OTHER_SLOT, ORDER = range(4)
"""Results: stored by a later position or never; another slot's; stored later by the same command."""


@njit(cache=True)
def mark(times, last, address, row, nj, row_j, nh, row_h, nr, row_r, shifts):
    """Count one more in `times` for the rows of one read at each of `shifts`, and note its address in `last`;
    groups that share rows count once, and rows out of range not at all.
    """
    for shift in shifts:
        for j in range(nj):
            for h in range(nh if row_h else 1):
                for r in range(nr):
                    at = row + shift + j * row_j + h * row_h + r * row_r
                    if 0 <= at < len(times):
                        times[at] += 1
                        last[at] = address


@njit(cache=True)
def read_rows(reads, stored, stored_by, constant, rows, row_slot, position, slot, own, results):
    """Compare the reads of one class with what is stored.

    Parameters
    ----------
    reads : int64 (n, READ_COLUMNS)
        In range.
    stored, stored_by : int64 (m,)
        Rows that the command stores, and the executed instruction that does.
    constant : int
        Rows of the image.
    rows, row_slot : int64 (array rows,)
        See `compiler.check.cache.Kept`.
    position, slot : int
        Least position of the class, and its slot.
    own : int64 (array rows,)
        Working space, -1; left so.
    results : int64 (n, 2)
        Result and row of each read; written where there is a violation.

    Returns the number of cache rows read.
    """
    total = 0
    for n in range(len(stored)):
        own[stored[n]] = stored_by[n]
    for n in range(len(reads)):
        read = reads[n]
        for j in range(read[NJ]):
            for h in range(read[NH] if read[ROW_H] else 1):
                first = read[ROW] + j * read[ROW_J] + h * read[ROW_H]
                for r in range(read[NR]):
                    at = first + r * read[ROW_R]
                    if at < constant:
                        continue
                    total += 1
                    if rows[at] > position:
                        results[n, 0], results[n, 1] = EARLY, at
                    elif row_slot[at] != slot:
                        results[n, 0], results[n, 1] = OTHER_SLOT, at
                    elif own[at] > read[K]:
                        results[n, 0], results[n, 1] = ORDER, at
    for n in range(len(stored)):
        own[stored[n]] = -1
    return total
