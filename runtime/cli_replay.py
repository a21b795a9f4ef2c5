"""The command that carries a recording out on another device."""

from pathlib import Path
from typing import Annotated, Any

import typer

from runtime.cli import JsonOption, emit, opened, out
from runtime.device import TRANSPORTS
from runtime.recording import Recording
from runtime.replay import ReplayDiffers
from runtime.replay import replay as carry_out

__all__ = ["replay"]


def replay(
    recording: Annotated[Path, typer.Argument(help="A file that a device 'record:FILE@DEVICE' wrote.")],
    device: Annotated[str, typer.Option("--device", "-d", help="The device that does it again.")] = "rtl:",
    against: Annotated[str, typer.Option(help="The device that is taken to be right when they differ.")] = "model:",
    as_json: JsonOption = False,
) -> None:
    """Do what was recorded on another device, and compare every read, completion and memory."""
    assert TRANSPORTS  # whose import makes the names known
    found = Recording(recording)
    facts: dict[str, Any] = {"recording": str(recording), "recorded_on": found.device, "device": device}
    with opened(device, found.config) as judged, opened(against, found.config) as right:
        try:
            outcome = carry_out(found, judged.transport, right.transport)
        except ReplayDiffers as error:
            facts |= {"identical": False, "difference": str(error)}
        else:
            facts |= {"identical": True, "commands": outcome.commands, "fences": outcome.fences,
                      "reads": outcome.reads, "cycles": outcome.cycles}
    emit(facts, as_json, _show)
    if not facts["identical"]:
        raise typer.Exit(1)


def _show(facts: dict[str, Any]) -> None:
    if not facts["identical"]:
        out.print(facts["difference"], markup=False)
        return
    out.print(f"{facts['commands']} commands in {facts['cycles']:,} cycles, {facts['reads']} reads, all memories at "
              f"{facts['fences']} fences: {facts['device']} does what was recorded on {facts['recorded_on']}",
              markup=False)
