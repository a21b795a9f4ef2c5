"""Why bits of some signals do not toggle."""

import re

__all__ = ["UNKNOWN", "reason"]

UNKNOWN = "not reached by the stimuli"

REASONS: tuple[tuple[str, str, str], ...] = (
    (r"", r"cycles", "the upper bits of a counter: such a command would run for hours here"),
    (r"^wordline_ram", r"^q_1$", "the second read port of a memory that needs one"),
    (r"matrix|vector|sequencer|core", r"payload|head|^now|signature__data|read__data|^matrix|^vector",
     "fields of an instruction: more tokens, larger addresses, steps and counts than programs of this device have"),
    (r"", r"engines|state", "numbers of what waits, wider than queues of this depth need"),
    (r"", r"^\$", "an intermediate result without a name"),
)
"""Module, signal, why; both are regular expressions, and the first that fits counts."""


def reason(module: str, signal: str) -> str:
    """Why the bits of a signal that do not toggle do not, or that nothing is known."""
    for where, what, why in REASONS:
        if re.search(where, module) and re.search(what, signal):
            return why
    return UNKNOWN
