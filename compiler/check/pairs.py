"""Two sequences in one command: why walks of some pairs of their arguments prove all pairs.

The first sequence has the arguments a, the second b, in different slots. Walked are every class of a beside one
b, and every class of b beside one a. The one beside is no real argument: its instructions touch what they touch
with the greatest arguments, in the steps that they take with the least (`Widest`). It is looked at as well,
except for the distances in time of its own instructions, which would mean nothing.

Every walk also notes to which sequence each instruction belongs: to the one whose arguments its registers depend
on, whose results it reads or whose kept words it reads; to neither if there is no such thing. Refused are an
instruction that belongs to both, one that belongs elsewhere in another walk, and a register of both.

Further it is demanded, and checked for every class, that an instruction touches with the greatest arguments all
that it touches with others, and takes no fewer steps with others than with the least; only scratch words that
commands keep, each of which belongs to one slot, may be chosen by the arguments. Then for any a and b:

* A read of the first sequence finds what it finds in the walk of a. Say w wrote it last there. As no
  instruction reads the other sequence's results, w belongs to the first sequence or to neither, so it writes
  the same beside b. Had an instruction of the second sequence written in between beside b, it would have done
  so beside the greatest arguments too. So all that is said of one sequence's data, that it is there, of the right
  kind, not mixed, masked, is said by the walks of that sequence; for the second likewise.
* Two conflicting accesses of the two engines are ordered by tokens that no argument changes, and the later of
  them covers all that earlier ones of its engine cover. Accesses of one sequence are together in the walks of
  that sequence, those of different ones are where both are widest, which is part of every walk.
* The distance of a write and a read of one sequence, or of neither, is a sum over the instructions between
  of terms that grow with their steps. It is least where the other's steps are least, which is the walk of the one.
* Cache rows and kept words of different slots are different (`compiler.check.cache`), and each sequence reads
  those of its own.
* A result is lost when it is overwritten before anybody has read it: by its own sequence, which the walks of that
  sequence show, or by the other, which overwrites nothing that it would not overwrite with the greatest arguments.
"""

import numpy as np

from compiler.check import kernel
from compiler.check.slots import Alike

__all__ = ["Widest"]

_MOVED = ("addresses of a command for two sequences depend on their arguments only among scratch words that commands "
          "keep; ")
_EXCEEDED = {
    "moved": _MOVED + "this one moves",
    "chosen": _MOVED + "this instruction reaches others",
    "grown": "counts of a command for two sequences are greatest at the last position; this one is greater here",
    "longer": "lengths in a command for two sequences are greatest at the last position; this one is greater here",
    "shorter": "a command for two sequences takes the fewest steps at position 0; here it takes fewer",
}


class Widest:
    """Footprints of the greatest arguments with the steps of the least.

    Parameters
    ----------
    steps : int64 (n,)
        Of every instruction with the least arguments.
    instructions, accesses : int64 (n, INSTRUCTION_COLUMNS), (m, ACCESS_COLUMNS)
        The kernel's tables with the greatest arguments.
    access_k : int64 (m,)
        The instruction of each access.
    alike : Alike
        Which accesses choose among kept words, and which these are.
    """

    def __init__(self, steps: np.ndarray, instructions: np.ndarray, accesses: np.ndarray, access_k: np.ndarray,
                 alike: Alike) -> None:
        self.steps, self.instructions, self.accesses = steps, instructions, accesses
        self.access_k, self.alike = access_k, alike

    def shorten(self, sequence: int, instructions: np.ndarray) -> None:
        """Give the instructions that depend on a sequence's arguments their least steps."""
        mine = instructions[:, kernel.OWNER] == sequence
        instructions[mine, kernel.STEPS] = self.steps[mine]

    def exceeded(self, sequence: int, instructions: np.ndarray, accesses: np.ndarray) -> list[tuple[int, str, str]]:
        """What a class of one sequence has beyond the limits: instruction, kind and problem, a few of them."""
        of, access, most = instructions[:, kernel.OWNER] == sequence, accesses, self.accesses
        mine = of[self.access_k]
        moved = mine & ~self.alike.chooses & (access[:, kernel.BASE] != most[:, kernel.BASE])
        grown = mine & ((access[:, kernel.OUTER] > most[:, kernel.OUTER])
                        | (access[:, kernel.INNER] > most[:, kernel.INNER]))
        longer = of & (instructions[:, kernel.MASKED] != 0) & (
            instructions[:, kernel.LIVE] > self.instructions[:, kernel.LIVE])
        shorter = of & (instructions[:, kernel.STEPS] < self.steps)
        kept, reached = self.alike.count(access)
        chosen = mine & self.alike.chooses & (kept < reached)
        instruction_of = self.access_k
        out = []
        for kind, found in (("moved", instruction_of[np.flatnonzero(moved)]),
                            ("chosen", instruction_of[np.flatnonzero(chosen)]),
                            ("grown", instruction_of[np.flatnonzero(grown)]),
                            ("longer", np.flatnonzero(longer)), ("shorter", np.flatnonzero(shorter))):
            out += [(int(k), kind, _EXCEEDED[kind]) for k in found[:20]]
        return out
