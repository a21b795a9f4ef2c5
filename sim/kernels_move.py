"""Moving one word of sixteen lanes at once, on any processor.

A loop of sixteen moves stays a loop, because the compiler must fear that source and target overlap.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

__all__ = ["LANES", "move_word"]

LANES = 16
"""Lanes of the words moved."""


def _move_word(typing: Any, target: Any, at: Any, source: Any, place: Any) -> Any:
    """Copy 16 elements of 32 bits from flat element `place` of one contiguous array to flat element `at` of another.

    Nothing is checked.
    """
    signature = types.void(target, types.int64, source, types.int64)

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        vector = ir.VectorType(ir.IntType(32), LANES)

        def pointer(k: int) -> ir.Value:
            data = context.make_array(sig.args[k])(context, builder, arguments[k]).data
            words = builder.bitcast(data, ir.IntType(32).as_pointer())
            return builder.bitcast(builder.gep(words, [arguments[k + 1]]), vector.as_pointer())

        builder.store(builder.load(pointer(2), align=4), pointer(0), align=4)
        return context.get_dummy_value()

    return signature, generate


move_word: Any = intrinsic(_move_word)
