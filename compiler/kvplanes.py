"""Where the cached keys and values of every slot lie, for a runtime that copies them from slot to slot."""

from compiler.geometry import Geometry
from compiler.place import Placement
from hw.config import BLOCK
from hw.image import KvPlane
from hw.memorymap import Space

__all__ = ["kv_planes"]


def kv_planes(placement: Placement) -> tuple[KvPlane, ...]:
    """Keys and values of every layer in the array, and the scales of the values in scratch."""
    g: Geometry = placement.geometry
    heads, keys, values = g.shape.kv_heads, g.context // g.tiles, g.context // BLOCK
    planes = []
    for base in placement.cache:
        planes.append(KvPlane(int(Space.ARRAY), base, heads * g.head_blocks, g.key_plane, keys, g.tiles))
        planes.append(KvPlane(int(Space.ARRAY), base + heads * g.head_blocks * g.key_plane, heads * g.head_words,
                              g.value_plane, values, BLOCK))
    scales = placement.words["value_scales"].base
    planes.append(KvPlane(int(Space.SCRATCH), scales, g.shape.layers * heads, g.key_plane, keys, g.tiles))
    return tuple(planes)
