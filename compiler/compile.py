"""The compiler from end to end: a model file and a device configuration to an image."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from compiler import dispatch, tables, tokenizer_json
from compiler.build import build_graph
from compiler.check import check
from compiler.choices import Choices
from compiler.context import ARGUMENTS
from compiler.errors import ModelFileError, PlacementError
from compiler.frontends.load import load_model
from compiler.fuse import fuse
from compiler.geometry import Geometry
from compiler.ir import Graph
from compiler.place import Placement, contents, place
from compiler.program import entry_point
from compiler.quant import Blocks
from compiler.roll import Listing
from compiler.source import ModelSource
from hw.config import BLOCK, HardwareConfig
from hw.image import Entry, Image, KvLayout
from hw.isa import encode

__all__ = ["ACTIVATIONS", "Progress", "compile_model", "compile_source"]

Progress = Callable[[str, float], None]
"""Called with what is being done and the share of it that is."""

ACTIVATIONS = {"silu": "sigmoid", "gelu_tanh": "gelu_tanh", "gelu": "gelu", "relu": "step"}
"""Activation f -> the table g with f(x) = x * g(x)."""

SEARCH_ATTEMPTS = 200
"""Attempts of the local search for each context length, about ten seconds."""

BUCKETS = (256, 1024)
"""Context lengths below the longest that get entry points of their own: short ones keep all heads in flight."""


def _nothing(what: str, share: float) -> None:
    pass


def compile_model(path: Path | str, config: HardwareConfig, *, context: int | None = None, slots: int = 1,
                  effort: int = 2, checked: bool = True, progress: Progress | None = None,
                  print_after: Callable[[str, object], None] | None = None) -> Image:
    """Compile a model file.

    Parameters
    ----------
    context : int
        Longest sequence in tokens, rounded up to a multiple of 32; the model's own, at most 2048, if not given.
    slots : int
        Sequences that the KV cache holds at once.
    effort : int
        1 takes every default, 2 prices the alternatives (`compiler.dispatch`), 3 also searches for better orders.
    checked : bool
        Prove the finished image free of hazards (`compiler.check`).
    progress : callable
        Receives (what, share).
    print_after : callable
        Receives each stage's name and result, which prints.

    Raises
    ------
    ModelFileError, PlacementError
        For a file that cannot be read or carried, and for a model that does not fit.
    CheckError
        For a program that the checker refuses: a fault of the compiler.
    """
    (progress or _nothing)("reading", 0.0)
    return compile_source(load_model(path), config, context=context, slots=slots, effort=effort, checked=checked,
                          progress=progress, print_after=print_after)


def compile_source(source: ModelSource, config: HardwareConfig, *, context: int | None = None, slots: int = 1,
                   effort: int = 2, checked: bool = True, progress: Progress | None = None,
                   print_after: Callable[[str, object], None] | None = None) -> Image:
    """Compile a model that a frontend has read; see `compile_model`."""
    tell = progress or _nothing
    show = print_after or (lambda name, result: None)
    shape = source.shape
    if shape.activation not in ACTIVATIONS:
        raise ModelFileError(f"{source.path}: activation {shape.activation!r} is not supported; supported are "
                             f"{', '.join(ACTIVATIONS)}")
    if context is not None and not 1 <= context <= shape.context:
        raise PlacementError(f"the context must be 1 to {shape.context} tokens, what the model was trained for; "
                             f"got {context}")
    context = -(-(context or min(2048, shape.context)) // BLOCK) * BLOCK
    geometry = Geometry(shape, config, context, slots)

    graph = build_graph(shape)
    graph.verify()
    show("build", graph)
    fuse(graph, show)

    def carry(name: str) -> Blocks:
        tell(f"reading {name}", 0.0)
        blocks = source.weights[name].blocks()
        if blocks.format not in config.formats:
            raise PlacementError(f"{source.weights[name].file_name!r} needs the row format {blocks.format!r}; "
                                 f"{config.name!r} has {', '.join(config.formats)}: use another preset or file")
        return blocks

    placement = place(source, geometry, carry)
    show("place", placement)

    gate = ACTIVATIONS[shape.activation]
    fitted = [tables.fitted(name) for name in ("exp2", "recip", "rsqrt", "scale", gate)]
    coefficients, descriptors, numbers = tables.pack(fitted)
    numbers[shape.activation] = numbers[gate]

    with ThreadPoolExecutor(1) as pool:
        packing = pool.submit(contents, placement, source, tell)
        program = _program(graph, placement, numbers, effort, show, tell)
        memory = packing.result()
    words = encode(program.listing.words)
    losses = {name: {"worst": loss.worst, "snr_db": min(loss.snr_db, 999.0)}
              for name, loss in placement.losses.items() if not loss.exact}
    image = Image(
        config=config, entries=program.entries, kv=KvLayout(slots, context),
        logits=(placement.words["logits"].base, shape.vocab), argmax=program.argmax, array=memory["array"],
        scratch=memory["scratch"], scalars=memory["scalars"], microcode=words, tables=coefficients,
        functions=descriptors, operators=_operators(program.listing.labels),
        text=tokenizer_json.image_text(source.tokenizer, source.chat_template),
        model={"name": source.name, "architecture": source.architecture, "licence": source.licence,
               "sha256": source.sha256, "shape": asdict(shape)},
        report={
            "rows": placement.rows.used, "scratch": placement.scratch.used, "instructions": len(words),
            "formats": _formats(placement), "losses": losses, "functions": [str(f) for f in fitted],
            "needed_rows": _needed_rows(placement), "decisions": program.decisions,
            "regions": {m.name: [[r.name, r.base, r.size] for r in m.regions]
                        for m in (placement.rows, placement.scratch, placement.scalars)},
            "pools": {name: list(used) for name, used in program.pools.items()},
        })
    if checked:
        tell("checking", 0.0)
        report = check(image)
        if not report.ok:
            raise report.errors[0]
        image.report["checked"] = str(report)
    return image


@dataclass
class _Program:
    """All entry points in one listing."""

    listing: Listing
    entries: dict[str, Entry]
    argmax: int
    decisions: dict[str, list[str]]
    pools: dict[str, tuple[int, int]]


def _program(graph: Graph, placement: Placement, functions: dict[str, int], effort: int,
             show: Callable[[str, object], None], tell: Progress) -> _Program:
    """Compile every entry point, by the cheapest of the priced choices."""
    geometry = placement.geometry
    small = fuse(build_graph(replace(geometry.shape, layers=min(dispatch.LAYERS, geometry.shape.layers))))
    out = _Program(Listing(), {}, 0, {}, {})
    buckets = sorted({*(b for b in BUCKETS if b < geometry.context), geometry.context})
    for below, bucket in zip([0, *buckets], buckets, strict=False):
        tell(f"scheduling for contexts up to {bucket}", buckets.index(bucket) / len(buckets))
        choices, decisions = Choices(), []
        ranks: dict[str, Sequence[int]] | None = None
        if effort >= 2:
            choices, decided = dispatch.choose(small, placement, functions, bucket, below)
            decisions = [str(d) for d in decided]
        if effort >= 3:
            ranks, found = dispatch.search(small, placement, functions, bucket, below, choices, SEARCH_ATTEMPTS)
            decisions.append(f"{'search':14} -> {found.before - found.after} of {found.before:,} cycles gained in "
                             f"{found.attempts} attempts")
        for kind, logits in (("prefill", False), ("decode", True)):
            capacity = geometry.config.microcode - len(out.listing.words)
            entry = entry_point(graph, placement, functions, bucket, logits, choices, capacity, ranks)
            name = f"{kind}@{bucket}"
            show(name, "\n".join(f"{label:32} {word}" for word, label in
                                 zip(entry.listing.words, entry.listing.labels, strict=True)))
            out.entries[name] = Entry(len(out.listing.words), ARGUMENTS, bucket)
            out.listing.words += entry.listing.words
            out.listing.labels += entry.listing.labels
            out.argmax = entry.argmax
            for memory, (used, size) in entry.pools.used.items():
                out.pools[memory] = (max(used, out.pools.get(memory, (0, 0))[0]), size)
        out.decisions[f"contexts up to {bucket}"] = decisions
    return out


def _needed_rows(placement: Placement) -> dict[str, int]:
    """Rows that every tile must read for one token: the weights; the cache adds its share with the context."""
    embedding = placement.weights["token_embedding"]
    output = placement.weights.get("output", embedding)
    layers = sum(w.lines * w.blocks for name, w in placement.weights.items() if name.startswith("layers."))
    return {"layers": layers, "output": output.lines * output.blocks}


def _formats(placement: Placement) -> dict[str, int]:
    out: dict[str, int] = {}
    for weight in placement.weights.values():
        out[weight.format] = out.get(weight.format, 0) + weight.lines * weight.blocks
    return out


def _operators(labels: list[str]) -> list[tuple[int, int, str]]:
    """Runs of equal labels as half-open address ranges."""
    out: list[tuple[int, int, str]] = []
    for address, label in enumerate(labels):
        if out and out[-1][2] == label:
            out[-1] = (out[-1][0], address + 1, label)
        else:
            out.append((address, address + 1, label))
    return out
