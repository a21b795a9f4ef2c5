"""Rows of the image: every one is read, and a command multiplies all that it multiplies equally often.

No rule of the machine, but what a wrong stride, count or first row of a product breaks when it stays inside
the image.
"""

import numpy as np

from compiler.check import rowreads
from compiler.check.control import Complaint
from compiler.check.report import Listing
from compiler.check.walk import Walker
from hw.image import Image
from hw.isa import Opcode, Reduce

__all__ = ["Products", "compare"]


class Products:
    """How often one command multiplies each row of the image, and which rows it reads for any arguments.

    `times`, `last` int64 (rows,): products that use a row, and the microcode address of the last; `fetched`
    those of FETCH over all arguments.
    """

    def __init__(self, image: Image, walker: Walker) -> None:
        self.name, self.entry = walker.trace.name, walker.trace.entry
        rows = len(image.array)
        self.times, self.last = np.zeros(rows, np.int64), np.full(rows, -1)
        self.fetched = np.zeros(rows, np.int64)
        nowhere = np.zeros(rows, np.int64)
        for address, fetch, row, lattice, pattern in walker.fixed_reads():
            shifts = np.unique(walker.trace.patterns.array(pattern))
            times, last = (self.fetched, nowhere) if fetch else (self.times, self.last)
            rowreads.mark(times, last, address, row, *lattice, shifts)    # type: ignore[call-arg]
        self.complain_results(image, walker)

    @staticmethod
    def complain_results(image: Image, walker: Walker) -> None:
        """Logits that take part in argmax under another number than their own."""
        words = -(-image.logits[1] // image.config.tiles)
        firsts = [image.logits[0], *([image.second[0]] if image.second else [])]
        for address, t in walker.templates.items():
            f = t.fields
            if t.opcode != Opcode.VECTOR or f["reduce"] != Reduce.ARGMAX or not f["w"]:
                continue
            if f["w_word_reg"] or f["index_reg"]:
                continue
            for first in firsts:
                if first <= f["w_word"] < first + words and f["index"] != f["w_word"] - first:
                    walker.complain(address, "logits", "argmax counts logits as the image does, from scratch "
                                                       f"word {first}; index must "
                                    f"be {f['w_word'] - first}, it is {f['index']}")


def _uneven(product: Products, listing: Listing, complain: Complaint) -> None:
    used: np.ndarray = product.times[product.times > 0]
    if not len(used):
        return
    usual = int(np.bincount(used).argmax())
    for n in np.flatnonzero((product.times > 0) & (product.times != usual)).tolist():
        complain(int(product.last[n]), "rows", "a command multiplies all its rows equally often, here "
                                               f"{usual} times; row {n} is "
                 f"multiplied {int(product.times[n])} times")


def compare(products: list[Products], listing: Listing, complaints: dict[str, Complaint],
            whole: Complaint) -> None:
    """Reports rows multiplied more often than others, rows that one command multiplies and another leaves
    out, and rows that nobody reads."""
    for product in products:
        _uneven(product, listing, complaints[product.name])
    operators = [{listing.operator(int(a)) for a in np.unique(p.last[p.last >= 0])} for p in products]
    for mine, labels in zip(products, operators, strict=True):
        for other in products:
            missing = np.flatnonzero((mine.times == 0) & (other.times > 0))
            if not len(missing):
                continue
            # What the other command does beyond this one, such as the logits, is no omission.
            addresses, where = np.unique(other.last[missing], return_inverse=True)
            shared = np.array([listing.operator(int(a)) in labels for a in addresses])[where.reshape(-1)]
            missing = missing[shared]
            if len(missing):
                n = int(missing[0])
                before = np.flatnonzero(mine.times[:n] > 0)
                at = int(mine.last[before[-1]]) if len(before) else mine.entry.address
                complaints[mine.name](at, "left out", f"{other.name} multiplies row {n} at "
                                                      f"{listing.name(int(other.last[n]))}; this "
                                      "command does not, and the rows before it belong to this instruction")
                break
    unread = np.flatnonzero(sum(p.times + p.fetched for p in products) == 0)
    if len(unread):
        n = int(unread[0])
        last = max((int(p.last[k]) for p in products for k in np.flatnonzero(p.times[:n] > 0)[-1:].tolist()),
                   default=-1)
        whole(last, "unread", f"every row of the image is read by some entry point; {len(unread)} are not, "
                              f"first row {n}, behind rows "
              "that this instruction multiplies")
