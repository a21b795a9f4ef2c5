"""The command that makes an image known to vLLM: vllm."""

from pathlib import Path
from typing import Annotated, Any

import typer

from hw.image import load
from runtime.cli import DeviceOption, ImageArgument, JsonOption, emit, out
from runtime.transport import scheme_of
from runtime.vllm.folder import write_folder

__all__ = ["COMMANDS", "vllm"]


def vllm(
    image: ImageArgument,
    output: Annotated[Path | None, typer.Option(
        "--output", "-o", help="Folder to write; if not given, the image's name and '-vllm', beside it.")] = None,
    device: DeviceOption = "model:",
    as_json: JsonOption = False,
) -> None:
    """Write the model folder from which vLLM serves an image on a device (`vllm serve FOLDER`)."""
    scheme_of(device)  # vLLM opens it; that there is such a kind can be said now
    folder = output or image.with_name(f"{image.stem}-vllm")
    files = write_folder(load(image), image, folder, device)
    emit({"folder": str(folder), "files": [file.name for file in files], "device": device}, as_json, _show)


def _show(facts: dict[str, Any]) -> None:
    out.print(f"{facts['folder']}: for `vllm serve {facts['folder']}`, or LLM({facts['folder']!r}), on "
              f"{facts['device']}", markup=False)


COMMANDS = (vllm,)
