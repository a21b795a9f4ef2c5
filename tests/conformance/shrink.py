"""Make a failing case minimal: leave out parts of its plan, then set fields to zero, while it still fails."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from hw.isa import Instruction
from tests.conformance.plan import Item, Loop, Plan
from tests.conformance.trial import Case

__all__ = ["report", "shrink"]

OPTIONAL = frozenset((
    "b", "c", "c_negate", "d", "function", "w", "w_early", "w_single", "quantize", "quantize_early", "narrow", "given",
    "reduce", "reduce_early", "absolute", "mask", "init", "all", "signal"))
"""Fields that may become zero and leave a legal instruction; addresses would leave their side of a memory."""


def shrink(case: Case, fails: Callable[[Case], bool], budget: int = 600) -> Case:
    """The smallest case found that still `fails`, within `budget` trials. `case` must fail."""
    spent = 0

    def still(candidate: Case) -> bool:
        nonlocal spent
        spent += 1
        return fails(candidate)

    for smaller in (_without, _simpler):
        progress = True
        while progress and spent < budget:
            progress = False
            for plan in smaller(case.plan):
                if spent >= budget:
                    break
                candidate = replace(case, plan=plan)
                if still(candidate):
                    case, progress = candidate, True
                    break
    return case


def report(case: Case, what: str) -> str:
    """A failure as a person wants to read it: what, how to get it again, and the program."""
    lines = "\n".join(f"  {n:3} {instruction}" for n, instruction in enumerate(case.program))
    return f"seed {case.seed}, arguments {case.arguments}: {what}\nafter the program\n{lines}"


def _without(plan: Plan) -> Iterator[Plan]:
    """Plans with a part left out: halves of the sections first, then sections, items, and loops around their body."""
    sections = plan.sections
    count = len(sections)
    for first, last in ((0, count // 2), (count // 2, count)):
        if any(sections[first:last]):
            yield replace(plan, sections=(*sections[:first], *((),) * (last - first), *sections[last:]))
    for n, section in enumerate(sections):
        if len(section) > 1:
            yield replace(plan, sections=(*sections[:n], (), *sections[n + 1:]))
    for n, section in enumerate(sections):
        for shorter in _shorter(section):
            yield replace(plan, sections=(*sections[:n], shorter, *sections[n + 1:]))


def _shorter(items: tuple[Item, ...]) -> Iterator[tuple[Item, ...]]:
    for n, item in enumerate(items):
        yield (*items[:n], *items[n + 1:])
        if isinstance(item, Loop):
            yield (*items[:n], *item.body, *items[n + 1:])
            for body in _shorter(item.body):
                yield (*items[:n], Loop(item.count, body), *items[n + 1:])


def _simpler(plan: Plan) -> Iterator[Plan]:
    """Plans in which one more optional field is zero."""
    for n, section in enumerate(plan.sections):
        for k, item in enumerate(section):
            if not isinstance(item, Instruction):
                continue
            for name, value in item.values.items():
                if value and name in OPTIONAL:
                    simple = Instruction(item.opcode, {f: v for f, v in item.values.items() if f != name})
                    yield replace(plan, sections=(*plan.sections[:n], (*section[:k], simple, *section[k + 1:]),
                                                  *plan.sections[n + 1:]))
