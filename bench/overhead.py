"""What the host costs: CPU time of a submit, of a wait and of a whole decode step on a device that does nothing.

Beside it, if it is installed (`pip install '.[bench]'`), the same for IREE: a dispatch of a trivial module.
"""

import gc
import importlib.util
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from time import process_time_ns
from typing import Any

from bench.measure import arguments, on_one_core, record
from hw.config import preset
from hw.image import Entry, Image
from runtime.command_buffer import Argument
from runtime.conformance.program import small_image
from runtime.device import Device
from runtime.engine import Engine
from runtime.job import Ending, Request, Token
from runtime.sampling import Sampling
from runtime.semaphore import Semaphore
from runtime.session import Session

__all__ = ["decode_image", "measured", "microseconds"]

CONTEXTS = (256, 1024, 2048)
COMMANDS = 256
"""Room for commands, so that many submits can be timed before their completions are taken."""

PLACES = ("token", "position", "slot")


def decode_image(config_name: str) -> Image:
    """An image with the entry points of a compiled model, for a device that does not run them."""
    image = small_image(preset(config_name).replace(commands=COMMANDS))
    entries = {f"{kind}@{context}": Entry(8, PLACES, context) for kind in ("prefill", "decode") for context in CONTEXTS}
    return replace(image, entries=entries, kv=replace(image.kv, context=CONTEXTS[-1]))


def microseconds(work: Callable[[], object], each: int, turns: int) -> float:
    """CPU time of `work` by the `each` things that it does, the best of some turns."""
    best = float("inf")
    gc.disable()
    for _ in range(turns):
        started = process_time_ns()
        work()
        best = min(best, process_time_ns() - started)
    gc.enable()
    return round(best / each / 1000, 2)


class Silent:
    """A listener that wants all tokens."""

    def token(self, token: Token) -> bool:
        return True

    def ended(self, ending: Ending) -> None:
        assert ending.error is None, ending.error


def measured(config_name: str, count: int, turns: int) -> dict[str, float]:
    """Microseconds of each of our own operations."""
    image, found = decode_image(config_name), {}
    values = {"token": 5, "position": 9, "slot": 1}
    with Device.open("null:", image.config) as device:
        device.load(image)
        entry = image.entries["decode@256"]
        commands = device.command_buffer().dispatch(entry, **{name: Argument(name) for name in PLACES})
        timeline = Semaphore("timeline")

        def best(submit: Callable[[], object]) -> float:
            """As many as the device has room for at a time; taking their completions is not measured here."""
            def work() -> None:
                for _ in range(COMMANDS):
                    submit()

            times = []
            for _ in range(turns * 5):
                times.append(microseconds(work, COMMANDS, 1))
                device.wait(device.queue.barrier())
            return min(times)

        found["submit"] = best(lambda: device.enqueue(entry, **values))
        found["submit_command_buffer"] = best(lambda: device.queue.submit(commands, values))
        found["submit_with_wait_and_signal"] = best(
            lambda: device.queue.submit(commands, values, [timeline.at(timeline.value)],
                                        [timeline.at(timeline.value + 1 + sum(timeline.sources.values()))]))

        def rounds() -> None:
            for _ in range(count):
                device.submit(entry, **values)

        found["submit_and_wait"] = microseconds(rounds, count, turns)
        length = CONTEXTS[0] - 2
        for name, sampling in (("greedy", Sampling()), ("sampled", Sampling(temperature=1, seed=1))):
            with Session(device, image) as session:
                def generate(session: Session = session, sampling: Sampling = sampling) -> None:
                    session.feed([])
                    session.steps.clear()
                    for _ in session.generate([1], sampling, length):
                        pass

                found[f"decode_step_session_{name}"] = microseconds(generate, length, turns * 5)
    with Device.open("null:", image.config) as device:
        engine = Engine(device, image)

        def serve() -> None:
            engine.submit([(Request((1,), max_tokens=length), Silent())])
            while engine.step():
                pass

        found["decode_step_engine"] = microseconds(serve, length, turns * 5)
    return found


def iree(count: int, turns: int) -> dict[str, Any] | None:
    """Microseconds of a dispatch of a trivial module, CPU local-sync; None when IREE is not installed."""
    if importlib.util.find_spec("iree") is None:
        return None
    import iree.compiler  # noqa: PLC0415  not dependencies of the project
    import iree.runtime  # noqa: PLC0415
    import numpy as np  # noqa: PLC0415

    text = "func.func @add(%a: tensor<4xf32>) -> tensor<4xf32> {\n  %b = arith.addf %a, %a : tensor<4xf32>\n" \
           "  return %b : tensor<4xf32>\n}"
    binary = iree.compiler.compile_str(text, target_backends=["llvm-cpu"],
                                       extra_args=["--iree-llvmcpu-target-cpu=generic"])
    config = iree.runtime.Config("local-sync")
    context = iree.runtime.SystemContext(config=config)
    context.add_vm_module(iree.runtime.VmModule.copy_buffer(config.vm_instance, binary))
    function = context.modules.module["add"]
    host = np.ones(4, np.float32)
    there = iree.runtime.asdevicearray(config.device, host)

    def calls(argument: object) -> Callable[[], None]:
        def work() -> None:
            for _ in range(count):
                function(argument)
        return work

    return {"version": version("iree-base-runtime"),
            "dispatch_device_array": microseconds(calls(there), count, turns),
            "dispatch_numpy_argument": microseconds(calls(host), count, turns)}


def main() -> None:
    """Measure."""
    parser = arguments(__doc__)
    parser.set_defaults(config="tiny")
    parser.add_argument("--count", type=int, default=2000, help="calls in a turn")
    parser.add_argument("--turns", type=int, default=5, help="turns; the best counts")
    options = parser.parse_args()
    on_one_core()
    facts: dict[str, Any] = {"benchmark": "overhead", "unit": "microseconds of CPU time",
                             "configuration": options.config,
                             "null": measured(options.config, options.count, options.turns)}
    if (theirs := iree(options.count, options.turns)) is not None:
        facts["iree"] = theirs
    record(facts, options.output)


if __name__ == "__main__":
    main()
