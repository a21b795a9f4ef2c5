"""Why bits of some signals do not toggle."""

import re

__all__ = ["reason"]

REASONS: tuple[tuple[str, str, str], ...] = ()


def reason(module: str, signal: str) -> str:
    """The first that fits, or that none is known."""
    for where, what, why in REASONS:
        if re.search(where, module) and re.search(what, signal):
            return why
    return "not reached by the stimuli"
