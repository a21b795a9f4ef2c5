"""What the core tells all tiles in each stage of the two pipelines.

Stages are those of `hw.stages`. `hw.core` makes these words, `hw.tile` obeys them.
"""

from amaranth.lib import data
from amaranth.utils import bits_for

from hw.config import LINE_WORDS, HardwareConfig
from hw.isa import FUNCTION_FIELDS, TABLE_ENTRIES

__all__ = ["Controls"]


class Controls:
    """Layouts of the control words of one device, an attribute each; see the comments."""

    def __init__(self, config: HardwareConfig) -> None:
        tile = 5
        row = bits_for(config.rows - 1)
        entry = bits_for(max(1, config.row_buffer - 1))
        pair = bits_for(config.accumulators // 2 - 1)
        word = bits_for(max(1, config.scratch - 1))

        self.array = data.StructLayout({      # stage ARRAY
            "address": row, "read": 1,
            "write":   1,  "one": 1, "tile": tile,  # in all tiles, or in one
            "column":  1,                     # byte `element` + lane of the stored line goes to every byte
            "element": 5,
            "strobe":  4 * LINE_WORDS,
        })
        self.row = data.StructLayout({        # stage ROW
            "format": 2,
            "take":   1,                      # into the row register
            "buffer": 1,                      # ... not the array's row but the row buffer's (host)
            "one":    1, "tile": tile,        # ... zero in all tiles but one
        })
        self.buffer = data.StructLayout({     # stage BUFFER
            "write":   1, "entry": entry,
            "shared":  1,                     # the row on the shared bus, else the tile's own
            "one":     1, "tile": tile,       # in one tile (host)
            "strobe":  LINE_WORDS,
        })
        self.acc_read = data.StructLayout({"read": 1, "pair": pair})          # stage ACC_READ
        self.acc_add = data.StructLayout({"init": 1, "two": 1})               # stage ACC_ADD: two output rows
        self.acc_write = data.StructLayout({  # stage ACC_WRITE
            "even": 1, "odd": 1, "pair": pair,
            "host": 1, "tile": tile,          # the host's word, in one tile
        })
        self.read = data.StructLayout({       # stage READ
            "read": 1, "x": word, "y": word, "pair": pair, "entry": entry,
        })
        self.select = data.StructLayout({     # stage SELECT
            "a": 3, "b": 3, "c": 3, "c_negate": 1, "d": 3,
            "odd":     1,                     # which accumulator of the pair
            "format":  2, "half": 1, "element": 5, "word": 3,
        })
        self.factor = data.StructLayout({"a_element": 1, "b_a": 1, "d_a": 1})  # stage FACTOR
        self.apply = data.StructLayout(    # stage FUNCTION
            {name: width for name, width, _ in FUNCTION_FIELDS})
        self.last = data.StructLayout({"d_e": 1})                             # stage LAST
        self.result = data.StructLayout({     # stage RESULT
            "write":   1, "one": 1, "tile": tile, "word": word,
            "host":    1,                     # the host's word
            "w_early": 1, "q_early": 1, "r_early": 1,
            "absolute": 1,                    # to the reducer
            "neutral": 11,                    # top bits of what a masked element is to the reducer
            "live":    6,                     # lanes from here on are masked
        })
        self.tables = data.StructLayout({      # any time while idle
            "write": 1, "read": 1, "entry": bits_for(TABLE_ENTRIES - 1), "data": 80,
        })
