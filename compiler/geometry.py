"""How vectors, heads and contexts of a model lie on the tiles of a device: words, blocks and padding."""

from dataclasses import dataclass

from compiler.errors import PlacementError
from compiler.source import ModelShape
from hw.config import BLOCK, MAX_TILES, HardwareConfig

__all__ = ["Geometry"]


def _up(n: int, unit: int) -> int:
    return -(-n // unit) * unit


@dataclass(frozen=True)
class Geometry:
    """Sizes of one model on one device.

    `pairs`: whether there are entry points that carry two sequences at once.

    Element `i` of a vector lives in tile `i mod T`, word `i div T`. Vectors are padded to whole blocks of 32. A head
    is padded to `head` elements, a multiple of 32 whose halves are multiples of T, so that rotary pairs share a lane;
    in queries and keys the upper half begins at `head / 2`, in values the elements are contiguous.
    """

    shape: ModelShape
    config: HardwareConfig
    context: int
    slots: int
    pairs: bool = False

    def __post_init__(self) -> None:
        tiles, head_dim = self.config.tiles, self.shape.head_dim
        if tiles > MAX_TILES:
            raise PlacementError(f"code can be made for at most {MAX_TILES} tiles; {self.config.name!r} has {tiles}: "
                                 "use a smaller preset")
        if head_dim % tiles or head_dim % 2:
            raise PlacementError(f"the head dimension must be even and a multiple of the {tiles} tiles of "
                                 f"{self.config.name!r}; this model has {head_dim}: use a preset with fewer tiles")
        if self.context % BLOCK or self.context < BLOCK:
            raise PlacementError(f"the context must be a positive multiple of {BLOCK}; got {self.context}")
        if self.pairs and self.slots < 2:
            raise PlacementError(f"pairs of sequences need 2 slots of the cache; got {self.slots}: use --slots 2")
        if self.slots < 1:
            raise PlacementError(f"slots must be at least 1; got {self.slots}")

    @property
    def tiles(self) -> int:
        return self.config.tiles

    @property
    def block_words(self) -> int:
        """Words of a lane in one block."""
        return self.config.lanes_per_block

    def blocks(self, elements: int) -> int:
        """Blocks of a vector."""
        return -(-elements // BLOCK)

    def words(self, elements: int) -> int:
        """Words of a lane in a vector padded to whole blocks."""
        return self.blocks(elements) * self.block_words

    @property
    def head(self) -> int:
        return _up(self.shape.head_dim, max(BLOCK, 2 * self.tiles))

    @property
    def head_words(self) -> int:
        return self.head // self.tiles

    @property
    def head_blocks(self) -> int:
        return self.head // BLOCK

    @property
    def rope_rows(self) -> int:
        """Array rows of one position of the rotary table: cos twice, -sin, sin, each of half a head's words."""
        return -(-2 * self.head_words // 8)

    @property
    def key_plane(self) -> int:
        """Rows of one block of one kv head's keys, over all slots: one row a token and tile."""
        return self.slots * self.context // self.tiles

    @property
    def value_plane(self) -> int:
        """Rows of one word of one kv head's values, over all slots: one byte a token."""
        return self.slots * self.context // BLOCK

    @property
    def cache_rows(self) -> int:
        """Rows of the cache of one layer."""
        kv = self.shape.kv_heads
        return kv * (self.head_blocks * self.key_plane + self.head_words * self.value_plane)

    def rotary_rows(self, heads: int) -> list[int]:
        """For each padded row of queries or keys the row of the model, -1 for padding."""
        dim, half = self.shape.head_dim, self.head // 2
        rows = []
        for head in range(heads):
            for part in range(2):
                rows += [head * dim + part * dim // 2 + i if i < dim // 2 else -1 for i in range(half)]
        return rows

    def value_rows(self, heads: int) -> list[int]:
        """For each padded row of values the row of the model, -1 for padding."""
        dim = self.shape.head_dim
        return [head * dim + i if i < dim else -1 for head in range(heads) for i in range(self.head)]
