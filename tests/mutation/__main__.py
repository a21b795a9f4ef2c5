"""``python -m tests.mutation``: plant every fault and name the test that finds it."""

import sys

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.mutation.faults import FAULTS
from tests.mutation.hostfaults import HOST_FAULTS
from tests.mutation.hosthunt import hunt_host
from tests.mutation.hunt import Catch, hunt
from tests.results import record

PROGRAMS = 100


def main() -> int:
    """Number of faults that no test found."""
    console, table = Console(), Table("fault", "in", "found by", "what it said")
    with Progress(console=console) as progress:
        task = progress.add_task("building the core", total=len(FAULTS) + len(HOST_FAULTS))

        def done(catch: Catch) -> None:
            progress.update(task, advance=1, description="planting faults")
            table.add_row(catch.fault.name, f"hw/{catch.fault.file}", catch.by or "[red]none[/]", catch.what or "")

        catches = hunt(range(len(FAULTS)), PROGRAMS, done)
        progress.update(task, description="building the host port")
        catches += hunt_host(range(len(HOST_FAULTS)), done)
    missed = [catch for catch in catches if catch.by is None]
    console.print(table)
    console.print(f"mutate: {len(catches) - len(missed)} of {len(catches)} planted faults found ({len(FAULTS)} in the "
                  f"core by {PROGRAMS} random programs, {len(HOST_FAULTS)} in the host port by its tests, which show "
                  "nothing without a fault)")
    record("mutation", {"programs": PROGRAMS, "faults": [
        {"name": c.fault.name, "file": f"hw/{c.fault.file}", "by": c.by, "what": c.what} for c in catches]})
    return len(missed)


if __name__ == "__main__":
    sys.exit(bool(main()))
