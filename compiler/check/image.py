"""The independent checker: proves that a finished image obeys the machine's contract, docs/machine.md.

For every entry point and every legal argument (token below the vocabulary, position below the entry's
context, slot below the cache's slots; the same of a second sequence, in another slot) it proves:

* accumulators, scratch words, operand blocks, row buffer entries and scalars are written, in this command or
  as contents of the image, before they are read; what earlier commands left is read only where commands for
  earlier positions of the same slot stored it (`compiler.check.cache`); elements that a mask hides need not
  be there;
* any two conflicting accesses of the two engines are ordered by tokens, and inside an engine a result is read
  no sooner than the pipeline has it (`compiler.check.kernel`); every token is taken, none is waited for in
  vain, no counter overflows (`compiler.check.order`);
* results are not overwritten unread, images' contents and the cache are not destroyed, and commands deliver
  their logits;
* what a command for two sequences computes for the one depends on nothing of the other's
  (`compiler.check.pairs`);
* addresses, counts and selectors exist, register sums fit, loops end, HALT is reached
  (`compiler.check.control`, `compiler.check.fields`).

Why this holds for all contexts: what an instruction touches and when depends on the arguments alone, through
integer registers. Their values are computed at every point of the argument space, points with equal counts
and addresses form a class, and one command of each class is followed cell by cell (`compiler.check.walk`).
Nothing is extrapolated. Slots that keep their words alike share a walk (`compiler.check.slots`), and of two
sequences every class of each is followed beside the worst of the other (`compiler.check.pairs`).

Why it holds for all timings: tokens, queues and stalls only delay. Between engines only tokens count. Within
an engine the distance of two steps is at least what the steps, fences and chains between them take, because
every term of an instruction's earliest start refers to the instruction before it; a scalar fence refers to a
farther one, and is counted only for what it is for.

It shares no code with scheduling, synchronisation or footprints.
"""

from collections.abc import Callable

import numpy as np

from compiler.check.cache import NEVER, Kept, Plane, agree, apart, find_planes, keep
from compiler.check.control import Complaint, Trace, traces
from compiler.check.fields import Template, template
from compiler.check.order import order, reductions
from compiler.check.products import Products, compare
from compiler.check.report import CheckError, Listing, Report
from compiler.check.walk import Walker
from hw.image import Image
from hw.isa import Opcode

__all__ = ["CheckError", "LIMIT", "Report", "check"]

LIMIT = 50
"""Violations that a report lists."""


def check(image: Image, *, limit: int = LIMIT, follow: Callable[[Walker], None] = Walker.run) -> Report:
    """Prove what the module says of `image`; the report lists what could not be proved.

    `follow` walks the commands of each entry point; tests give another one to compare with.
    """
    report, listing = Report(entries=len(image.entries)), Listing(image)
    complaints = {name: _complaint(name, listing, report, limit) for name in image.entries}
    whole = _complaint("", listing, report, limit)
    if not _image_fits(image, whole):
        return report
    words: dict[int, dict[str, int]] = {}
    templates: dict[int, Template] = {}
    found: list[tuple[Trace, list[Plane]]] = []
    for name in sorted(image.entries, key=lambda name: (-image.entries[name].context, name)):
        complain = complaints[name]
        for trace in traces(image, listing, name, complain, words):
            for address in np.unique(trace.address).tolist():
                if address not in templates:
                    if address not in words:
                        words[address] = listing.fields(address)
                    templates[address] = template(image, address, listing.opcode(address), words[address],
                                                  complain)
            planes = apart(image, trace, find_planes(trace, templates, complain), listing, complain)
            found.append((trace, planes))
            report.arguments += _arguments(image, trace)
    if not found:
        return report
    kept = _kept(image, found, complaints)
    products = []
    for trace, planes in found:
        complain = complaints[trace.name]
        mine = {address: templates[address] for address in np.unique(trace.address).tolist()}
        in_order = order(trace, mine, image.config, listing, complain)
        reductions(trace, mine, listing, complain)
        walker = Walker(image, trace, mine, in_order, planes, kept, listing, report, complain)
        follow(walker)
        products.append(Products(image, walker))
    compare(products, listing, complaints, whole)
    return report


def _arguments(image: Image, trace: Trace) -> int:
    """Legal argument tuples of a trace."""
    points, slots = len(trace.patterns.position), image.kv.slots
    tokens = image.logits[1] ** sum(name.startswith("token") for name in trace.entry.arguments)
    return points * tokens * (points // slots * (slots - 1) if trace.sequences == 2 else 1)


def _complaint(name: str, listing: Listing, report: Report, limit: int) -> Complaint:
    def complain(address: int, kind: str, problem: str) -> None:
        report.add(CheckError(name, address, listing.operator(address), listing.text(address), problem), kind,
                   limit)
    return complain


def _image_fits(image: Image, complain: Complaint) -> bool:
    """Whether the contents fit the device at all."""
    config, fine = image.config, True
    for name, size, room in (("array rows", len(image.array), config.rows), ("scratch words",
                                                                             len(image.scratch),
                                                                             config.scratch),
                             ("microcode words", len(image.microcode), config.microcode)):
        if size > room:
            complain(-1, f"size {name}", f"the device has {room} {name}; the image has {size}")
            fine = False
    for name, entry in image.entries.items():
        if not 0 <= entry.address < len(image.microcode):
            complain(-1, f"entry {name}", f"entry point {name!r} must be a microcode address below "
                                          f"{len(image.microcode)}; it is "
                     f"{entry.address}")
            fine = False
        elif not 1 <= entry.context <= image.kv.context:
            complain(-1, f"entry {name}", f"the context of entry point {name!r} must be 1 to "
                                          f"{image.kv.context}, that of the "
                     f"cache; it is {entry.context}")
            fine = False
    if image.kv.slots < 1:
        complain(-1, "slots", f"the cache must have a slot; this one has {image.kv.slots}")
        fine = False
    return fine


def _kept(image: Image, found: list[tuple[Trace, list[Plane]]], complaints: dict[str, Complaint]) -> Kept:
    """What commands keep, from the entry with the longest context; the others must agree with it."""
    config = image.config
    kept = Kept(np.full(config.rows, NEVER), np.full(config.rows, -1), np.zeros(config.rows, np.int64),
                np.full(config.scratch, -1), np.zeros((0, config.tiles + 1), np.int64), np.zeros(0, np.int64))
    # Sorted by context. Each sequence of a command has planes of its own.
    stores = [(trace, [p for p in planes if p.family in (n, 3)], (trace.name, n))
              for trace, planes in found for n in range(1, 1 + trace.sequences)]
    reference = stores[0][2]
    for trace, planes, of in stores:
        if of == reference:
            keep(trace, planes, kept, config.tiles)
            continue
        for other, reference_planes, whose in stores:
            if whose == reference:
                agree((other, reference_planes), (trace, planes), config.tiles, complaints[trace.name])
    # The latest of the tiles below n; no tile is none.
    kept.tiles[:, 0] = -1
    np.maximum.accumulate(kept.tiles, axis=1, out=kept.tiles)
    return kept


assert Opcode.HALT == 0, "microcode beyond the image is zero and halts"
