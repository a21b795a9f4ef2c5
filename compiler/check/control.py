"""The sequencer for all arguments at once: which engine instructions a command executes, with which register
values.

A register is a base plus a *pattern*: its value at every point of the argument space. Points are the pairs
(position, slot), or the tokens; a value that depends on both kinds is refused. A loop whose count varies
splits the points, and each part is walked by itself.

An entry for two sequences has two argument spaces, alike but for their names, ``position2`` and so on in the
second. Every pattern belongs to one of them; a value that depends on both is refused, and so is a loop whose
count varies.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from compiler.check.report import Listing
from hw.config import REGISTERS
from hw.image import Entry, Image
from hw.isa import Alu, Opcode

__all__ = ["LOOPS", "WALK_LIMIT", "Complaint", "Patterns", "Trace", "traces"]

LOOPS = 4
"""Depth of the loop stack (docs/isa.md, LOOP)."""

WALK_LIMIT = 1 << 18
"""Executed words after which a command is taken for endless."""

PARTS = 64
"""Parts into which loops may split the arguments."""

Complaint = Callable[[int, str, str], None]
"""Receives (address, kind, problem)."""

SECOND = ("token2", "position2", "slot2")
"""Arguments of the second sequence of a command."""

Value = tuple[int, int]
"""(base, pattern); pattern 0 is all zero."""

_LAST_OPCODE = int(max(Opcode))

_LOWEST, _HIGHEST = -(1 << 31), (1 << 32) - 1


class _Refused(Exception):
    """The walk cannot go on; the reason has been reported."""


class _Split(Exception):
    """A loop's count varies over the points."""

    def __init__(self, counts: np.ndarray) -> None:
        self.counts = counts


class Patterns:
    """Values over the argument space, each kept once, less its first element.

    `position`, `slot`: int64 (points,), positions ascending; those of both sequences, if there are two.
    Patterns over tokens have a negative number. `families` and `token_families` say whose arguments each
    pattern is a function of: 1 or 2, and 0 for the constant one.
    """

    def __init__(self, position: np.ndarray, slot: np.ndarray, vocab: int) -> None:
        self.position, self.slot, self.vocab = position, slot, vocab
        self.points: list[np.ndarray] = [np.zeros(len(position), np.int64)]
        self.tokens: list[np.ndarray] = [np.zeros(vocab, np.int64)]
        self.families, self.token_families = [0], [0]
        self._known: dict[tuple[bool, int, bytes], int] = {}

    def family(self, pattern: int) -> int:
        """Whose arguments a pattern is a function of: 0 nobody's, 1 or 2."""
        return self.token_families[-pattern] if pattern < 0 else self.families[pattern]

    def add(self, values: np.ndarray, of_token: bool, of: int = 1) -> Value:
        """The value with these elements, a function of the arguments of sequence `of`."""
        base = int(values[0])
        less = values - base
        if not less.any():
            return base, 0
        key = (of_token, of, less.tobytes())
        if key not in self._known:
            kind = self.tokens if of_token else self.points
            kind.append(less)
            (self.token_families if of_token else self.families).append(of)
            self._known[key] = -(len(kind) - 1) if of_token else len(kind) - 1
        return base, self._known[key]

    def array(self, pattern: int) -> np.ndarray:
        """The elements of a pattern."""
        return self.tokens[-pattern] if pattern < 0 else self.points[pattern]

    def values(self, value: Value) -> np.ndarray:
        """The elements of a value."""
        return self.array(value[1]) + value[0]

    def range(self, value: Value) -> tuple[int, int]:
        """Least and greatest element."""
        array = self.array(value[1])
        return value[0] + int(array.min()), value[0] + int(array.max())


@dataclass
class Trace:
    """The engine instructions that one entry executes, in program order.

    `address` int64 (n,); `snapshot` int64 (n,), a row of `base` and `pattern`, int64 (snapshots, 32): the
    registers then. `words` counts all executed words; `halt` is the address of the HALT; `sequences` is 2 for
    an entry with arguments of a second sequence.
    """

    name: str
    entry: Entry
    patterns: Patterns
    address: np.ndarray
    snapshot: np.ndarray
    base: np.ndarray
    pattern: np.ndarray
    words: int
    halt: int
    sequences: int = 1


