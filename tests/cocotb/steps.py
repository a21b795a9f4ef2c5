"""The steps of an instruction, one after the other, as docs/machine.md ("Order", "Time") has them; and instructions
with few of them.
"""

from random import Random

from hw.config import BLOCK, HardwareConfig
from hw.isa import A, Opcode, Reduce, RowFormat
from hw.timing import latencies

__all__ = ["matrix_instruction", "matrix_steps", "vector_instruction", "vector_steps"]

Fields = dict[str, int]
"""Of an instruction, register sums made and counts less one; or of a step."""


def _sync(random: Random) -> Fields:
    return {"wait": random.choice([0, 0, 0, 1, 2]), "signal": random.getrandbits(1),
            **{name: int(random.randrange(4) == 0) for name in ("fence", "chain", "reduce_fence")}}


def _signed(word: Fields, widths: dict[str, int]) -> Fields:
    """The fields in `widths`, which gives their bits, as signed numbers."""
    return {name: word[name] - (word[name] >> bits - 1 << bits) for name, bits in widths.items()}


def matrix_instruction(random: Random, config: HardwareConfig) -> Fields:
    """What must not be anything: opcode, format and counts."""
    return {**_sync(random), "opcode": random.choice([Opcode.MULTIPLY] * 3 + [Opcode.FETCH, Opcode.STORE_ROW,
                                                                           Opcode.STORE_COLUMN]),
            "format": random.choice(range(len(RowFormat))), "nj": random.choice([0, 0, 1, 2, 5]),
            "nh": random.choice([0, 0, 1, 3]), "nr": random.choice([0, 1, 2, 3, 4, 9])}


def matrix_steps(word: Fields, config: HardwareConfig) -> list[Fields]:
    """Steps of an instruction of the matrix engine."""
    opcode = word["opcode"]
    move = _signed(word, {"row_j": 20, "row_h": 20, "row_r": 20, "block_j": 12, "block_h": 12, "acc_h": 12})
    kind = {name: int(opcode == Opcode[name.upper()]) for name in ("multiply", "fetch", "store_row", "store_column")}
    steps: list[Fields] = []
    for j in range(word["nj"] + 1):
        row, block = word["row"] + j * move["row_j"], word["block"] + j * move["block_j"]
        one = {"valid": 1, **kind, "row": row}
        if opcode == Opcode.FETCH:
            steps.append({**one, "acc": word["acc"] + j, "all": word["all"], "tile": word["tile"]})
        elif opcode == Opcode.STORE_ROW:
            steps.append({**one, "block": block, "tile": word["tile"]})
        elif opcode == Opcode.STORE_COLUMN:
            steps += [{**one, "block": block, "row": row + k * move["row_r"], "column": word["column"],
                       "element": k * config.tiles} for k in range(config.lanes_per_block)]
        else:
            apart = 1 if word["format"] == RowFormat.Q8 else 2
            a_pass = [{**one, "format": word["format"], "init": int(word["init"] and j == 0),
                       "row": row + h * move["row_h"] + r * move["row_r"], "block": block + h * move["block_h"],
                       "acc": word["acc"] + h * move["acc_h"] + r * apart}
                      for h in range(word["nh"] + 1) for r in range(word["nr"] + 1)]
            steps += a_pass + [{"valid": 0}] * (latencies(config).accumulate - len(a_pass))
    return steps


def vector_instruction(random: Random, config: HardwareConfig) -> Fields:
    """What must not be anything: codes, counts, and a length near the elements that there are."""
    inner = random.choice([0, 1, 2, 7, 2 * config.lanes_per_block - 1])
    index = random.choice([0, random.randrange(1 << 16)])
    return {**_sync(random), "outer": random.choice([0, 0, 1, 3]), "inner": inner, "index": index,
            "a": random.choice(list(A)), "reduce": random.choice(list(Reduce)),
            "length": index * config.tiles + random.randrange((inner + 2) * config.tiles)}


def vector_steps(word: Fields, config: HardwareConfig) -> list[Fields]:
    """Steps of an instruction of the vector engine."""
    move = _signed(word, {name: 12 for name in ("x_o", "y_o", "z_o", "w_o", "block_o")})
    reduces = int(word["reduce"] != Reduce.NONE)
    shared = {name: word[name] for name in ("a", "b", "c", "c_negate", "d", "function", "row_format", "w_early",
                                            "w_single", "quantize_early", "narrow", "given", "reduce", "reduce_early",
                                            "absolute")}
    shared |= {"half": word["half"], "w_tile": word["w_tile"]}
    steps = []
    for o in range(word["outer"] + 1):
        for i in range(word["inner"] + 1):
            index = word["index"] + i
            below = word["length"] - index * config.tiles
            z_i = word["z_i"] if word["a"] == A.ACC else 0  # a row buffer entry stays
            steps.append({
                "valid": 1, **shared,
                **{name: word[name] + o * move[f"{name}_o"] + i * word[f"{name}_i"] for name in "xy"},
                "z": word["z"] + o * move["z_o"] + i * z_i,
                "w_word": word["w_word"] + o * move["w_o"] + i * word["w_i"],
                **{name: word[name] + o * word[f"{name}_o"] for name in ("p", "q", "r", "scale")},
                "block": word["block"] + o * move["block_o"] + i // config.lanes_per_block,
                "r_dest": word["r_dest"] + o * word["r_dest_o"] * (2 if word["reduce"] == Reduce.ARGMAX else 1),
                "element": i * config.tiles % BLOCK, "word": i % 8, "index": index,
                "live": min(max(below, 0), config.tiles) if word["mask"] else config.tiles,
                "write": word["w"], "quantize": word["quantize"],
                "block_first": int(i % config.lanes_per_block == 0), "reduces": reduces,
                "init": int(word["reduce_init"] and i == 0), "emit": int(word["reduce_emit"] and i == word["inner"]),
            })
    return steps
