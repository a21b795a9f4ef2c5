"""``python -m tests.formal [name ...]``: run the proofs, all by default, and keep what they show."""

import sys

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.formal.proofs import PROOFS
from tests.formal.prove import ProofFailed, prove
from tests.results import record


def main(names: list[str]) -> int:
    """Number of proofs that failed."""
    unknown = sorted(set(names) - set(PROOFS))
    if unknown:
        raise SystemExit(f"proof {unknown[0]!r} does not exist; there are {', '.join(PROOFS)}")
    console, table, facts, failed = Console(), Table("proof", "what holds", "how far", "solver", "seconds"), [], 0
    with Progress(console=console) as progress:
        task = progress.add_task("proofs", total=len(names or PROOFS))
        for name in names or PROOFS:
            proof = PROOFS[name]
            progress.update(task, description=f"proving {name}")
            try:
                seconds = prove(proof).seconds
                result = f"{seconds:.0f}"
            except ProofFailed as error:
                failed += 1
                result = "[red]fails[/]"
                progress.console.print(f"[red]{error}[/]")
            table.add_row(name, proof.claim, proof.reach, proof.solver, result)
            facts.append({"name": name, "claim": proof.claim, "reach": proof.reach, "solver": proof.solver,
                          "passed": result.isdigit()})
            progress.advance(task)
    console.print(table)
    console.print(f"formal: {len(facts) - failed} of {len(facts)} proven")
    if not names:
        record("formal", {"proofs": facts})
    return failed


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
