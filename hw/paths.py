"""Where the project keeps files between runs: model files, simulator builds, fitted tables."""

import os
from pathlib import Path

__all__ = ["cache_directory"]


def cache_directory() -> Path:
    """The folder for files that can be made or brought again; made when it is missing.

    `$WORDLINE_CACHE` wins, then `$XDG_CACHE_HOME/wordline`, then `~/.cache/wordline`.
    """
    chosen = os.environ.get("WORDLINE_CACHE")
    if chosen:
        directory = Path(chosen).expanduser()
    else:
        base = os.environ.get("XDG_CACHE_HOME")
        directory = (Path(base) if base else Path.home() / ".cache") / "wordline"
    directory.mkdir(parents=True, exist_ok=True)
    return directory
