"""All entry points of a program: one pair for each range of context lengths, by the cheapest of the priced choices."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from compiler import dispatch
from compiler.build import build_graph
from compiler.choices import Choices
from compiler.context import ARGUMENTS
from compiler.fuse import fuse
from compiler.ir import Graph
from compiler.place import Placement
from compiler.program import entry_point
from compiler.roll import Listing
from hw.image import Entry

__all__ = ["BUCKETS", "Program", "build_program"]

BUCKETS = (256, 1024)
"""Context lengths below the longest that get entry points of their own: short ones keep all heads in flight."""

SEARCH_ATTEMPTS = 200
"""Attempts of the local search for each context length, about ten seconds."""


@dataclass
class Program:
    """All entry points in one listing.

    `argmax`: the scalar with the best token of each sequence. `decisions`: what was decided for each range of
    contexts. `pools`: most entries alive at once, and how many there are, by memory.
    """

    listing: Listing = field(default_factory=Listing)
    entries: dict[str, Entry] = field(default_factory=dict)
    argmax: tuple[int, ...] = ()
    decisions: dict[str, list[str]] = field(default_factory=dict)
    pools: dict[str, tuple[int, int]] = field(default_factory=dict)

    def operators(self) -> list[tuple[int, int, str]]:
        """Runs of equal labels as half-open address ranges."""
        out: list[tuple[int, int, str]] = []
        for address, label in enumerate(self.listing.labels):
            if out and out[-1][2] == label:
                out[-1] = (out[-1][0], address + 1, label)
            else:
                out.append((address, address + 1, label))
        return out


@dataclass
class _Way:
    """How the entry points of one range of contexts are compiled."""

    choices: Choices = field(default_factory=Choices)
    ranks: dict[str, Sequence[int]] | None = None

    def decide(self, graph: Graph, placement: Placement, functions: dict[str, int], bucket: int, below: int,
               sequences: int, effort: int, kernels: Choices | None) -> list[str]:
        """Price the alternatives, and search if asked for; returns what was decided, a line each."""
        if effort < 2:
            return []
        self.choices, decided = dispatch.choose(graph, placement, functions, bucket, below, sequences, kernels)
        lines = [str(d) for d in decided]
        if effort >= 3 and sequences == 1:
            self.ranks, found = dispatch.search(graph, placement, functions, bucket, below, self.choices,
                                                SEARCH_ATTEMPTS)
            lines.append(str(found))
        return lines


def build_program(graph: Graph, placement: Placement, functions: dict[str, int], effort: int,
                  show: Callable[[str, object], None], tell: Callable[[str, float], None]) -> Program:
    """Compile every entry point of the fused `graph`.

    `effort` 1 takes defaults, 2 prices alternatives, 3 also searches. `show` receives every listing, `tell` progress.
    """
    geometry = placement.geometry
    small = fuse(build_graph(replace(geometry.shape, layers=min(dispatch.LAYERS, geometry.shape.layers))))
    out = Program()
    buckets = sorted({*(b for b in BUCKETS if b < geometry.context), geometry.context})
    first: Choices | None = None
    for below, bucket in zip([0, *buckets], buckets, strict=False):
        tell(f"scheduling for contexts up to {bucket}", buckets.index(bucket) / len(buckets))
        ways = {1: _Way(), 2: _Way()}
        for sequences in (1, 2) if geometry.pairs else (1,):
            decided = ways[sequences].decide(small, placement, functions, bucket, below, sequences, effort, first)
            first = first or ways[sequences].choices
            out.decisions[f"contexts up to {bucket}" + (", pairs" if sequences == 2 else "")] = decided
        kinds = [("prefill", False, 1), ("decode", True, 1)] + ([("pair", True, 2)] if geometry.pairs else [])
        for kind, logits, sequences in kinds:
            choices, ranks = ways[sequences].choices, ways[sequences].ranks
            capacity = geometry.config.microcode - len(out.listing.words)
            entry = entry_point(graph, placement, functions, bucket, logits, choices, capacity, ranks,
                                sequences)
            name = f"{kind}@{bucket}"
            arguments = ARGUMENTS + (tuple(f"{a}2" for a in ARGUMENTS) if sequences == 2 else ())
            show(name, "\n".join(f"{label:32} {word}" for word, label in
                                 zip(entry.listing.words, entry.listing.labels, strict=True)))
            out.entries[name] = Entry(len(out.listing.words), arguments, bucket)
            out.listing.words += entry.listing.words
            out.listing.labels += entry.listing.labels
            out.argmax = max(out.argmax, entry.argmax, key=len)
            assert out.argmax[:len(entry.argmax)] == entry.argmax
            for memory, (used, size) in entry.pools.used.items():
                out.pools[memory] = (max(used, out.pools.get(memory, (0, 0))[0]), size)
    return out
