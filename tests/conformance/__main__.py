"""``python -m tests.conformance``: many random programs on several configurations; failures are shrunk and printed."""

import argparse
import sys
import time

from rich.console import Console
from rich.progress import Progress

from hw.config import HardwareConfig
from tests.conformance.plan import size
from tests.conformance.shrink import report, shrink
from tests.conformance.trial import Trial, config_of, random_case
from tests.results import record

CONFIGS: tuple[HardwareConfig, ...] = (
    config_of(4), config_of(1, activation_bits=8), config_of(2, formats=("q8", "q4"), queue=2), config_of(8, queue=1),
    config_of(16), config_of(32, rows=331, scratch=642))
"""Numbers of tiles, formats, operand widths and queue depths; half of the programs run on the first."""


def main() -> int:
    """Number of programs that failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--programs", type=int, default=2000)
    parser.add_argument("--first", type=int, default=1000, help="the seed of the first program")
    parser.add_argument("--tiles", type=int, help="only the configuration with so many tiles")
    chosen = parser.parse_args()
    configs = [c for c in CONFIGS if chosen.tiles in (None, c.tiles)]
    console, began = Console(), time.monotonic()
    failed, words, facts = 0, 0, []
    with Progress(console=console) as progress:
        task = progress.add_task("random programs", total=chosen.programs)
        for config in configs:
            first_share = len(configs) == 1 or config is configs[0]
            count = chosen.programs // (1 if len(configs) == 1 else 2 if first_share else 2 * (len(configs) - 1))
            progress.update(task, description=f"building {config.name}")
            trial = Trial(config)
            progress.update(task, description=f"random programs, {config.tiles} tiles")
            bad = 0
            for seed in range(chosen.first, chosen.first + count):
                case = random_case(seed, config)
                words += size(case.plan)
                if (what := trial.difference(case)) is not None:
                    bad += 1
                    progress.console.print(f"[red]{config.tiles} tiles, seed {seed}: {what}[/]")
                    small = shrink(case, lambda c, t=trial: t.legal(c) and t.difference(c) is not None)
                    progress.console.print(report(small, trial.difference(small) or what), markup=False)
                progress.advance(task)
            failed += bad
            facts.append({"tiles": config.tiles, "programs": count, "failed": bad})
    total = sum(f["programs"] for f in facts)
    console.print(f"random: {total - failed} of {total} programs (seeds from {chosen.first}, {words} words, tiles "
                  f"{', '.join(str(c.tiles) for c in configs)}) equal in whole state, cycles and flag; "
                  f"{time.monotonic() - began:.0f} s")
    record("random", {"programs": total, "failed": failed, "first": chosen.first, "instructions": words,
                      "configs": facts})
    return failed


if __name__ == "__main__":
    sys.exit(bool(main()))
