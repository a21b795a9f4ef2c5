# amaranth: UnusedElaboratable=no
"""Run the host port's own cocotb tests on each of the faults planted in it."""

from collections.abc import Callable, Iterable
from xml.etree import ElementTree

from hw.config import preset
from tests.cocotb.runner import Built, build, pins
from tests.mutation.faulty import FaultyHost
from tests.mutation.hostfaults import HOST_FAULTS
from tests.mutation.hunt import Catch
from tests.mutation.plant import planted_sources

__all__ = ["hunt_host"]

MODULES = "tests.cocotb.hostport,tests.cocotb.hostrules"
STALLS = ("0", "0.4")
"""Share of cycles in which each channel pauses; what shows without pauses is not looked for with them."""


def hunt_host(numbers: Iterable[int], done: Callable[[Catch], None] = lambda _: None) -> list[Catch]:
    """Plant the faults one after the other and run the tests until one fails.

    `numbers` count from 0 in `HOST_FAULTS`. First all tests run without a fault, which must pass: raises
    `AssertionError` if one does not.
    """
    config = preset("tiny")
    built = build(planted_sources("host", config, HOST_FAULTS), pins(FaultyHost(config)))
    for stalls in STALLS:
        failure = _failure(built, 0, stalls)
        assert failure is None, f"without a fault, all tests must pass: {failure}"
    catches = []
    for number in numbers:
        failures = (_failure(built, number + 1, stalls) for stalls in STALLS)
        by, what = next((failure for failure in failures if failure is not None), (None, None))
        catches.append(Catch(HOST_FAULTS[number], by, what))
        done(catches[-1])
    return catches


def _failure(built: Built, number: int, stalls: str) -> tuple[str, str] | None:
    """The first test that fails with a fault, and what it says; None if none does."""
    results, report = built.test(MODULES, seed=1, FAULT=str(number), STALLS=stalls, COCOTB_MAX_FAILURES="1")
    paused = f", {float(stalls):.0%} pauses" if float(stalls) else ""
    if not results.exists():
        return f"{MODULES}{paused}", f"the simulator died: {report.read_text()[-300:]}"
    cases = list(ElementTree.parse(results).iter("testcase"))
    assert cases, f"{MODULES} must have tests; {results} has none"
    for case in cases:
        for kind in ("failure", "error"):
            if (found := case.find(kind)) is not None:
                return f"`{case.get('classname')}.{case.get('name')}`{paused}", _first_line(found)
    return None


def _first_line(found: ElementTree.Element) -> str:
    """What an assertion says, or the kind of an exception."""
    text = next(iter((found.get("error_msg") or found.get("message") or found.text or "").splitlines()), "")
    return f"{found.get('error_type') or 'failed'}: {text}" if text else found.get("error_type") or "failed"
