"""The cycle distances that programs, schedules and the timing model depend on, derived from `hw.latency`.

Names as in docs/machine.md, chapter Time. The core is built so that these are true; the timing model adds them.
"""

from dataclasses import dataclass

from hw import latency, stages
from hw.config import REGISTERS, HardwareConfig

__all__ = ["Latencies", "latencies"]


@dataclass(frozen=True)
class Latencies:
    """Distances in cycles of one device.

    Parameters
    ----------
    start : int
        From the acceptance of a command to the first cycle of its first word.
    sequencer : int
        Cycles of every microcode word.
    push : int
        From the push of an instruction to its earliest first step.
    pop : int
        From the first step of an instruction to the earliest push into the queue entry it leaves.
    accumulate : int
        Shortest pass of MULTIPLY over its accumulators: the loop through the accumulator's adder.
    matrix_done : int
        From the last step of a matrix instruction until all its results are in their memories.
    vector_write : int
        From a step of a vector instruction to the earliest step that may read the scratch word it wrote.
    vector_done : int
        From the last step of a vector instruction until scratch and operand blocks hold its results.
    scalar_write : int
        From the last step of a vector instruction to the earliest step that may read the scalar it emitted.
    halt : int
        From the last event of a command (HALT taken, every result written) to its completion.
    host_read : int
        From `host_read` to a valid `host_q`.
    """

    start: int
    sequencer: int
    push: int
    pop: int
    accumulate: int
    matrix_done: int
    vector_write: int
    vector_done: int
    scalar_write: int
    halt: int
    host_read: int


def latencies(config: HardwareConfig) -> Latencies:
    """The distances of the device described by `config`."""
    return Latencies(
        # Registers are written one by one.
        start=REGISTERS + 1,
        sequencer=2,
        # Resolved word, queue, first addresses.
        push=3,
        pop=0,
        # The accumulator's memory passes a write on to a read of the same cycle.
        accumulate=stages.ACC_WRITE - stages.ACC_READ,
        matrix_done=stages.ACC_WRITE + 1,
        vector_write=stages.RESULT + 1,
        # The quantizer is the longest way into a memory that a token guards; the matrix engine reads blocks in its
        # stage 1.
        vector_done=stages.RESULT + latency.QUANTIZE,
        scalar_write=stages.RESULT + latency.reduce_depth(config.tiles) + 1,
        halt=1,
        # Input register, control word, memory, row register, output register.
        host_read=5,
    )
