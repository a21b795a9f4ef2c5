"""Speed of the functional model on a real model, beside llama.cpp on the same file, one core each.

llama.cpp is measured when `llama-cpp-python` is installed (`pip install '.[bench]'`). The two take turns, so that a
busy machine slows both alike, and the best turn of each counts. Times are CPU time.
"""

import importlib.util
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

from bench.measure import arguments, on_one_core, peak_megabytes, record
from compiler.compile import compile_model
from hw.config import preset
from runtime.device import Device
from runtime.fetch import fetch
from runtime.roofline import share_of_bound
from runtime.session import Session
from runtime.tokenizer import Tokenizer

TEXT = "Memory is the part of a computer that keeps what it will need again."


def timed(work: Callable[[], object], tokens: int) -> float:
    """Tokens per CPU-second of one turn."""
    started = process_time()
    work()
    return tokens / (process_time() - started)


class Llama:
    """llama.cpp on one thread, one token at a time."""

    def __init__(self, path: Path, prompt: list[int], tokens: int) -> None:
        import llama_cpp  # noqa: PLC0415  not a dependency of the project

        self.model = llama_cpp.Llama(str(path), n_threads=1, n_threads_batch=1, n_ctx=512, verbose=False)
        self.version = llama_cpp.__version__
        self.prompt, self.tokens = prompt, tokens

    def prefill(self) -> None:
        self.model.reset()
        for token in self.prompt:
            self.model.eval([token])

    def decode(self) -> None:
        for _ in range(self.tokens):
            self.model.eval([self.model.sample(temp=0.0)])


def main() -> None:
    """Measure, alternating."""
    parser = arguments(__doc__)
    parser.add_argument("--tokens", type=int, default=64, help="tokens to decode in a turn")
    parser.add_argument("--turns", type=int, default=3, help="turns of each")
    options = parser.parse_args()
    on_one_core()
    path, config = fetch(options.model), preset(options.config)
    image = compile_model(path, config)
    prompt = Tokenizer(image.text).encode(TEXT)
    llama = Llama(path, prompt, options.tokens) if importlib.util.find_spec("llama_cpp") else None
    ours: dict[str, list[float]] = {"prompt": [], "decode": []}
    theirs: dict[str, list[float]] = {"decode": []}
    with Device.open("model:", config) as device:
        device.load(image)
        with Session(device, image) as session:
            list(session.generate(prompt, max_tokens=1))  # compiles
            for _ in range(options.turns):
                session.feed([])
                ours["prompt"].append(timed(partial(session.feed, prompt), len(prompt)))
                session.steps.clear()
                made = session.generate([*prompt, prompt[0]], max_tokens=options.tokens)
                ours["decode"].append(timed(partial(list, made), options.tokens))
                if llama is not None:
                    llama.prefill()
                    theirs["decode"].append(timed(llama.decode, options.tokens))
            steps = list(session.steps)
    cycles = round(sum(s.cycles for s in steps) / len(steps))
    facts: dict[str, Any] = {
        "benchmark": "functional", "model": options.model, "configuration": config.name,
        "prompt_tokens_per_cpu_second": round(max(ours["prompt"]), 1),
        "decode_tokens_per_cpu_second": round(max(ours["decode"]), 1),
        "cycles_per_token": cycles, "share_of_row_bound": round(share_of_bound(image, steps) or 0, 4),
        "positions": [steps[0].position, steps[-1].position],
    }
    if llama is None:
        facts["peak_megabytes"] = peak_megabytes()
    else:   # the memory is not ours alone
        facts["llama_cpp"] = {"version": llama.version,
                              "decode_tokens_per_cpu_second": round(max(theirs["decode"]), 1)}
        facts["ratio_to_llama_cpp"] = round(max(ours["decode"]) / max(theirs["decode"]), 3)
    record(facts, options.output)


if __name__ == "__main__":
    main()
