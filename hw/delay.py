"""Delay lines."""

from amaranth import Module, Signal, Value
from amaranth.lib import data

__all__ = ["delay"]


def delay(m: Module, value, cycles: int, name: str, domain: str = "sync"):
    """The value some clocks later, of the same layout; `name` names the registers."""
    for n in range(1, cycles + 1):
        if isinstance(value, data.View):
            later = Signal(value.shape(), name=f"{name}_{n}")
        else:
            later = Signal(Value.cast(value).shape(), name=f"{name}_{n}")
        m.d[domain] += later.eq(value)
        value = later
    return value
