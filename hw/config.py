"""The description of one device that RTL, compiler, functional model and timing model all take."""

import hashlib
import json
from dataclasses import asdict, dataclass, fields, replace

from hw.errors import WordlineError

__all__ = ["BLOCK", "LINE_WORDS", "MAX_TILES", "PRESETS", "REGISTERS", "SCALARS", "ConfigError",
           "HardwareConfig", "preset"]

BLOCK = 32
"""Elements of one operand block, and of one output row's share of an array row."""

MAX_TILES = BLOCK
"""Tiles of a device that computes: a word of all lanes is at most one block. The timing model takes more."""

LINE_WORDS = 10
"""32-bit words in an array row (256 data + 64 side bits) and in a microcode word."""

SCALARS = 64
"""fp32 scalar registers."""

REGISTERS = 32
"""32-bit integer registers of the sequencer; register 0 reads as zero."""


class ConfigError(WordlineError):
    """A configuration that cannot be built, or a preset that does not exist."""


@dataclass(frozen=True)
class HardwareConfig:
    """One device: `tiles` identical tiles under one sequencer.

    Parameters
    ----------
    name : str
        What the configuration is called in reports. Not part of the fingerprint.
    tiles : int
        A power of two. Hardware takes 1 to `MAX_TILES`, the timing model any.
    rows : int
        Array rows of a tile, each 256 data and 64 side bits. Need not be a power of two.
    accumulators : int
        fp32 entries of a tile's accumulator file, even, at least 128.
    scratch : int
        fp32 words of a tile's scratch.
    operands : int
        Blocks of the operand buffer.
    row_buffer : int
        Rows of a tile's row buffer.
    microcode : int
        Words of the microcode memory.
    activation_bits : int
        Width of an operand integer, 9 or 8.
    formats : tuple of str
        Row formats that the dot unit decodes.
    queue : int
        Instructions that wait in front of each engine.
    commands : int
        Entries of the command queue and of the completion queue.
    """

    name: str
    tiles: int
    rows: int
    accumulators: int = 128
    scratch: int = 4096
    operands: int = 128
    row_buffer: int = 32
    microcode: int = 2048
    activation_bits: int = 9
    formats: tuple[str, ...] = ("q8", "q4", "f4")
    queue: int = 4
    commands: int = 8

    def __post_init__(self) -> None:
        object.__setattr__(self, "formats", tuple(self.formats))
        if self.tiles < 1 or self.tiles & (self.tiles - 1):
            raise ConfigError(f"tiles must be a power of two; got {self.tiles!r}")
        if self.activation_bits not in (8, 9):
            raise ConfigError(f"activation_bits must be 8 or 9; got {self.activation_bits!r}")
        if self.accumulators % 2 or self.accumulators < 128:
            raise ConfigError(f"accumulators must be even and at least 128; got {self.accumulators!r}")
        for name, limit in _LIMITS.items():
            if not 1 <= getattr(self, name) <= limit:
                raise ConfigError(f"{name} must be 1 to {limit}; got {getattr(self, name)!r}")
        unknown = set(self.formats) - {"q8", "q4", "f4"}
        if unknown or "q8" not in self.formats:
            raise ConfigError(f"formats must hold 'q8' and may hold 'q4', 'f4'; got {self.formats!r}")

    @property
    def lanes_per_block(self) -> int:
        """Words of a lane in one block of 32 elements (1 when there are `BLOCK` tiles or more)."""
        return max(1, BLOCK // self.tiles)

    @property
    def fingerprint(self) -> str:
        """Sixteen hex digits that name everything but the configuration's name."""
        facts = {k: v for k, v in asdict(self).items() if k != "name"}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]

    def require_hardware(self) -> None:
        """Raise `ConfigError` unless hardware can be made of this; the timing model asks for less."""
        if self.tiles > MAX_TILES:
            raise ConfigError(f"Verilog is made of devices of 1 to {MAX_TILES} tiles; {self.name!r} has {self.tiles}: "
                              "use a smaller preset")

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "formats": list(self.formats)}

    @classmethod
    def from_json(cls, facts: dict[str, object]) -> "HardwareConfig":
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(facts) - known)
        if unknown:
            raise ConfigError(f"a hardware configuration has the fields {sorted(known)}; got also {unknown}")
        return cls(**facts)  # type: ignore[arg-type]

    def replace(self, **changes: object) -> "HardwareConfig":
        """A configuration like this one with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]


_LIMITS = {
    # Bounds of the address fields in hw.isa.
    "rows": 1 << 24, "accumulators": 1 << 12, "scratch": 1 << 16, "operands": 1 << 12, "row_buffer": 1 << 8,
    "microcode": 1 << 16, "queue": 64, "commands": 256,
}

PRESETS: dict[str, HardwareConfig] = {
    c.name: c
    for c in (
        HardwareConfig("tiny", tiles=4, rows=4096, scratch=4096, operands=128, queue=4),
        HardwareConfig("w16", tiles=16, rows=327_680, accumulators=512, scratch=32_768, operands=512,
                       row_buffer=64, microcode=8192, queue=4),
        HardwareConfig("ecp5", tiles=2, rows=3072, scratch=2048, operands=64, row_buffer=8, microcode=512,
                       activation_bits=8, formats=("q8", "q4"), queue=2, commands=4),
        HardwareConfig("paper", tiles=256, rows=65_536, accumulators=512, scratch=16_384, operands=2048,
                       row_buffer=64, microcode=8192),
    )
}
"""The named devices: `tiny` for tests, `w16` for real models in simulation, `ecp5` for a real board, `paper` for
the timing model."""


def preset(name: str) -> HardwareConfig:
    """The preset called `name`; raises `ConfigError` that lists the known ones."""
    try:
        return PRESETS[name]
    except KeyError:
        raise ConfigError(f"preset {name!r} does not exist; known presets are {', '.join(PRESETS)}") from None
