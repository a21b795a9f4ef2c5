"""Opens a model file: finds out its format and architecture and calls the frontend that knows it."""

from collections.abc import Callable
from pathlib import Path

from compiler.errors import ModelFileError
from compiler.frontends import llama
from compiler.frontends.gguf import GgufFile
from compiler.source import ModelSource

__all__ = ["ARCHITECTURES", "load_model"]

#: `general.architecture` of a GGUF file -> the function that reads it.
ARCHITECTURES: dict[str, Callable[[GgufFile], ModelSource]] = {"llama": llama.read}


def load_model(path: str | Path) -> ModelSource:
    """Read a model file. Raises `ModelFileError` when it is damaged or of a kind that is not supported."""
    file = GgufFile.open(path)
    architecture = file.metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise ModelFileError(
            f"{file.path}: wanted an architecture from {sorted(ARCHITECTURES)}, found {architecture!r}; "
            "use a model of a supported architecture"
        )
    return ARCHITECTURES[architecture](file)
