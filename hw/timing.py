"""The cycle distances that programs, schedules and the timing model depend on, derived from `hw.latency`.

Names as in docs/machine.md, chapter Time. The core is built so that these are true; the timing model adds them.
"""

from dataclasses import dataclass

from hw import latency
from hw.config import HardwareConfig

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
    # Address, memory, operand select (row element conversion runs beside the memory's second stage), lane.
    to_sum = 1 + 1 + 1 + latency.CONVERT + latency.MULTIPLY + latency.ADD
    to_result = to_sum + latency.SPECIAL + latency.MULTIPLY
    return Latencies(
        start=2,
        sequencer=3,
        push=2,
        pop=1,
        # Accumulator read, adder, write.
        accumulate=latency.ADD + 2,
        # Address, array, dot unit, accumulator read, adder, write.
        matrix_done=1 + 1 + latency.DOT + 1 + latency.ADD + 1,
        vector_write=to_result + 1,
        # The quantizer is the longest way into a memory that a token guards.
        vector_done=to_result + 1 + latency.QUANTIZE + 1,
        # Reduction, scalar register.
        scalar_write=to_result + latency.reduce_depth(config.tiles) + 1,
        halt=1,
        host_read=3,
    )