class _Walk:
    """One walk from an entry point."""

    def __init__(self, image: Image, listing: Listing, name: str, patterns: Patterns, complain: Complaint,
                 words: dict[int, dict[str, int]]) -> None:
        self.image, self.listing, self.name, self.patterns = image, listing, name, patterns
        self.complain, self.words = complain, words
        self.entry = image.entries[name]
        self.sequences = 1 + any(argument in SECOND for argument in self.entry.arguments)
        self.others = {e.address for other, e in image.entries.items() if e.address != self.entry.address}
        self.registers: list[Value] = [(0, 0)] * REGISTERS

    def fields(self, address: int) -> dict[str, int]:
        if address not in self.words:
            self.words[address] = self.listing.fields(address)
        return self.words[address]

    def refuse(self, address: int, kind: str, problem: str) -> _Refused:
        self.complain(address, kind, problem)
        return _Refused()

    def arguments(self) -> None:
        """Registers at the start."""
        known = {"position": (self.patterns.position, False), "slot": (self.patterns.slot, False),
                 "token": (np.arange(self.patterns.vocab), True)}
        if self.sequences == 2 and self.image.kv.slots < 2:
            raise self.refuse(self.entry.address, "slots", "two sequences of one command have different slots; "
                                                           "this cache has one")
        if len(self.entry.arguments) > 8:
            raise self.refuse(self.entry.address, "arguments",
                              "a command takes up to 8 arguments; this entry names "
                              f"{len(self.entry.arguments)}")
        for register, name in enumerate(self.entry.arguments, 1):
            if name.removesuffix("2") not in known:
                raise self.refuse(self.entry.address, "arguments", "the arguments of an entry are token, "
                                                                   "position and "
                                  "slot, and token2, position2 and slot2 of a second sequence; "
                                  f"this one has {name!r}, whose values the checker does not know")
            self.registers[register] = self.patterns.add(*known[name.removesuffix("2")],
                                                         1 + name.endswith("2"))

    def alu(self, address: int, f: dict[str, int]) -> None:
        """Execute an ALU word, in whole numbers, with overflow a violation."""
        fn, imm = f["fn"], f["imm"]
        if f["rd"] == 0:
            self.complain(address, "rd", "register 0 is always zero; this operation writes it: use another")
            return
        if fn in (Alu.ADD, Alu.SUB) and imm >> 31:
            imm -= 1 << 32
        a, b = self.registers[f["ra"]], self.registers[f["rb"]]
        b = (b[0] + imm, b[1])
        if b[1] == 0 and fn in (Alu.ADD, Alu.SUB):
            value = (a[0] + b[0] if fn == Alu.ADD else a[0] - b[0], a[1])
        else:
            if a[1] * b[1] < 0:
                raise self.refuse(address, "mixed", "a register may depend on the token, or on position and "
                                                    "slot; this one "
                                  "depends on both, which the checker cannot follow")
            families = {self.patterns.family(v[1]) for v in (a, b)} - {0}
            if len(families) == 2:
                raise self.refuse(address, "mixed sequences", "a register belongs to one of the two sequences; "
                                                              "this one depends on the arguments of both")
            left, right = (np.array([v[0]]) if v[1] == 0 else self.patterns.values(v) for v in (a, b))
            if fn not in (Alu.ADD, Alu.SUB) and min(left.min(), right.min()) < 0:
                raise self.refuse(address, "sign", "registers are unsigned in this operation; a negative "
                                                   "value comes to it")
            if fn in (Alu.SHL, Alu.SHR) and right.max() > 31:
                raise self.refuse(address, "shift", "a shift is by 0 to 31 bits; this one is by "
                                                    f"{int(right.max())}")
            if fn == Alu.MUL and float(left.max()) * float(right.max()) > 2.0 ** 62:
                result = np.array([1 << 62])
            else:
                result = {Alu.ADD: np.add, Alu.SUB: np.subtract, Alu.MUL: np.multiply, Alu.SHL: np.left_shift,
                          Alu.SHR: np.right_shift, Alu.AND: np.bitwise_and, Alu.MIN: np.minimum,
                          Alu.MAX: np.maximum}[Alu(fn)](left, right)
            value = self.patterns.add(result, a[1] < 0 or b[1] < 0, max(families, default=1))
        low, high = self.patterns.range(value)
        if low < _LOWEST or high > _HIGHEST:
            raise self.refuse(address, "wrap", f"register sums must fit 32 bits; this one reaches {low} to "
                                               f"{high}")
        self.registers[f["rd"]] = value

    def count(self, address: int, f: dict[str, int]) -> int:
        """Iterations of a LOOP."""
        base, pattern = self.registers[f["count_reg"]]
        value = (base + f["count"], pattern)
        low, high = self.patterns.range(value)
        if low < 0 or high > 0xFFFF_FFFF:
            raise self.refuse(address, "count", f"a loop count must be 0 to 4294967295; this one is {low} "
                                                f"to {high}")
        if pattern < 0:
            raise self.refuse(address, "count", "a loop count may not depend on the token; this one does")
        if pattern > 0 and self.sequences == 2:
            raise self.refuse(address, "count", "a loop count of a command for two sequences may not depend on "
                                                "their arguments; this one does")
        if pattern > 0:
            raise _Split(self.patterns.values(value))
        return max(low, 1)

    def run(self) -> Trace:
        """Walk to HALT; raises `_Refused` or `_Split`."""
        self.arguments()
        pc = self.entry.address
        loops: list[tuple[int, int, int]] = []        # LOOP's address, address behind it, iterations left
        addresses: list[int] = []
        snapshots: list[int] = []
        states: list[list[Value]] = []
        changed, executed = True, 0
        while True:
            if not 0 <= pc < len(self.listing) or pc >= self.image.config.microcode:
                raise self.refuse(min(max(pc - 1, 0), len(self.listing) - 1), "end",
                                  "a command ends with HALT; this one runs past the last word of the "
                                  "microcode")
            if executed and pc in self.others and not loops:
                raise self.refuse(pc, "end", "a command ends with HALT; this one runs into the next entry "
                                             "point")
            if executed == WALK_LIMIT:
                raise self.refuse(pc, "endless", "a command ends with HALT; this one has executed "
                                                 f"{WALK_LIMIT} words "
                                  "without one")
            executed += 1
            opcode = self.listing.opcode(pc)
            if opcode > _LAST_OPCODE:
                raise self.refuse(pc, "opcode", f"opcodes are 0 to {_LAST_OPCODE}; this word has {opcode}")
            if opcode == Opcode.HALT:
                if loops:
                    raise self.refuse(loops[-1][0], "loop", "every LOOP needs its END; this one is open at "
                                                            "HALT, address "
                                      f"{pc}")
                break
            if opcode >= Opcode.MULTIPLY:
                if changed:
                    states.append(list(self.registers))
                    changed = False
                addresses.append(pc)
                snapshots.append(len(states) - 1)
                pc += 1
                continue
            if opcode == Opcode.ALU:
                self.alu(pc, self.fields(pc))
                changed = True
                pc += 1
            elif opcode == Opcode.LOOP:
                if len(loops) == LOOPS:
                    raise self.refuse(pc, "loop", f"loops nest at most {LOOPS} deep; this LOOP is deeper")
                loops.append((pc, pc + 1, self.count(pc, self.fields(pc))))
                pc += 1
            else:
                if not loops:
                    raise self.refuse(pc, "loop", "an END needs an open LOOP; none is open")
                start, again, left = loops.pop()
                if left > 1:
                    loops.append((start, again, left - 1))
                    pc = again
                else:
                    pc += 1
        table = np.array(states, np.int64).reshape(-1, REGISTERS, 2)
        return Trace(self.name, self.entry, self.patterns, np.array(addresses, np.int64), np.array(snapshots,
                                                                                                   np.int64),
                     table[:, :, 0], table[:, :, 1], executed, pc, self.sequences)


def traces(image: Image, listing: Listing, name: str, complain: Complaint,
           words: dict[int, dict[str, int]]) -> list[Trace]:
    """The traces of one entry point, one for each part of its arguments; fewer when a part was refused.

    `words` keeps decoded fields by address for all entries.
    """
    entry, slots = image.entries[name], max(image.kv.slots, 1)
    position = np.repeat(np.arange(max(entry.context, 1)), slots)
    slot = np.tile(np.arange(slots), max(entry.context, 1))
    parts, out, made = [(position, slot)], [], 1
    while parts:
        position, slot = parts.pop()
        walk = _Walk(image, listing, name, Patterns(position, slot, max(image.logits[1], 1)), complain, words)
        try:
            out.append(walk.run())
        except _Split as split:
            counts = np.unique(split.counts)
            made += len(counts) - 1
            if made > PARTS:
                complain(entry.address, "parts", f"loop counts may split the arguments into at most {PARTS} "
                                                 "parts; these "
                         f"have {made}")
                return out
            parts += [(position[split.counts == n], slot[split.counts == n]) for n in counts]
        except _Refused:
            pass
    return out
