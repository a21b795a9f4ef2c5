"""State that outlives commands: cache rows of the array, and scratch words that commands write one tile at a
time.

The command for position p of a slot may count on what the commands for positions 0 to p of the same slot
stored, each by some entry point. A *plane* is what one executed store writes over all arguments: row (or
word) ``base + pattern``. Planes of a command are disjoint, in a plane every slot has its own rows, no two
positions of a slot write the same tile of a row (or byte column), and all entry points have the same planes
as far as their positions go; so what was stored stays, and the map of first positions, `Kept`, holds after
every sequence of legal commands.

A command for two sequences has the planes twice, as functions of the arguments of each. Each time they are
those of all other entry points, so the two sequences, whose slots differ, keep apart as well.
"""

from dataclasses import dataclass

import numpy as np

from compiler.check.control import Complaint, Patterns, Trace
from compiler.check.fields import Template
from compiler.check.report import Listing
from hw.config import BLOCK
from hw.image import Image
from hw.isa import Opcode

__all__ = ["BY_COLUMN", "BY_TILE", "NEVER", "Kept", "Plane", "agree", "apart", "find_planes", "keep"]

NEVER = 1 << 40
"""A first position that never comes."""

BY_TILE, BY_COLUMN = 1, 2
"""Kinds of cache rows: a tile is a position's (keys), or a byte in all tiles is (values)."""


@dataclass(frozen=True)
class Plane:
    """Array rows, or scratch words, ``base + pattern`` that the executed instruction `k` of a trace writes.

    `place` is a value (base, pattern) that, mod T or for `column` mod 32, names the tile or byte column
    written. `family` is the sequence whose arguments these are, 1 or 2, and 3 for both.
    """

    scratch: bool
    k: int
    address: int
    base: int
    pattern: int
    column: bool
    place: tuple[int, int]
    family: int = 1

    def places(self, patterns: Patterns, tiles: int) -> np.ndarray:
        """The tile or byte column at every point."""
        return patterns.values(self.place) % (BLOCK if self.column else tiles)


def find_planes(trace: Trace, templates: dict[int, Template], complain: Complaint) -> list[Plane]:
    """The planes of one command, in program order."""
    out = []
    for k, (address, snapshot) in enumerate(zip(trace.address.tolist(), trace.snapshot.tolist(),
                                                strict=True)):
        t = templates[address]
        f = t.fields
        if not t.stores and not (t.vector and f["w"] and f["w_single"]):
            continue

        def register(name: str, f: dict[str, int] = f, at: int = snapshot) -> tuple[int, int]:
            return int(trace.base[at, f[name]]), int(trace.pattern[at, f[name]])

        count, varies = register("inner_reg" if t.vector else "nj_reg")
        count = max(count + f["inner" if t.vector else "nj"], 1)
        if varies or count > 1 << 16:
            complain(address, "stores", "what a command keeps may not vary in size; this store's count "
                                        "comes from an argument "
                     "or exceeds 65536")
            continue
        if t.vector:
            base, pattern = register("w_word_reg")
            offsets = sorted({o * f["w_o"] + i * f["w_i"] for o in range(max(f["outer"], 1))
                              for i in range(count)})
            first, column, place = f["w_word"] + base, False, register("w_tile_reg")
        else:
            base, pattern = register("row_reg")
            column = t.opcode == Opcode.STORE_COLUMN
            inner = t.counts[-1][0] if column else 1
            offsets = [j * f["row_j"] + r * f["row_r"] for j in range(count) for r in range(inner)]
            first, place = f["row"] + base, register("column_reg" if column else "tile_reg")
        family = trace.patterns.family(pattern) | trace.patterns.family(place[1]) or 1
        out += [Plane(t.vector, k, address, first + offset, pattern, column, place, family)
                for offset in offsets]
    return out


@dataclass
class Kept:
    """What commands keep.

    `rows` int64 (array rows,): the first position that writes a row; `row_slot` the slot that it belongs to
    (-1: none); `row_kind` 0, `BY_TILE` or `BY_COLUMN`: what a position writes of it. `word` int64 (scratch
    words,): row of `tiles` and `word_slot` for a word that is kept, else -1; `tiles` int64 (words, T + 1):
    the latest of the first positions that write tiles below n.
    """

    rows: np.ndarray
    row_slot: np.ndarray
    row_kind: np.ndarray
    word: np.ndarray
    tiles: np.ndarray
    word_slot: np.ndarray


