"""Column numbers of `hw.isa.decode_table` as module constants: ``M_NJ``, ``V_INNER``, ``C_COUNT``.

Compiled code treats module constants as literals, so that the interpreters of the functional and the timing model read
a field at the cost of one load. The names are made from the instruction table; nothing here repeats an order.
"""

import numpy as np

from hw.isa import CONTROL, MATRIX, VECTOR, Format

# The constants themselves are added below and have no place in a list of names.
__all__ = ["COLUMNS", "MATRIX_SUMS", "MATRIX_VALUES", "VECTOR_SUMS", "VECTOR_VALUES"]

COLUMNS = 1 + max(len(form.fields) for form in (CONTROL, MATRIX, VECTOR))
"""Columns of a decoded table."""


def _columns(form: Format) -> dict[str, int]:
    return {f.name: column for column, f in enumerate(form.fields, 1)}


def _registers(form: Format) -> tuple[np.ndarray, np.ndarray]:
    """Pairs (column, column of the register added to it), and columns of registers that stand alone."""
    columns = _columns(form)
    sums, alone = [], []
    for name, column in columns.items():
        if name.endswith("_reg"):
            base = columns.get(name.removesuffix("_reg"))
            if base is None:
                alone.append(column)
            else:
                sums.append((base, column))
    return np.array(sums, np.int64), np.array(alone, np.int64)


MATRIX_SUMS, MATRIX_VALUES = _registers(MATRIX)
"""Fields that a register is added to, int64 (n, 2); fields that stand for a register's value, int64 (n,)."""
VECTOR_SUMS, VECTOR_VALUES = _registers(VECTOR)

for _prefix, _form in (("C", CONTROL), ("M", MATRIX), ("V", VECTOR)):
    for _name, _column in _columns(_form).items():
        globals()[f"{_prefix}_{_name.upper()}"] = _column


def __getattr__(name: str) -> int:
    # Only reached for a name that the instruction table does not give; declares the type of those it does.
    raise AttributeError(f"no instruction field is called {name!r}; see hw.isa")
