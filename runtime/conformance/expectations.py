"""What which kind of device cannot do, and why: capabilities that do not apply, and cases that are known to fail.

A case of an unsupported capability is skipped with its reason. A case that is expected to fail runs, and one that
passes all the same is an error: then the line here is to be deleted.
"""

__all__ = ["CAPABILITIES", "EXPECTED_FAILURES", "UNSUPPORTED", "unsupported"]

CAPABILITIES = {
    "identity": "says what it is",
    "memory": "keeps what the host writes",
    "results": "carries out programs",
    "commands": "takes commands and completes them in order",
    "time": "reports cycles",
    "queue": "orders work by queues and semaphores",
    "allocation": "gives out its memories",
    "model": "holds a model and proves that it does",
    "recovery": "fails in the open and comes back",
    "hang": "says where a program is stuck",
    "recording": "can be recorded and replayed",
}

UNSUPPORTED: dict[str, dict[str, str]] = {
    "null": {
        "memory": "it keeps nothing",
        "results": "it computes nothing",
        "time": "its commands take no time",
        "model": "it keeps nothing, so nothing can be proven",
        "hang": "its commands complete at once, whatever the program",
        "recording": "a recording of it would be of zeros",
    },
    "replay": {capability: "it answers only what was recorded" for capability in CAPABILITIES},
    "faulty": {
        "recording": "faults happen once, so a recording would not repeat",
        "recovery": "it has faults of its own",
    },
}
"""By scheme and capability, the reason."""

EXPECTED_FAILURES: dict[str, dict[str, str]] = {}
"""By scheme and test function, the reason."""


def unsupported(scheme: str, capability: str) -> str | None:
    """Why a kind of device does not have a capability; None when it has."""
    return UNSUPPORTED.get(scheme, {}).get(capability)
