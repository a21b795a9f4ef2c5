"""All proofs, by name."""

from tests.formal import arithmetic, control, products
from tests.formal.prove import Proof

__all__ = ["PROOFS"]

PROOFS: dict[str, Proof] = {proof.name: proof for proof in (*control.PROOFS, *arithmetic.PROOFS, *products.PROOFS)}
