"""The compiler from end to end: a model file and a device configuration to an image."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import numpy as np

from compiler import tables, tokenizer_json
from compiler.build import build_graph
from compiler.check import check
from compiler.entries import build_program
from compiler.errors import ModelFileError, PlacementError
from compiler.frontends.load import load_model
from compiler.fuse import fuse
from compiler.geometry import Geometry
from compiler.ir import Graph
from compiler.kvplanes import kv_planes
from compiler.place import Placement, contents, place
from compiler.quant import Blocks
from compiler.source import ModelShape, ModelSource, weight_names
from hw.config import BLOCK, LINE_WORDS, HardwareConfig
from hw.image import Image, KvLayout
from hw.isa import encode

__all__ = ["ACTIVATIONS", "Progress", "compile_model", "compile_shape", "compile_source"]

Progress = Callable[[str, float], None]
"""Called with what is being done and the share of it that is."""

ACTIVATIONS = {"silu": "sigmoid", "gelu_tanh": "gelu_tanh", "gelu": "gelu", "relu": "step"}
"""Activation f -> the table g with f(x) = x * g(x)."""

def _nothing(what: str, result: object) -> None:
    pass


def compile_model(path: Path | str, config: HardwareConfig, *, context: int | None = None, slots: int = 1,
                  pairs: bool = False, effort: int = 2, checked: bool = True, progress: Progress | None = None,
                  print_after: Callable[[str, object], None] | None = None) -> Image:
    """Compile a model file.

    Parameters
    ----------
    context : int
        Longest sequence in tokens, rounded up to a multiple of 32; the model's own, at most 2048, if not given.
    slots : int
        Sequences that the KV cache holds at once.
    pairs : bool
        Whether to add entry points that decode for two sequences at once.
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
    return compile_source(load_model(path), config, context=context, slots=slots, pairs=pairs, effort=effort,
                          checked=checked, progress=progress, print_after=print_after)


def compile_source(source: ModelSource, config: HardwareConfig, *, context: int | None = None, slots: int = 1,
                   pairs: bool = False, effort: int = 2, checked: bool = True, progress: Progress | None = None,
                   print_after: Callable[[str, object], None] | None = None) -> Image:
    """Compile a model that a frontend has read; see `compile_model`."""
    tell, show = progress or _nothing, print_after or _nothing
    shape = source.shape
    if shape.activation not in ACTIVATIONS:
        raise ModelFileError(f"{source.path}: activation {shape.activation!r} is not supported; supported are "
                             f"{', '.join(ACTIVATIONS)}")

    def carry(name: str) -> Blocks:
        tell(f"reading {name}", 0.0)
        blocks = source.weights[name].blocks()
        if blocks.format not in config.formats:
            raise PlacementError(f"{source.weights[name].file_name!r} needs the row format {blocks.format!r}; "
                                 f"{config.name!r} has {', '.join(config.formats)}: use another preset or file")
        return blocks

    graph, placement = _placed(shape, config, context, slots, pairs, carry, show)
    with ThreadPoolExecutor(1) as pool:
        packing = pool.submit(contents, placement, source, tell)
        image = _image(graph, placement, effort, show, tell)
        image.array, image.scratch, image.scalars = packing.result()
    image.text = tokenizer_json.image_text(source.tokenizer, source.chat_template)
    image.model |= {"name": source.name, "architecture": source.architecture, "licence": source.licence,
                    "sha256": source.sha256}
    if checked:
        tell("checking", 0.0)
        report = check(image)
        if not report.ok:
            raise report.errors[0]
        image.report["checked"] = str(report)
    return image


def compile_shape(shape: ModelShape, formats: Callable[[str], str], config: HardwareConfig, *,
                  context: int | None = None, slots: int = 1, pairs: bool = False, effort: int = 2) -> Image:
    """The program of a model of some shape without its weights: for the timing model, in a second.

    `formats` gives the row format ("q8", "q4", "f4") of a weight by its name (`compiler.source.weight_names`). The
    image holds no rows: a device would compute zeros, in exactly the cycles of the real model.
    """
    shapes = weight_names(shape)

    def carry(name: str) -> Blocks:
        outputs, inputs = shapes[name]
        blocks = -(-inputs // BLOCK)
        codes = np.broadcast_to(np.int8(0), (outputs, blocks, BLOCK))
        scales = np.broadcast_to(np.uint16(0), (outputs, blocks))
        return Blocks(formats(name), inputs, codes, scales, scales)

    return _image(*_placed(shape, config, context, slots, pairs, carry, _nothing), effort, _nothing, _nothing)


def _placed(shape: ModelShape, config: HardwareConfig, context: int | None, slots: int,
            pairs: bool, carry: Callable[[str], Blocks],
            show: Callable[[str, object], None]) -> tuple[Graph, Placement]:
    """The fused graph, and where everything lies."""
    if context is not None and not 1 <= context <= shape.context:
        raise PlacementError(f"the context must be 1 to {shape.context} tokens, what the model was trained for; "
                             f"got {context}")
    context = -(-(context or min(2048, shape.context)) // BLOCK) * BLOCK
    graph = build_graph(shape)
    graph.verify()
    show("build", graph)
    fuse(graph, show)
    placement = place(Geometry(shape, config, context, slots, pairs), carry)
    show("place", placement)
    return graph, placement


def _image(graph: Graph, placement: Placement, effort: int, show: Callable[[str, object], None],
           tell: Progress) -> Image:
    """The image of a program, still without the contents of its memories."""
    geometry, shape = placement.geometry, placement.geometry.shape
    gate = ACTIVATIONS[shape.activation]
    fitted = [tables.fitted(name) for name in ("exp2", "recip", "rsqrt", "scale", gate)]
    coefficients, descriptors, numbers = tables.pack(fitted)
    numbers[shape.activation] = numbers[gate]
    program = build_program(graph, placement, numbers, effort, show, tell)
    words = encode(program.listing.words)
    losses = {name: {"worst": loss.worst, "snr_db": min(loss.snr_db, 999.0)}
              for name, loss in placement.losses.items() if not loss.exact}
    tiles = geometry.tiles
    return Image(
        config=geometry.config, entries=program.entries,
        kv=KvLayout(geometry.slots, geometry.context, kv_planes(placement)),
        second=(placement.words["logits.1"].base, program.argmax[1]) if geometry.pairs else None,
        logits=(placement.words["logits"].base, shape.vocab), argmax=program.argmax[0],
        array=np.zeros((0, LINE_WORDS, tiles), np.uint32), scratch=np.zeros((0, tiles), np.uint32),
        scalars=np.zeros(0, np.uint32), microcode=words, tables=coefficients, functions=descriptors,
        operators=program.operators(), model={"shape": asdict(shape)},
        report={
            "rows": placement.rows.used, "scratch": placement.scratch.used, "instructions": len(words),
            "formats": placement.rows_by_format(), "losses": losses, "functions": [str(f) for f in fitted],
            "needed_rows": placement.needed_rows(), "decisions": program.decisions,
            "regions": {m.name: [[r.name, r.base, r.size] for r in m.regions]
                        for m in (placement.rows, placement.scratch, placement.scalars)},
            # Alive at once at most, and taken (rows, scratch) or there (the others).
            "planning": {"rows": [placement.rows.used] * 2,
                         "scratch": [placement.scratch_bound(), placement.scratch.used],
                         **{name: list(used) for name, used in program.pools.items()}},
            "pools": {name: list(used) for name, used in program.pools.items()},
        })
