"""Where the cycles of a command go: the timing model's records summed by operator and by cause.

The recurrence is in `hw.timemodel`; this page reads what it recorded.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hw.config import HardwareConfig
from hw.timemodel import RECORD, Prediction, Stall, predict

__all__ = ["OperatorTime", "RECORD", "Prediction", "Stall", "matrix_stalls", "operator_times", "predict", "table"]


@dataclass(frozen=True)
class OperatorTime:
    """One operator's share of a command.

    Parameters
    ----------
    name : str
        The operator.
    instructions : int
        Executed for it, on both engines.
    row_reads : int
        Array rows that every tile read for it.
    matrix_busy, vector_busy : int
        Steps of each engine.
    stalled : int
        Cycles that the matrix engine idled in front of its instructions.
    """

    name: str
    instructions: int
    row_reads: int
    matrix_busy: int
    vector_busy: int
    stalled: int


def operator_times(records: np.ndarray, operators: Sequence[tuple[int, int, str]]) -> list[OperatorTime]:
    """Sums by operator in the order of `operators`, half-open ranges of microcode addresses with a name.

    Ranges of one name are added up; instructions outside of all ranges appear as ``other``.
    """
    names = list(dict.fromkeys([*(name for _, _, name in operators), "other"]))
    owner = np.full(len(records), len(names) - 1)
    for first, end, name in operators:
        owner[(records["address"] >= first) & (records["address"] < end)] = names.index(name)
    matrix = records["engine"] == 0
    busy = records["last"] - records["first"] + 1

    def total(values: np.ndarray) -> np.ndarray:
        return np.bincount(owner, weights=values, minlength=len(names)).astype(np.int64)

    columns = (total(np.ones(len(records))), total(records["useful"]), total(busy * matrix), total(busy * ~matrix),
               total(records["stalled"] * matrix))
    return [OperatorTime(name, *(int(column[k]) for column in columns))
            for k, name in enumerate(names) if columns[0][k]]


def matrix_stalls(prediction: Prediction) -> dict[str, int]:
    """Cycles in which the matrix engine read no row that the program needs, by cause.

    They are, with `row_reads`, all cycles of the command: waiting for the sequencer, a token or a fence; ``padding`` of
    passes shorter than the accumulator's loop, steps of ``stores``, and the ``end`` behind the last step.
    """
    if prediction.records is None:
        raise ValueError("stalls are counted from records; predict with record=True")
    matrix = prediction.records[prediction.records["engine"] == 0]
    causes = {stall.name.lower(): int(matrix["stalled"][matrix["stall"] == stall].sum()) for stall in Stall if stall}
    idle = matrix["last"] - matrix["first"] + 1 - matrix["useful"]
    causes["padding"] = int(idle[matrix["useful"] > 0].sum())
    causes["stores"] = int(idle[matrix["useful"] == 0].sum())
    causes["end"] = prediction.cycles - (int(matrix["last"][-1]) + 1 if len(matrix) else 0)
    return {cause: cycles for cause, cycles in causes.items() if cycles}


def table(config: HardwareConfig, prediction: Prediction, operators: Sequence[tuple[int, int, str]]) -> str:
    """A page about one command for people, operators with most matrix time first."""
    lines = [f"{config.name}: {prediction.cycles} cycles, {100 * prediction.utilisation:.1f} % of them read a row "
             f"that is needed",
             f"{'operator':24} {'instr.':>7} {'rows':>9} {'matrix':>9} {'stalled':>9} {'vector':>9}"]
    times = operator_times(prediction.records if prediction.records is not None else np.zeros(0, RECORD), operators)
    lines += [f"{t.name:24} {t.instructions:7} {t.row_reads:9} {t.matrix_busy:9} {t.stalled:9} {t.vector_busy:9}"
              for t in sorted(times, key=lambda t: -(t.matrix_busy + t.stalled))]
    lines += [f"{cause:24} {'':7} {cycles:9}" for cause, cycles in
              (matrix_stalls(prediction) if prediction.records is not None else {}).items()]
    return "\n".join(lines)
