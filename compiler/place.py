"""Placement: which array rows, scratch words and scalar registers hold what, and the contents they begin with."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from compiler.errors import PlacementError
from compiler.geometry import Geometry
from compiler.quant import Blocks, Loss
from compiler.rowformat import ROWS_PER_LINE, pack_rows_q4, pack_rows_q8
from compiler.source import ModelSource
from hw.config import LINE_WORDS, PRESETS, SCALARS, HardwareConfig

__all__ = ["Memory", "Placement", "Region", "Weight", "contents", "pack_weight", "place", "rotary_table"]


@dataclass(frozen=True)
class Region:
    """`size` consecutive addresses from `base` of one memory, under a name that a person reads."""

    name: str
    base: int
    size: int

    @property
    def end(self) -> int:
        return self.base + self.size


@dataclass
class Memory:
    """A memory that is filled from address 0 upward; raises `PlacementError` when it is full."""

    name: str
    capacity: int
    regions: list[Region] = field(default_factory=list)

    @property
    def used(self) -> int:
        return self.regions[-1].end if self.regions else 0

    def take(self, name: str, size: int) -> Region:
        """The next `size` addresses; taking more than there are is an error that `check` reports."""
        region = Region(name, self.used, size)
        self.regions.append(region)
        return region

    def check(self, config: HardwareConfig, mend: Callable[[int], str]) -> None:
        """Raise when more was taken than the memory has, naming the first region that does not fit."""
        if self.used > self.capacity:
            first = next(r for r in self.regions if r.end > self.capacity)
            raise PlacementError(
                f"cannot place {first.name!r} ({first.size} {self.name}): {config.name!r} has {self.capacity} "
                f"{self.name} in a tile, {max(0, self.capacity - first.base)} of them free, and the whole model needs "
                f"{self.used}, {self.used - self.capacity} too many; {mend(self.used)}")


@dataclass(frozen=True)
class Weight:
    """A matrix in array rows: block `j` of line `r` of every tile is row `base + j * lines + r`.

    `words` output rows a tile, `lines` array rows a tile and block (half as many for two-row formats), `blocks` along
    the contraction.
    """

    name: str
    format: str
    base: int
    lines: int
    blocks: int
    words: int

    @property
    def per_line(self) -> int:
        return ROWS_PER_LINE[self.format]


@dataclass
class Placement:
    """Where everything of one model lives on one device."""

    geometry: Geometry
    rows: Memory
    scratch: Memory
    scalars: Memory
    weights: dict[str, Weight] = field(default_factory=dict)
    gains: dict[str, int] = field(default_factory=dict)
    cache: list[int] = field(default_factory=list)          # first cache row of each layer
    rope: int = 0                                           # first row of the rotary table
    layer_rows: list[tuple[int, int]] = field(default_factory=list)
    words: dict[str, Region] = field(default_factory=dict)  # scratch by purpose
    constants: dict[str, tuple[int, float]] = field(default_factory=dict)
    blocks: dict[str, Blocks] = field(default_factory=dict, repr=False)
    losses: dict[str, Loss] = field(default_factory=dict)

    def constant(self, name: str) -> int:
        """The scalar register that holds a constant."""
        return self.constants[name][0]

    def scratch_bound(self) -> int:
        """Most words of scratch alive at once: what is kept, and the largest of the buffers that follow each other."""
        kept = {name: region.size for name, region in self.words.items()}
        passing = [sum(kept.pop(f"{name}{suffix}", 0) for name in together for suffix in ("", ".1"))
                   for together in (("rotated", "values", "mixed"), ("gated",), ("logits",))]
        gains = len(self.gains) * self.geometry.words(self.geometry.shape.hidden)
        return gains + sum(kept.values()) + max(passing)

    def rows_by_format(self) -> dict[str, int]:
        """Rows of weights of each format in a tile."""
        out: dict[str, int] = {}
        for weight in self.weights.values():
            out[weight.format] = out.get(weight.format, 0) + weight.lines * weight.blocks
        return out

    def needed_rows(self) -> dict[str, int]:
        """Rows of weights that every tile must read for one token: in the layers, and in the output head."""
        output = self.weights.get("output", self.weights["token_embedding"])
        layers = sum(w.lines * w.blocks for name, w in self.weights.items() if name.startswith("layers."))
        return {"layers": layers, "output": output.lines * output.blocks}

    def __str__(self) -> str:
        lines = [f"{m.name:8} {m.used:>8} of {m.capacity}" for m in (self.rows, self.scratch, self.scalars)]
        for memory in (self.rows, self.scratch, self.scalars):
            lines.append(f"\n{memory.name}")
            lines += [f"  {r.base:>8} {r.end:>8}  {r.name}" for r in memory.regions]
        return "\n".join(lines)


def _mend(geometry: Geometry) -> Callable[[int], str]:
    def mend(needed: int) -> str:
        config = geometry.config
        slots = f", or fewer slots than {geometry.slots}" if geometry.slots > 1 else ""
        larger = [p for p in PRESETS.values() if p.rows >= needed and p.tiles == config.tiles and p is not config]
        larger += [p for p in PRESETS.values() if config.rows < p.rows and p.tiles > config.tiles
                   and p.rows * p.tiles >= needed * config.tiles and p.tiles <= 32]
        if larger:
            return f"try the preset {larger[0].name!r}, or a context shorter than {geometry.context}{slots}"
        return (f"try a configuration of more tiles, or of {needed} rows, or a context shorter than "
                f"{geometry.context}{slots}")
    return mend


def place(geometry: Geometry, carry: Callable[[str], Blocks]) -> Placement:
    """Give every weight, table, cache and buffer its place; `carry` yields a weight's blocks by name."""
    shape, config = geometry.shape, geometry.config
    p = Placement(geometry, Memory("rows", config.rows), Memory("words", config.scratch),
                  Memory("scalars", SCALARS))

    def weight(name: str, outputs: int) -> None:
        blocks = p.blocks[name] = carry(name)
        p.losses[name] = blocks.loss
        per_line = ROWS_PER_LINE[blocks.format]
        words = -(-outputs // geometry.tiles)
        lines = -(-words // per_line)
        nb = blocks.codes.shape[1]
        p.weights[name] = Weight(name, blocks.format, p.rows.take(name, lines * nb).base, lines, nb, words)

    kv, heads = shape.kv_heads * geometry.head, shape.heads * geometry.head
    hidden, ffn = geometry.words(shape.hidden) * geometry.tiles, geometry.words(shape.ffn) * geometry.tiles
    for layer in range(shape.layers):
        first = p.rows.used
        for name, outputs in (("q", heads), ("k", kv), ("v", kv), ("o", hidden), ("gate", ffn), ("up", ffn),
                              ("down", hidden)):
            weight(f"layers.{layer}.{name}", outputs)
        p.layer_rows.append((first, p.rows.used))
    weight("token_embedding", shape.vocab)
    if not shape.tied_embeddings:
        weight("output", shape.vocab)
    p.rope = p.rows.take("rotary table", geometry.context * geometry.rope_rows).base
    p.cache = [p.rows.take(f"layers.{layer}.cache", geometry.cache_rows).base for layer in range(shape.layers)]
    p.rows.check(config, _mend(geometry))

    width = geometry.words(shape.hidden)
    for layer in range(shape.layers):
        for norm in ("attention_norm", "ffn_norm"):
            p.gains[f"layers.{layer}.{norm}"] = p.scratch.take(f"layers.{layer}.{norm}", width).base
    p.gains["final_norm"] = p.scratch.take("final_norm", width).base
    scales = shape.kv_heads * geometry.slots * geometry.context // geometry.tiles
    for name, size in (
        ("residual", width),
        ("rotary", 8 * geometry.rope_rows),
        ("rotated", (shape.heads + shape.kv_heads) * geometry.head_words),
        ("values", shape.kv_heads * geometry.head_words),
        ("mixed", geometry.words(shape.heads * shape.head_dim) if shape.head_dim % 32 else 0),
        ("gated", geometry.words(shape.ffn)),
        ("value_scales", scales * shape.layers),
        ("logits", -(-shape.vocab // geometry.tiles)),
    ):
        p.words[name] = p.scratch.take(name, size)
    for name in ("residual", "rotary", "rotated", "values", "mixed", "gated", "logits") if geometry.pairs else ():
        p.words[f"{name}.1"] = p.scratch.take(f"{name}.1", p.words[name].size)
    p.scratch.check(config, lambda needed: f"try a configuration with scratch={needed}, or a shorter context")

    for name, value in (
        ("score_scale", shape.attention_scale / np.log(2.0)),
        ("norm_epsilon", shape.norm_eps * shape.hidden),
        ("norm_width", float(np.sqrt(shape.hidden))),
        ("zero", 0.0),
    ):
        p.constants[name] = (p.scalars.take(name, 1).base, float(value))
    return p


def pack_weight(array: np.ndarray, weight: Weight, blocks: Blocks, rows: list[int] | None) -> None:
    """Write one matrix into `array` (rows, 10, T); `rows` lists the matrix row of each output, -1 for none."""
    tiles = array.shape[2]
    outputs = weight.lines * weight.per_line * tiles
    index = np.arange(len(blocks.codes)) if rows is None else np.asarray(rows)
    index = np.concatenate([index, np.full(outputs - len(index), -1)])
    present = index >= 0

    def gather(values: np.ndarray) -> np.ndarray:
        if rows is None and len(values) == outputs:
            out = values
        else:
            out = values[np.maximum(index, 0)]
            out[~present] = 0
        return out.reshape(weight.lines, weight.per_line, tiles, *values.shape[1:])

    codes, d, m = gather(blocks.codes), gather(blocks.d), gather(blocks.m)
    target = array[weight.base:weight.base + weight.lines * weight.blocks]
    target = target.reshape(weight.blocks, weight.lines, LINE_WORDS, tiles)
    step = max(1, 4096 // tiles)                            # lines at a time bound the temporary
    for first in range(0, weight.lines, step):
        part = slice(first, first + step)
        if weight.format == "q8":
            lines = pack_rows_q8(codes[part, 0], d[part, 0], m[part, 0])
        else:
            lines = pack_rows_q4(codes[part, 0], d[part, 0], m[part, 0], codes[part, 1], d[part, 1], m[part, 1])
        target[:, part] = lines.transpose(2, 0, 3, 1)       # (line, tile, block, word) -> (block, line, word, tile)


def rotary_table(geometry: Geometry, frequencies: np.ndarray) -> np.ndarray:
    """Contents of the rotary rows, uint32 (context * rope_rows, 10, T): for each position cos, cos, -sin, sin."""
    half, dim = geometry.head // 2, geometry.shape.head_dim // 2
    angle = np.arange(geometry.context)[:, None] * frequencies[None, :]
    cos, sin = np.ones((geometry.context, half)), np.zeros((geometry.context, half))
    cos[:, :dim], sin[:, :dim] = np.cos(angle), np.sin(angle)
    parts = np.concatenate([cos, cos, -sin, sin], axis=1).astype(np.float32)
    words = parts.reshape(geometry.context, -1, geometry.tiles)
    rows = np.zeros((geometry.context, geometry.rope_rows * 8, geometry.tiles), np.uint32)
    rows[:, :words.shape[1]] = words.view(np.uint32)
    out = np.zeros((geometry.context * geometry.rope_rows, LINE_WORDS, geometry.tiles), np.uint32)
    out[:, :8] = rows.reshape(-1, 8, geometry.tiles)
    return out


def contents(placement: Placement, source: ModelSource,
             progress: Callable[[str, float], None]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The array, scratch and scalars that the device starts with, up to the last word that is not zero."""
    geometry, shape = placement.geometry, placement.geometry.shape
    array = np.zeros((placement.rope + geometry.context * geometry.rope_rows, LINE_WORDS, geometry.tiles), np.uint32)
    for k, (name, weight) in enumerate(placement.weights.items()):
        part = name.rsplit(".", 1)[-1]
        heads = {"q": shape.heads, "k": shape.kv_heads}.get(part, 0)
        rows = geometry.rotary_rows(heads) if heads else geometry.value_rows(shape.kv_heads) if part == "v" else None
        pack_weight(array, weight, placement.blocks.pop(name), rows)
        progress("weights", (k + 1) / len(placement.weights))
    array[placement.rope:] = rotary_table(geometry, shape.rope_frequencies())
    scratch = np.zeros((placement.words["residual"].base, geometry.tiles), np.float32)
    for name, base in placement.gains.items():
        gain = source.weights[name].dequantize()
        words = np.zeros(geometry.words(shape.hidden) * geometry.tiles, np.float32)
        words[:len(gain)] = gain
        scratch[base:base + geometry.words(shape.hidden)] = words.reshape(-1, geometry.tiles)
    scalars = np.zeros(len(placement.constants), np.float32)
    for register, value in placement.constants.values():
        scalars[register] = value
    return array, scratch.view(np.uint32), scalars.view(np.uint32)
