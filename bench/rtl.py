"""Speed of the Verilog of a whole device under Verilator: cycles per CPU-second while it decodes a real model."""

from time import perf_counter, process_time

from bench.measure import arguments, on_one_core, peak_megabytes, record
from compiler.compile import compile_model
from hw.config import preset
from runtime.device import Device
from runtime.fetch import fetch
from runtime.session import Session


def main() -> None:
    """Open (build when needed), load, decode."""
    parser = arguments(__doc__)
    parser.add_argument("--tokens", type=int, default=3, help="tokens to decode")
    options = parser.parse_args()
    config = preset(options.config)
    image = compile_model(fetch(options.model), config)
    started = perf_counter()
    with Device.open("rtl:", config) as device:
        opened = perf_counter()
        device.load(image)
        loaded = perf_counter()
        on_one_core()
        with Session(device, image) as session:
            before = process_time()
            list(session.generate([1], max_tokens=options.tokens))
            seconds = process_time() - before
            cycles = sum(step.cycles for step in session.steps)
    record({
        "benchmark": "rtl", "model": options.model, "configuration": config.name,
        "open_seconds": round(opened - started, 1), "load_seconds": round(loaded - opened, 2),
        "tokens": options.tokens, "cycles": cycles, "cycles_per_cpu_second": round(cycles / seconds),
        "cpu_seconds_per_token": round(seconds / options.tokens, 3), "peak_megabytes": peak_megabytes(),
    }, options.output)


if __name__ == "__main__":
    main()
