"""What a copy of cached tokens costs against running them again, what pages would cost, and how many slots fit.

For the shape of SmolLM2-135M with 4-bit layers on `w16`, as `bench.cycles` has it. Cycles of a copy through the host's
window are measured on the Verilog of `tiny`, where a word costs what it costs everywhere.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from time import process_time

import numpy as np

from bench.cycles import CASES
from bench.measure import record
from hw.config import BLOCK, preset
from hw.image import Image
from hw.memorymap import SPACE_TABLE, Space
from hw.timemodel import predict
from hw.timing import latencies
from runtime.device import Device
from sim.rtl import RtlDevice

__all__ = ["copied_words", "page_steps"]

CASE = CASES["SmolLM2-135M, 4 bits, w16"]
TOKENS = (16, 64, 256, 1024)
PAGES = (32, 64, 128, 256)


def copied_words(image: Image, tokens: int) -> int:
    """Words that a fork of some tokens reads, and writes."""
    words = 0
    for plane in image.kv.planes:
        shape = SPACE_TABLE[Space(plane.space)].shape(image.config)
        words += plane.count * -(-tokens // plane.tokens) * int(np.prod(shape[1:]))
    return words


def run_cycles(image: Image, tokens: int) -> int:
    """Cycles of running the first tokens of a prompt."""
    total = 0
    for position in range(tokens):
        entry = image.entry("prefill", position + 1)
        values = {"token": 0, "position": position, "slot": 0}
        total += predict(image.config, image.microcode, entry.address, [values[n] for n in entry.arguments]).cycles
    return total


def page_steps(context: int, page: int | None) -> int:
    """Steps of the matrix engine for the scores of one layer; with pages, one instruction and pass for each."""
    shape, tiles, shortest = CASE.shape, CASE.config.tiles, latencies(CASE.config).accumulate
    blocks = -(-shape.head_dim // BLOCK)
    page = page or context
    return shape.kv_heads * blocks * (context // page) * max(shape.group * page // tiles, shortest)


def slots_that_fit(image: Image) -> int:
    """Slots of the whole context in the rows beside the weights, by the rows of one."""
    rows = sum(plane.count * plane.slot for plane in image.kv.planes if plane.space == Space.ARRAY)
    return int((image.config.rows - (image.report["rows"] - rows)) // rows)


def window_cycles() -> float:
    """Clock cycles for a word read through the window and written again."""
    words = np.zeros((64, *SPACE_TABLE[Space.ARRAY].shape(preset("tiny"))[1:]), np.uint32)
    device = RtlDevice(preset("tiny"), port_words=words.size)
    try:
        before = device.cycles
        device.write(Space.ARRAY, 64, device.read(Space.ARRAY, 0, len(words)))
        return (device.cycles - before) / words.size
    finally:
        device.close()


def host_seconds(image: Image, tokens: int) -> float:
    """CPU time of a fork on the functional model, where the host moves every word; the image has two slots."""
    with Device.open("model:", image.config) as device:
        device.load(image)
        source = device.kv.take()
        device.kv.grow(source, tokens)
        device.kv.release(device.kv.fork(source))  # touches the memory
        started = process_time()
        device.kv.fork(source)
        return process_time() - started


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, help="write the JSON here too")
    options = parser.parse_args()
    image = CASE.image()
    two = replace(CASE, config=replace(CASE.config, rows=600_000), kind="pair").image()
    each = window_cycles()
    copies = []
    for tokens in TOKENS:
        words, again = copied_words(image, tokens), run_cycles(image, tokens)
        copies.append({"tokens": tokens, "words": words, "cycles_copied": round(words * each),
                       "cycles_run_again": again, "ratio": round(again / (words * each), 1),
                       "host_ms": round(1000 * host_seconds(two, tokens), 2)})
    whole = page_steps(CASE.context, None)
    pages = {page: round(page_steps(CASE.context, page) / whole - 1, 3) for page in PAGES}
    record({"benchmark": "kvcache", "case": CASE.name, "slots_of_whole_context": slots_that_fit(image),
            "window_cycles_per_word": round(each, 2), "fork": copies, "more_steps_for_scores_by_page": pages},
           options.output)


if __name__ == "__main__":
    main()
