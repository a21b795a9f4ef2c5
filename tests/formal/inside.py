"""Signals inside a component by their names in its `elaborate`, for invariants that induction needs."""

import sys
from typing import Any

from amaranth.hdl import Fragment

__all__ = ["opened"]


def opened(component: Any) -> tuple[Any, dict[str, Any]]:
    """The elaborated component, to be added as a submodule, and the local names of its `elaborate`."""
    code, names = type(component).elaborate.__code__, {}

    def returned(frame, event, _argument):
        if event == "return" and frame.f_code is code:
            names.update(frame.f_locals)

    before = sys.getprofile()
    sys.setprofile(returned)
    try:
        fragment = Fragment.get(component, "formal")
    finally:
        sys.setprofile(before)
    return fragment, names
