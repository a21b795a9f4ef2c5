"""Time and memory of compiling a real model, of writing the image and of loading it into a device."""

import tempfile
from pathlib import Path
from time import perf_counter, process_time

from bench.measure import arguments, peak_megabytes, record
from compiler.compile import compile_model
from hw.config import preset
from hw.image import load, save
from runtime.device import Device
from runtime.fetch import fetch


def main() -> None:
    """Compile, save, load."""
    options = arguments(__doc__).parse_args()
    path, config = fetch(options.model), preset(options.config)
    started, before = perf_counter(), process_time()
    image = compile_model(path, config)
    compiled, worked = perf_counter(), process_time() - before
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "model.wl"
        save(image, target)
        saved = perf_counter()
        size = target.stat().st_size
        loaded_image = load(target)
        read = perf_counter()
        with Device.open("model:", config) as device:
            device.load(loaded_image)
            resident = perf_counter()
    record({
        "benchmark": "compile", "model": options.model, "configuration": config.name,
        "compile_seconds": round(compiled - started, 2), "compile_cpu_seconds": round(worked, 2),
        "compile_and_save_peak_megabytes": peak_megabytes(),
        "save_seconds": round(saved - compiled, 2), "image_megabytes": round(size / 1e6, 1),
        "read_seconds": round(read - saved, 3), "load_seconds": round(resident - read, 3),
        "rows_used": image.report["rows"], "instructions": len(image.microcode),
    }, options.output)


if __name__ == "__main__":
    main()