def _alone(plane: Plane, patterns: Patterns, tiles: int) -> str:
    """Why positions and slots do not stay apart in a plane, or nothing."""
    if plane.pattern < 0 or plane.place[1] < 0:
        return "depends on the token"
    if plane.family == 3:
        return "depends on the arguments of both sequences"
    where, slot, place = patterns.array(plane.pattern), patterns.slot, plane.places(patterns, tiles)
    slots = int(slot.max()) + 1
    pairs = np.unique(where * slots + slot)
    if len(np.unique(pairs // slots)) < len(pairs):
        return "is shared by two slots"
    if len(np.unique((where * slots + slot) * BLOCK * tiles + place)) < len(where):
        return "has a tile or byte that two positions of one slot write"
    return ""


def apart(image: Image, trace: Trace, planes: list[Plane], listing: Listing,
          complain: Complaint) -> list[Plane]:
    """The planes of one command that are sound.

    Reports stores that leave the memory, hit the image's own contents, or do not stay apart from each other.
    """
    config, patterns = image.config, trace.patterns
    writers = {(scratch, family): np.full(config.scratch if scratch else config.rows, -1)
               for scratch in (False, True) for family in range(1, 1 + trace.sequences)}
    alone: dict[tuple[bool, int, tuple[int, int]], str] = {}
    sound = []
    for plane in planes:
        what, size, first = (("scratch word", config.scratch, len(image.scratch)) if plane.scratch
                             else ("array row", config.rows, len(image.array)))
        where = np.unique(patterns.array(plane.pattern)) + plane.base
        low, high = int(where[0]), int(where[-1])
        key = (plane.column, plane.pattern, plane.place)
        if key not in alone:
            alone[key] = _alone(plane, patterns, config.tiles)
        if low < 0 or high >= size:
            complain(plane.address, "range", f"{what}s are 0 to {size - 1}; this store reaches {low} to "
                                             f"{high}")
        elif low < first:
            complain(plane.address, "constant", f"the image's own contents are {what}s 0 to {first - 1}; "
                                                "this store overwrites "
                     f"{low} to {min(high, first - 1)}")
        elif alone[key]:
            complain(plane.address, "apart", f"positions and slots keep apart what they store; {what} {low} "
                                             f"{alone[key]}")
        elif (clash := writers[plane.scratch, plane.family][where]).max() >= 0:
            n = int(clash.argmax())
            complain(plane.address, "apart", f"stores of one command keep apart what they store; {what} "
                                             f"{int(where[n])} is also "
                     f"written by {listing.name(int(clash[n]))}")
        else:
            writers[plane.scratch, plane.family][where] = plane.address
            sound.append(plane)
    return sound


def keep(trace: Trace, planes: list[Plane], kept: Kept, tiles: int) -> None:
    """Enter the planes of one command."""
    patterns = trace.patterns
    position, slot = patterns.position, patterns.slot
    for plane in planes:
        cells = patterns.array(plane.pattern) + plane.base
        if not plane.scratch:
            # Positions ascend, so the first of equal rows is the first position.
            rows, firsts = np.unique(cells, return_index=True)
            kept.rows[rows] = np.minimum(kept.rows[rows], position[firsts])
            kept.row_slot[rows] = slot[firsts]
            kept.row_kind[rows] = BY_COLUMN if plane.column else BY_TILE
            continue
        fresh = np.unique(cells[kept.word[cells] < 0])
        kept.word[fresh] = len(kept.tiles) + np.arange(len(fresh))
        kept.tiles = np.concatenate([kept.tiles, np.full((len(fresh), tiles + 1), NEVER)])
        kept.word_slot = np.concatenate([kept.word_slot, np.full(len(fresh), -1)])
        words = kept.word[cells]
        np.minimum.at(kept.tiles, (words, plane.places(patterns, tiles) + 1), position)
        kept.word_slot[words] = slot


def agree(reference: tuple[Trace, list[Plane]], other: tuple[Trace, list[Plane]], tiles: int,
          complain: Complaint) -> None:
    """Whether two commands store alike wherever both may be called; reports the first plane of `other` that
    differs."""
    slots = 1 + max(int(trace.patterns.slot.max()) for trace, _ in (reference, other))
    points = [trace.patterns.position * slots + trace.patterns.slot for trace, _ in (reference, other)]
    _, *common = np.intersect1d(points[0], points[1], assume_unique=True, return_indices=True)
    if not len(common[0]):
        return
    sets: list[dict[tuple[object, ...], int]] = []
    for (trace, planes), at in zip((reference, other), common, strict=True):
        known: dict[tuple[int, bool, tuple[int, int]], tuple[int, bytes, bytes]] = {}
        marks: dict[tuple[object, ...], int] = {}
        for plane in planes:
            key = (plane.pattern, plane.column, plane.place)
            if key not in known:
                array = trace.patterns.array(plane.pattern)[at]
                known[key] = int(array[0]), (array - array[0]).tobytes(), plane.places(trace.patterns,
                                                                                       tiles)[at].tobytes()
            first, pattern, place = known[key]
            marks[plane.scratch, plane.column, plane.base + first, pattern, place] = plane.address
        sets.append(marks)
    for mark, address in sets[1].items():
        if mark not in sets[0]:
            complain(address, "agree", f"entry points must store alike; {reference[0].name} does not store "
                                       "what this "
                     f"instruction stores at {'scratch word' if mark[0] else 'array row'} {mark[2]}")
            return
    if len(sets[1]) < len(sets[0]):
        missing = next(mark for mark in sets[0] if mark not in sets[1])
        complain(other[0].entry.address, "agree", "entry points must store alike; this one does not store "
                                                  "what "
                 f"{reference[0].name} stores at {'scratch word' if missing[0] else 'array row'} "
                 f"{missing[2]}")
