"""The row-read bound of attention: a tile reads one array row a cycle, and a row meets one operand block."""

from hw.config import BLOCK, HardwareConfig

__all__ = ["cache_rows"]


def cache_rows(config: HardwareConfig, layers: int, heads: int, head_dim: int, context: int) -> float:
    """Rows of cached keys and values that every tile must read for one token.

    They count once for each query head, as if every tile had the same share of the context; rounding up to whole rows
    is already a loss.
    """
    return 2 * layers * heads * head_dim * context / (BLOCK * config.tiles)
