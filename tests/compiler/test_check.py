"""The checker of finished images: passes real programs, and finds planted faults at their addresses."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from compiler.check import CheckError, check
from compiler.check.report import Listing
from compiler.compile import compile_model
from compiler.context import Registers
from hw.config import preset
from hw.image import Image
from hw.isa import A, Alu, B, Instruction, Opcode, Reduce, RowFormat, decode, encode
from tests.models.random_gguf import write_random_model

TINY = preset("tiny")
UNIFORM = {"token_embedding": ("Q4_1",), "q": ("Q4_1",), "k": ("Q8_0",), "v": ("Q8_0",), "o": ("Q4_1",),
           "gate": ("Q4_1",), "up": ("Q4_1",), "down": ("Q8_0",), "output": ("Q8_0",)}
"""Alike in all layers, so that they become a loop."""

M, V = Opcode.MULTIPLY, Opcode.VECTOR
R = Registers.of(0)
LENGTH, KEY_LINES, VALUE_BLOCKS, SCORE_WORDS = R.length, R.key_lines, R.value_blocks, R.score_words
KEY_ROW, VALUE_ROW = R.key_row, R.value_row
"""Registers of compiled programs."""


@pytest.fixture(scope="module")
def image(tmp_path_factory) -> Image:
    path = tmp_path_factory.mktemp("model") / "model.gguf"
    write_random_model(path, seed=7, types=UNIFORM, layers=4, heads=4, kv_heads=2, context=256)
    return compile_model(path, TINY, context=64, slots=2, checked=False)


def test_a_compiled_model_passes(image):
    report = check(image)
    assert report.ok, str(report)
    assert report.entries == 2
    assert report.arguments == 2 * 64 * 2 * image.logits[1]
    assert min(report.classes, report.words, report.cells, report.pairs, report.rows) > 0
    assert str(report).startswith("no violation: 2 entry points, ")
    report.require()


# Planted faults
# -----------------------------------------------------------------------------------------------------


Where = Callable[[Instruction, str], bool]


@dataclass(frozen=True)
class Fault:
    """One change of one instruction of the decode entry and what the checker must say.

    `where` chooses instructions by their fields and label; the `nth` of them gets `change` (a field set to a
    value or to a function of its old value). The error is at that address, or at that of the first
    instruction that `at` chooses from there on (`at_last`: the last one), and its text holds `says`.
    """

    name: str
    where: Where
    change: dict[str, int | Callable[[int], int]]
    says: str
    nth: int = 0
    at: Where | None = None
    at_last: bool = False
    opcode: Opcode | None = None
    config: dict[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


def op(code: Opcode, part: str = "", **fields: int | None) -> Where:
    """Instructions of an opcode and an operator with these fields; None wants a field that is not zero."""
    def where(i: Instruction, label: str) -> bool:
        return i.opcode == code and part in label and all(
            (i[name] != 0 if value is None else i[name] == value) for name, value in fields.items())
    return where


more = (1).__add__
less = (-1).__add__
ROTATE = "layers.0.rotate"
STORE = "layers.0.store"
ATTEND = "layers.0.attend"
GATE = "layers.0.gate_up"
FFN = "layers.0.ffn_residual"

Q = op(M, ROTATE, init=1)                           # first piece of a product for queries or keys
SCORES = op(M, ATTEND, init=1, nr_reg=KEY_LINES)
MIXTURE = op(M, ATTEND, init=1, nj_reg=VALUE_BLOCKS)
MOST = op(V, ATTEND, reduce=Reduce.MAX)
SOFTMAX = op(V, ATTEND, reduce=Reduce.SUM)
RESIDUAL = op(V, FFN, quantize=1)
SCALE = op(V, STORE, w_single=1)
DRAIN = op(V, GATE, a=A.ACC, quantize=1)
LOGITS = op(V, "logits", reduce=Reduce.ARGMAX)

BACK = op(Opcode.LOOP)
"""An error before the fault."""

FAULTS = [
    # Tokens
    Fault("a drain does not wait", op(V, GATE, wait=1, a=A.ACC), {"wait": 0}, "no token makes this "
                                                                              "instruction wait for that "
                                                                              "write"),
    Fault("a product does not wait", op(M, GATE, wait=1), {"wait": 0},
          "no token makes this instruction wait"),
    Fault("a store does not wait", op(Opcode.STORE_ROW, STORE), {"wait": 0}, "no token makes this "
                                                                             "instruction wait for that "
                                                                             "write"),
    Fault("a column store does not wait", op(Opcode.STORE_COLUMN, STORE), {"wait": 0}, "no token makes this "
                                                                                       "instruction wait"),
    Fault("a signal is missing", op(M, "logits", signal=1), {"signal": 0}, "so it waits for ever", nth=-1,
          at=op(V, "logits", wait=1), at_last=True),
    Fault("a signal too many", op(M, GATE, signal=0), {"signal": 1}, "all tokens must be taken at HALT",
          at_last=True,
          at=op(M, "logits", signal=1)),
    Fault("an instruction takes two tokens for one", op(V, "logits", wait=1), {"wait": 2}, "so it waits for "
                                                                                           "ever", nth=-1),
    Fault("the first piece signals for the last", op(M, ROTATE, init=1, signal=0), {"signal": 1},
          "no token makes this instruction wait for that write", at=op(V, ROTATE, wait=1, a=A.ACC)),
    # Accumulators
    Fault("accumulators one too high", Q, {"acc": more}, "must be even"),
    Fault("accumulators two too high", Q, {"acc": (2).__add__}, "must be written before it is read",
          at=op(M, ROTATE, init=0)),
    Fault("the range of a product that waits", op(M, GATE, init=1), {"acc": (-16).__add__}, "which nothing "
                                                                                            "has read",
          nth=1),
    Fault("a product continues nothing", op(M, "logits", init=1), {"init": 0}, "has already been read by",
          nth=1),
    Fault("a product begins again", op(M, GATE, init=0), {"init": 1}, "which nothing has read"),
    Fault("groups of scores overlap", SCORES, {"acc_h": lambda step: 3}, "groups of accumulators must lie "
                                                                         "apart"),
    Fault("groups of scores one too far", SCORES, {"acc_h": more}, "must be written before it is read",
          at=MOST),
    Fault("a line of scores too few", SCORES, {"nr_reg": VALUE_ROW}, "must be written before it is read",
          at=MOST),
    Fault("scores of lines that are not there", SCORES, {"nr_reg": SCORE_WORDS},
          "which no command of this slot has stored by then"),
    Fault("one line of scores too many", SCORES, {"nr": 1}, "which no command of this slot has stored by "
                                                            "then"),
    Fault("a row of weights too few", op(M, GATE, init=1), {"nr": less}, "must be written before it is read",
          at=op(M, GATE, init=0)),
    Fault("a drain one word too far", op(V, GATE, a=A.ACC, w=1), {"z": (64).__add__}, "accumulator"),
    Fault("heads drained at a wrong distance", op(V, ROTATE, a=A.ACC, outer=2), {"z_o": lambda step: 3},
          "groups of accumulators must lie apart"),
    # Operand blocks
    Fault("quantized to the next block", DRAIN, {"block": more}, "must be written before it is read", nth=-1,
          at=op(M, FFN), at_last=True),
    Fault("blocks of a group one apart too far", MIXTURE, {"block_h": more}, "operand block"),
    Fault("quantized blocks of heads overlap", SOFTMAX, {"block_o": 1}, "its steps overlap"),
    Fault("nothing is quantized", DRAIN, {"quantize": 0}, "must be written before it is read", at=op(M, FFN)),
    Fault("half a block", DRAIN, {"inner": less}, "inner is a multiple of 32/T = 8 when quantizing; it is"),
    Fault("a block of operand width into the cache", op(V, ROTATE, narrow=1), {"narrow": 0},
          "the cache stores 8-bit blocks",
          at=op(Opcode.STORE_ROW, STORE)),
    Fault("a column without its scale", op(V, STORE, given=1), {"given": 0}, "those with a given scale",
          at=op(Opcode.STORE_COLUMN, STORE)),
    Fault("a block too many", op(M, FFN, init=0), {"nj": (100).__add__}, "operand blocks are 0 to 127"),
    # Scratch
    Fault("scratch written a word too far", op(V, GATE, w=1), {"w_word": more}, "must be written before it "
                                                                                "is read",
          at=op(V, GATE, quantize=1)),
    Fault("scratch read a word too far", op(V, GATE, quantize=1, x=None), {"x": (32).__add__},
          "must be written before it is read"),
    Fault("a buffer over the one that waits", op(V, GATE, w=1), {"w_word": (-16).__add__}, "which nothing "
                                                                                           "has read", nth=1),
    Fault("an instruction reads what it wrote", RESIDUAL, {"w_word": more}, "must not read what it has "
                                                                            "written itself"),
    Fault("a word written twice", op(V, ROTATE, w=1, outer=4), {"w_o": 3}, "its steps overlap"),
    Fault("no chain", op(V, GATE, chain=1), {"chain": 0}, "needs a chain, a fence or more steps between"),
    Fault("gains overwritten", RESIDUAL, {"w_word": 0}, "belongs to the image; this instruction overwrites "
                                                        "it"),
    Fault("a scale to all tiles", SCALE, {"w_single": 0}, "must be written before it is read", at=SOFTMAX),
    Fault("a scale over the residual", SCALE, {"w_word": lambda word: 0}, "the image's own contents"),
    Fault("scales of another slot", SOFTMAX, {"x_reg": 0}, "another slot"),
    Fault("scales one word too far", SOFTMAX, {"x": more}, "stored by none"),
    # Scalars
    Fault("no reduce fence", op(V, "lookup", reduce_fence=1), {"reduce_fence": 0}, "needs a reduce_fence or "
                                                                                   "more steps between"),
    Fault("a scalar that nobody writes", op(V, GATE, b=B.S), {"p": 63}, "must be written before it is read"),
    Fault("a scalar beyond the last", op(V, GATE, b=B.S, outer=1), {"p": 63, "p_o": 1, "outer": 2},
          "scalars are 0 to 63"),
    Fault("a constant overwritten", op(V, "lookup", reduce=Reduce.TAKE), {"r_dest": 0}, "belongs to the "
                                                                                        "image"),
    Fault("argmax to an odd scalar", LOGITS, {"r_dest": more}, "r_dest must be even", nth=-1),
    Fault("a reduction continues another", LOGITS, {"reduce_init": 0}, "continues one of its kind"),
    Fault("no scalar at the end", op(V, "lookup", reduce=Reduce.SUM), {"reduce_emit": 0}, "must be written "
                                                                                          "before it is read",
          at=op(V, "lookup", reduce=Reduce.TAKE)),
    Fault("no largest logit", LOGITS, {"reduce_emit": 0}, "which must write it before HALT", nth=-1,
          at=op(Opcode.HALT)),
    Fault("logits a word too few", LOGITS, {"inner": less}, "which must write it before HALT", nth=-1,
          at=op(Opcode.HALT)),
    Fault("logits under other numbers", LOGITS, {"index": more}, "argmax counts logits as the image does",
          nth=1),
    # Lengths and masks
    Fault("the mask is one element short", SOFTMAX, {"length_reg": 2}, "lies beyond the length"),
    Fault("the mask is a register that counts lines", MOST, {"length_reg": KEY_LINES}, "lies beyond the "
                                                                                       "length"),
    Fault("the mask hides everything", MOST, {"length_reg": 0}, "nothing lies below the length"),
    Fault("the mask is too long", SOFTMAX, {"length_reg": SCORE_WORDS}, "is at most position + 1"),
    Fault("no mask on scores", MOST, {"mask": 0}, "is read without a mask"),
    Fault("no mask on probabilities", SOFTMAX, {"mask": 0, "inner_reg": SCORE_WORDS}, "is not masked",
          at=MIXTURE),
    Fault("a count register that is no whole block", SOFTMAX, {"inner_reg": KEY_LINES}, "when quantizing"),
    # The cache
    Fault("a key in another row", op(Opcode.STORE_ROW, STORE), {"row_reg": VALUE_ROW}, "that two positions "
                                                                                       "of one slot write"),
    Fault("a key in the tile of its slot", op(Opcode.STORE_ROW, STORE), {"tile_reg": 3},
          "that two positions of one slot write"),
    Fault("slots share keys", op(Opcode.STORE_ROW, STORE), {"row_reg": 0}, "is shared by two slots"),
    Fault("a value always in column 0", op(Opcode.STORE_COLUMN, STORE), {"column_reg": 0},
          "that two positions of one slot write"),
    Fault("keys over weights", op(Opcode.STORE_ROW, STORE), {"row": 0}, "the image's own contents are array "
                                                                        "rows"),
    Fault("planes of keys too close", op(Opcode.STORE_ROW, STORE), {"row_j": 1},
          "keep apart what they store"),
    Fault("planes of values too close", op(Opcode.STORE_COLUMN, STORE), {"row_r": 1}, "keep apart what they "
                                                                                      "store"),
    Fault("keys of the first slot only", SCORES, {"row_reg": 0}, "another slot"),
    Fault("values a block too far", MIXTURE, {"row": more}, "which no command of this slot has stored by "
                                                            "then"),
    Fault("values at a wrong distance", MIXTURE, {"row_r": more}, "which no command of this slot has stored "
                                                                  "by then"),
    # Rows
    Fault("a row beyond the array", op(M, FFN), {"row": lambda row: TINY.rows - 1}, "array rows are 0 to "
                                                                                    f"{TINY.rows - 1}"),
    Fault("columns of weights too close", op(M, FFN), {"row_j": less}, "meet some twice"),
    Fault("columns of weights too far", op(M, FFN), {"row_j": more}, "equally often", at=op(M, FFN, init=0)),
    Fault("a column of weights too many", op(M, "logits", init=1, nj=1), {"nj": more}, "equally often",
          at=op(M, "logits", init=0)),
    Fault("a token beyond the embedding", op(Opcode.FETCH, "lookup"), {"row_j": (1000).__add__},
          "rows to fetch are rows 0 to"),
    Fault("a row buffer entry beyond the last", op(Opcode.FETCH, "rotary"), {"acc": more},
          "row buffer entries are 0 to 31"),
    Fault("a row too few is fetched", op(Opcode.FETCH, "lookup"), {"nj": less}, "row buffer entry",
          at=op(V, "lookup", a=A.ROW_ELEMENT)),
    # Words
    Fault("a function that is not there", op(V, GATE, function=None), {"function": 9}, "applies 9, which is "
                                                                                       "not there"),
    Fault("a selector that is not there", op(V, GATE, a=A.ACC), {"a": 7}, "a is 0 to 5; this instruction "
                                                                          "has 7"),
    Fault("a reduction that is not there", op(V, "lookup", reduce=Reduce.SUM), {"reduce": 6}, "reduce is 0 "
                                                                                              "to 4"),
    Fault("a row format that is not there", op(M, FFN), {"format": 3}, "row formats are 0 to 2"),
    Fault("a row format of another device", op(M, FFN), {"format": RowFormat.F4}, "this device decodes q8, "
                                                                                  "q4",
          config={"formats": ("q8", "q4")}),
    Fault("more elements than a row has", op(V, "lookup", a=A.ROW_ELEMENT), {"inner": 16}, "a row has 32 "
                                                                                           "elements"),
    # The sequencer
    Fault("length one too many", op(Opcode.ALU, "sequencer", rd=LENGTH), {"imm": 2}, "is at most position + "
                                                                                     "1", at=MOST),
    Fault("lines one too few", op(Opcode.ALU, "sequencer", rd=KEY_LINES), {"imm": 0}, "must be written "
                                                                                      "before it is read",
          at=SOFTMAX),
    Fault("position shifted too far", op(Opcode.ALU, "sequencer", rd=KEY_ROW, fn=Alu.SHR), {"imm": 3},
          "that two positions of one slot write", at=op(Opcode.STORE_ROW, STORE)),
    Fault("a shift by more than a word", op(Opcode.ALU, "sequencer", rd=KEY_ROW, fn=Alu.SHR), {"imm": 40},
          "a shift is by 0 to 31 bits"),
    Fault("a sum that wraps", op(Opcode.ALU, "sequencer", rd=SCORE_WORDS, fn=Alu.MUL), {"imm": 1 << 31},
          "must fit 32 bits"),
    Fault("register 0 written", op(Opcode.ALU, "sequencer", rd=LENGTH), {"rd": 0}, "register 0 is always "
                                                                                   "zero"),
    Fault("a layer too few", op(Opcode.LOOP), {"count": less}, "every row of the image is read",
          at=op(M, "ffn_residual", row_reg=None),
          at_last=True),
    Fault("a layer too many", op(Opcode.LOOP), {"count": more}, "equally often", at=op(M, "logits")),
    Fault("a loop that counts tokens", op(Opcode.LOOP), {"count_reg": 1}, "may not depend on the token"),
    Fault("a count from the token", SCORES, {"nr_reg": 1}, "may depend on the token"),
    Fault("no END", op(Opcode.END), {"opcode": Opcode.ALU, "rd": 15}, "every LOOP needs its END", at=BACK),
    Fault("no LOOP", op(Opcode.LOOP), {"opcode": Opcode.ALU, "rd": 15}, "an END needs an open LOOP",
          at=op(Opcode.END)),
    Fault("no HALT", op(Opcode.HALT), {"opcode": Opcode.ALU, "rd": 15}, "runs past the last word"),
    Fault("an opcode that is not there", op(V, GATE), {"opcode": 12}, "opcodes are 0 to 8; this word has 12"),
]


def planted(image: Image, fault: Fault) -> tuple[Image, int]:
    """The image with a fault, only its decode entry, and the address that the error must have."""
    name = next(n for n in image.entries if n.startswith("decode@"))
    start, listing = image.entries[name].address, Listing(image)
    program = decode(image.microcode)
    assert start > 0 and program[-1].opcode == Opcode.HALT, "decode is the last entry"

    def choose(where: Where, after: int) -> list[int]:
        return [a for a in range(after, len(program)) if where(program[a], listing.operator(a))]

    address = choose(fault.where, start)[fault.nth]
    old = program[address]
    values = dict(old.values)
    raw = fault.change.get("opcode", old.opcode)
    if raw != old.opcode:
        values = {}
    for key, value in fault.change.items():
        if key != "opcode":
            values[key] = value(old[key]) if callable(value) else int(value)
    words = image.microcode.copy()
    if raw > max(Opcode):
        words[address, 0] = words[address, 0] & ~np.uint32(15) | np.uint32(raw)
    else:
        words[address] = encode([Instruction(Opcode(raw), values)])[0]
    assert (words != image.microcode).any(), "the fault changes something"
    if fault.at is not None:
        # An error elsewhere: of the instructions from there on, the first or the last that `at` chooses.
        address = choose(fault.at, start if fault.at_last or fault.at is BACK else address)[-1
                                                                                            if fault.at_last
                                                                                            else 0]
    config = replace(image.config, **fault.config) if fault.config else image.config
    return replace(image, microcode=words, entries={name: image.entries[name]}, config=config), address


def test_the_decode_entry_alone_passes(image):
    """So that a fault's errors are the fault's."""
    name = next(n for n in image.entries if n.startswith("decode@"))
    assert check(replace(image, entries={name: image.entries[name]})).ok


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_planted_fault_is_found_at_its_address(image, fault):
    broken, address = planted(image, fault)
    report = check(broken)
    assert any(error.address == address and fault.says in str(error) for error in report.errors), (
        f"wanted {fault.says!r} at address {address}; got {report}")
    with pytest.raises(CheckError):
        report.require()


def test_there_are_many_faults_under_different_names():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 30
