"""Drivers of an engine's front (`hw.engine`), and its rules in absolute cycles: for its own bench and for those of the
whole engines.
"""

from collections import deque
from collections.abc import Iterable

from amaranth.lib import data

from tests.cocotb.wires import Sample, Wires

__all__ = ["Rules", "field", "finish", "push", "tokens"]

NEVER = -10_000
"""A cycle before all distances."""


def field(layout: data.StructLayout, word: int, name: str) -> int:
    """A field of a word, unsigned; 0 if its layout has none of that name."""
    if name not in dict(layout):
        return 0
    place = layout[name]
    return word >> place.offset & (1 << place.width) - 1


async def push(wires: Wires, words: Iterable[int], layout: data.StructLayout, pushed: list[int], gaps: float) -> None:
    """Instructions, whenever there is room; `pushed` gets them."""
    for word in words:
        while not wires.get("room") or wires.random.random() < gaps:
            wires.put(push=0, payload=wires.random.getrandbits(layout.size))
            await wires.cycle()
        pushed.append(word)
        wires.put(push=1, payload=word)
        await wires.cycle()
    wires.put(push=0)


async def tokens(wires: Wires, layout: data.StructLayout, pushed: list[int], share: float) -> None:
    """Never fewer in the end than those `pushed` wait for, and never many more."""
    given = 0
    while True:
        wanted = sum(field(layout, word, "wait") for word in pushed)
        give = given < wanted + 3 and wires.random.random() < share
        given += give
        wires.put(token_i=int(give))
        await wires.cycle()


async def finish(wires: Wires, limit: int = 2000) -> None:
    for _ in range(limit):
        await wires.cycle()
        if wires.get("quiet"):
            return
    raise AssertionError(f"seed {wires.seed}: instructions are left after {limit} cycles")


class Rules:
    """What a front does in a cycle, and what it remembers of it.

    Parameters
    ----------
    layout : StructLayout
        Of its instructions.
    sizes : dict
        Parameters of `hw.engine.Front`, without the layout.
    """

    def __init__(self, layout: data.StructLayout, sizes: dict[str, int]) -> None:
        self.layout, self.sizes = layout, sizes
        self.cycle = 0
        self.queue: deque[int] = deque()
        self.tokens, self.due = 0, set[int]()
        # The latest step, the latest step that emitted, the latest first step.
        self.active = self.emitted = self.previous = NEVER
        self.registers: Sample = {}  # not known before the first cycle

    def next(self, seen: Sample) -> Sample:
        """Outputs of the cycle in which the inputs are `seen`."""
        sizes, cycle, first = self.sizes, self.cycle, self.cycle + 1  # the first step of what starts now
        wanted = {"room": int(len(self.queue) < sizes["depth"]), "token_o": int(cycle in self.due), "start": 0,
                  **self.registers}
        self.registers = {"state": len(self.queue) | seen["active"] << 7 | (self.tokens & 0xFF) << 8}
        if seen["active"]:
            self.active = cycle
            if seen["emits"] and sizes["chain_gap"]:
                self.emitted = cycle
        if self.queue:
            wanted["head"] = head = self.queue[0]
            waits = {name: field(self.layout, head, name) for name in ("wait", "fence", "chain", "reduce_fence")}
            wanted["start"] = int(
                (not seen["active"] or seen["last"] == 1)
                and self.tokens >= waits["wait"]
                and not (waits["fence"] and first - self.active < sizes["fence_gap"])
                and not (waits["chain"] and first - self.previous < sizes["chain_gap"])
                and not (waits["reduce_fence"] and first - self.emitted < sizes["scalar_gap"]))
        self.registers["quiet"] = int(
            not self.queue and not seen["push"] and not seen["active"] and first - self.active >= sizes["done_gap"]
            and first - self.emitted >= sizes["scalar_gap"])
        if wanted["start"]:
            self.tokens -= field(self.layout, self.queue.popleft(), "wait")
            self.previous = first
        self.tokens += seen["token_i"]
        if seen["push"]:
            self.queue.append(seen["payload"])
        if seen["last"] and seen["signals"]:
            # Taken up by the other front's register, so that its first step is `done_gap` after this one.
            self.due.add(cycle + sizes["done_gap"] - 2)
        if seen["clear"]:
            self.queue.clear()
            self.tokens, self.due = 0, set()
        self.cycle += 1
        return wanted
