"""``python -m tests.mutation``: plant every fault and name the program that finds it."""

import sys

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.mutation.faults import FAULTS
from tests.mutation.hunt import Catch, hunt
from tests.results import record

PROGRAMS = 100


def main() -> int:
    """Number of faults that no program found."""
    console, table = Console(), Table("fault", "found by random program", "what differed")
    with Progress(console=console) as progress:
        task = progress.add_task("building", total=len(FAULTS))

        def done(catch: Catch) -> None:
            progress.update(task, advance=1, description="planting faults")
            table.add_row(catch.fault.name, "[red]none[/]" if catch.seed is None else str(catch.seed),
                          (catch.what or "").split(" (")[0])

        catches = hunt(range(len(FAULTS)), PROGRAMS, done)
    missed = [catch for catch in catches if catch.seed is None]
    console.print(table)
    console.print(f"mutate: {len(catches) - len(missed)} of {len(catches)} planted faults found by {PROGRAMS} programs "
                  "that show nothing without a fault")
    record("mutation", {"programs": PROGRAMS, "faults": [
        {"name": c.fault.name, "file": f"hw/{c.fault.file}", "seed": c.seed, "what": (c.what or "").split(" (")[0]}
        for c in catches]})
    return len(missed)


if __name__ == "__main__":
    sys.exit(bool(main()))
