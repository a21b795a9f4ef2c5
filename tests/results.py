"""What the long verification runs found, as one JSON file each, from which docs/verification.md is written."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["FOLDER", "load", "record"]

FOLDER = Path(__file__).resolve().parent.parent / "build" / "verification"


def record(name: str, facts: Mapping[str, Any]) -> Path:
    """Keep the facts of a run under its name, with the date."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps({"date": time.strftime("%Y-%m-%d"), **facts}, indent=1) + "\n")
    return path


def load(name: str) -> dict[str, Any] | None:
    """The facts of the last run of that name, or None."""
    path = FOLDER / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None
