"""What the compiler may decide one way or another, all of it priced: kernels, cuts and orders.

Different kernels may round differently (a sum of squares taken before or after an addition does not); what they
compute is the same formula.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from compiler.ir import Op

__all__ = ["Choices"]


@dataclass(frozen=True)
class Choices:
    """One way to compile an entry point.

    Parameters
    ----------
    kernels : mapping of Op to str
        The kernel of each operation that has several (`compiler.kernels.registry`).
    split : tuple of int
        Blocks after which the pass that makes an operand is cut, so that its product can start on the first part.
    chunk : int
        The feed-forward is worked on in chunks of 1/chunk of the accumulators.
    heads : int
        Most query heads whose scores wait in accumulators at once; 0 for all of a group.
    order : str
        What the scheduler prefers among the ready: "program" order, or the longest way to the end ("urgent").
    """

    kernels: Mapping[Op, str] = field(default_factory=lambda: MappingProxyType({}))
    split: tuple[int, ...] = (1, 3, 7)
    chunk: int = 16
    heads: int = 0
    order: str = "program"

    def with_kernel(self, op: Op, name: str) -> "Choices":
        """These choices with another kernel for one operation."""
        return replace(self, kernels=MappingProxyType({**self.kernels, op: name}))

    def __str__(self) -> str:
        kernels = ", ".join(f"{op.value}: {name}" for op, name in sorted(self.kernels.items()))
        return (f"split {list(self.split)}, chunk 1/{self.chunk}, heads {self.heads or 'all'}, order {self.order}"
                + (f", {kernels}" if kernels else ""))
