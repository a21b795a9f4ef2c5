"""The sentences of the checker for what `compiler.check.kernel` finds."""

from compiler.check import kernel
from hw.timing import Latencies

__all__ = ["MANY", "SPACES", "sentence"]

SPACES = {kernel.ACCUMULATORS: "accumulator", kernel.SCRATCH: "scratch word",
          kernel.OPERANDS: "operand block",
          kernel.ROW_BUFFER: "row buffer entry", kernel.SCALARS: "scalar"}

MANY = {space: f"{name}s" for space, name in SPACES.items()} | {kernel.ROW_BUFFER: "row buffer entries"}

_TOO_SOON = {
    kernel.ACCUMULATORS: ("{times.accumulate} cycles after it is written", "needs a fence or the same order"),
    kernel.SCRATCH: ("{times.vector_write} cycles after it is written", "needs a chain, a fence or more "
                                                                        "steps between"),
    kernel.SCALARS: ("{times.scalar_write} cycles after the instruction that writes it",
                     "needs a reduce_fence or more steps between"),
}


def sentence(kind: int, space: int, cell: int, other: str, times: Latencies) -> str:
    """What is wrong with an instruction. `cell` is an address in `space`; `other` names another instruction
    that takes part."""
    what = f"{SPACES[space]} {cell}"
    if kind == kernel.TOO_SOON:
        earliest, mend = (part.format(times=times) for part in _TOO_SOON[space])
        return f"{what} can be read {earliest}, by {other}; this instruction may read it sooner: it {mend}"
    return {
        kernel.UNWRITTEN: f"{what} must be written before it is read; nothing in this command has written it",
        kernel.RACE_READ: f"{what} is read here and written by {other} of the other engine; no token makes "
                          "this "
                          "instruction wait for that write",
        kernel.RACE_WRITE: f"{what} is written here and read by {other} of the other engine; no token makes "
                           "this "
                           "instruction wait for that read",
        kernel.SELF_READ: f"{what} is written here at an earlier element than it is read; an instruction "
                          "must not read "
                          "what it has written itself",
        kernel.TWICE: f"{what} is written twice by this instruction: its steps overlap",
        kernel.OVERWRITES_CONSTANT: f"{what} belongs to the image; this instruction overwrites it, and the "
                                    "next command "
                                    "would find it changed",
        kernel.OVERWRITES_KEPT: f"{what} is kept from command to command, a tile at a time; this "
                                "instruction overwrites it "
                                "in all tiles",
        kernel.LOST: "results are read before they are overwritten; this instruction overwrites "
                     f"{MANY[space]} of {other}, "
                     "which nothing has read",
        kernel.PARTLY_LOST: f"results are read before they are overwritten; this instruction reads {what} "
                            "of a result of which "
                            f"{other} has overwritten a part that nothing had read",
        kernel.UNUSED: f"accumulators are read by somebody; this product in {what} is not",
        kernel.STALE: f"the words from {what} belong together; some were read before others were computed "
                      f"by {other}, so that "
                      "this instruction mixes an old result with a new one",
        kernel.HIDDEN: f"a mask leaves what was computed; {what} was computed by {other} with the words "
                       "before it and lies "
                       "beyond the length",
        kernel.ALL_HIDDEN: "a mask leaves what was computed; here nothing lies below the length, not even "
                           f"{what} of {other}",
        kernel.NOT_STORABLE: f"the cache stores 8-bit blocks, and columns those with a given scale; {what} "
                             f"by {other} is none",
        kernel.STALE_SUM: f"a product adds to one that is going on; the sum in {what} has already been read "
                          f"by {other}: it "
                          "needs init, or another accumulator",
        kernel.NOT_CUT: f"cache columns beyond the length are void and must meet zeros; {what} by {other} "
                        "is not masked",
        kernel.UNMASKED: f"scores beyond the length are void; {what} by {other} holds some and is read "
                         "without a mask",
        kernel.NOT_OWN: f"{what} is a result of the command, which must write it before HALT; it does not",
        kernel.MIXED: f"the two sequences of a command have nothing in common; {what}, a result of the one"
                      + (f" by {other}" if other else "") + ", takes part here in what is the other's",
        kernel.MIXED_SUM: "the two sequences of a command have nothing in common; this reduction of the one "
                          "continues a reduction of the other",
        kernel.ELSEWHERE: "an instruction works for the same sequence whatever the arguments are; this one "
                          "works for another, or for none, when they change",
        kernel.KEPT_EARLY: f"{what} holds what earlier positions stored; some of it below the length was "
                           "stored by none",
        kernel.KEPT_OTHER: f"{what} holds what positions of another slot stored",
        kernel.KEPT_ORDER: f"{what} holds what this command stores, but only later",
    }[kind]
