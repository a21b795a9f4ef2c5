"""What the checker says: violations with their place in the program, and a count of what it proved."""

from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np

from hw.errors import WordlineError
from hw.image import Image
from hw.isa import FORMATS, IsaError, Opcode, decode

__all__ = ["CheckError", "Listing", "Report"]


class CheckError(WordlineError):
    """One violation of the machine's contract by an image.

    Parameters
    ----------
    entry : str
        Entry point from which it was found.
    address : int
        Microcode address, or -1 for what belongs to no instruction.
    operator, instruction : str
        The model operator of that address and the instruction as text.
    problem : str
        What is wrong.
    """

    def __init__(self, entry: str, address: int, operator: str, instruction: str, problem: str) -> None:
        self.entry, self.address, self.operator = entry, address, operator
        self.instruction, self.problem = instruction, problem
        place = f"{entry}: " if entry else ""
        if address >= 0:
            place += f"microcode address {address} ({operator}): "
        super().__init__(f"{place}{problem}" + (f": {instruction}" if instruction else ""))


class Listing:
    """The microcode of an image, for messages and for templates."""

    def __init__(self, image: Image) -> None:
        self.words = np.ascontiguousarray(image.microcode, np.uint32)
        self._operators = sorted(image.operators)
        self._firsts = [first for first, _, _ in self._operators]

    def __len__(self) -> int:
        return len(self.words)

    def opcode(self, address: int) -> int:
        """The opcode, existing or not."""
        return int(self.words[address, 0]) & 15

    def fields(self, address: int) -> dict[str, int]:
        """All fields of the word, zeros included."""
        instruction = decode(self.words[address:address + 1])[0]
        return {f.name: instruction[f.name] for f in FORMATS[Opcode(instruction.opcode)].fields}

    def text(self, address: int) -> str:
        """The word as the disassembler writes it."""
        if not 0 <= address < len(self.words):
            return ""
        try:
            return " ".join(str(decode(self.words[address:address + 1])[0]).split())
        except IsaError as error:
            return str(error)

    def operator(self, address: int) -> str:
        """The model operator of an address."""
        k = bisect_right(self._firsts, address) - 1
        if k >= 0 and address < self._operators[k][1]:
            return self._operators[k][2]
        return "no operator"

    def name(self, address: int) -> str:
        """An address with its operator, for use inside a sentence."""
        return f"address {address} ({self.operator(address)})"


@dataclass
class Report:
    """The result of `compiler.check.check`.

    Parameters
    ----------
    errors : list of CheckError
        Violations, each once, by address.
    more : int
        Violations beyond the limit that are not listed.
    entries, arguments, classes, words, cells, pairs, rows : int
        What was covered: entry points; argument tuples of all of them; classes of arguments that were
        checked; executed words of their walks; reads and writes followed; conflicting accesses of the two engines that
        tokens order; array rows read and compared with what was stored.
    """

    errors: list[CheckError] = field(default_factory=list)
    more: int = 0
    entries: int = 0
    arguments: int = 0
    classes: int = 0
    words: int = 0
    cells: int = 0
    pairs: int = 0
    rows: int = 0
    _seen: set[tuple[int, str]] = field(default_factory=set, repr=False)

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.errors

    def add(self, error: CheckError, kind: str, limit: int) -> None:
        """Note a violation, unless that address has one of its kind already."""
        key = (error.address, kind)
        if key in self._seen:
            return
        self._seen.add(key)
        if len(self.errors) < limit:
            self.errors.append(error)
        else:
            self.more += 1

    def require(self) -> None:
        """Raise the first violation, if there is one."""
        if self.errors:
            raise self.errors[0]

    def __str__(self) -> str:
        covered = (f"{self.entries} entry points, {self.arguments:,} argument tuples in {self.classes:,} "
                   "classes, "
                   f"{self.words:,} words executed, {self.cells:,} accesses followed, {self.pairs:,} pairs "
                   "of the two "
                   f"engines in order, {self.rows:,} rows of the cache written before they are read")
        if self.ok:
            return f"no violation: {covered}"
        lines = [f"{len(self.errors) + self.more} violations: {covered}", *(f"  {error}"
                                                                            for error in self.errors)]
        if self.more:
            lines.append(f"  and {self.more} more")
        return "\n".join(lines)
