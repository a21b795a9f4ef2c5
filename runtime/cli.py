"""What all commands of the command line share: errors as one line, progress, JSON, common options."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from typer.core import TyperGroup

from hw.config import HardwareConfig
from hw.errors import WordlineError
from runtime.device import Device

__all__ = [
    "Commands", "ContextOption", "DeviceOption", "ImageArgument", "JsonOption", "MaxTokensOption",
    "MinPOption", "SeedOption", "SystemOption", "TemperatureOption", "TopKOption", "TopPOption", "emit",
    "errors", "opened", "out", "progress", "table",
]

PIPE_WIDTH = 120
"""Columns of tables in a file or pipe, which has no width of its own."""

out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else PIPE_WIDTH)
errors = Console(stderr=True, highlight=False, soft_wrap=True)

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells do


UsageError: type[Exception] = typer.BadParameter.__bases__[0]
"""What a wrong option or a missing argument raises. Typer has no name of its own for it."""


class Commands(TyperGroup):
    """The one place where an error becomes a line on the error stream and an exit code."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args:
            return super().parse_args(ctx, args)  # shows the help
        try:
            return super().parse_args(ctx, args)
        except UsageError as error:
            _say_usage(error, ctx)
            raise typer.Exit(EXIT_ERROR) from error

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UsageError as error:
            _say_usage(error, ctx)
            ctx.exit(EXIT_ERROR)
        except WordlineError as error:
            print(f"wordline: {error}", file=sys.stderr)
            ctx.exit(EXIT_ERROR)
        except BrokenPipeError:
            raise  # the reader of a pipe has seen enough; the library below ends quietly
        except OSError as error:  # a full disk, a folder without permission: the user's too
            print(f"wordline: {error.strerror or error}"
                  + (f": {error.filename}" if error.filename else ""), file=sys.stderr)
            ctx.exit(EXIT_ERROR)
        except KeyboardInterrupt:
            print("\nwordline: interrupted", file=sys.stderr)
            ctx.exit(EXIT_INTERRUPTED)


def _say_usage(error: Any, ctx: Any) -> None:
    """One line for a command that was not written as it must be."""
    said = " ".join(error.format_message().split()).rstrip(".")
    # Some errors of a command's options come without that command's context.
    path = error.ctx.command_path if error.ctx else " ".join(filter(None, (ctx.command_path, ctx.invoked_subcommand)))
    print(f"wordline: {said}; see `{path} --help`", file=sys.stderr)


ImageArgument = Annotated[Path, typer.Argument(help="A compiled image (.wl).", metavar="IMAGE")]
DeviceOption = Annotated[str, typer.Option("--device", "-d", help="Device; `wordline devices` lists them.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Report as JSON on standard output.")]
ContextOption = Annotated[int | None, typer.Option(
    min=1, help="Tokens that the KV cache holds; the model's own, at most 2048, if not given.")]
MaxTokensOption = Annotated[int, typer.Option("--max-tokens", "-n", help="Tokens to make at most.", min=1)]
SystemOption = Annotated[str | None, typer.Option(help="System message.")]
TemperatureOption = Annotated[float, typer.Option(help="0 takes the best token.")]
TopKOption = Annotated[int, typer.Option(help="Draw from this many best tokens; 0: all.")]
TopPOption = Annotated[float, typer.Option(help="Draw from the best tokens of this total probability.")]
MinPOption = Annotated[float, typer.Option(help="Draw from tokens this probable relative to the best.")]
SeedOption = Annotated[int | None, typer.Option(help="Same seed, same text.")]


@contextmanager
def progress(what: str) -> Iterator[Callable[[str, float], None]]:
    """A bar on the error stream for long work; call what it gives with a stage and the share done (0 to 1).

    Nothing is shown when the stream is no terminal.
    """
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(what, total=1.0)

        def update(stage: str, share: float) -> None:
            bar.update(task, description=f"{what}: {stage}", completed=share)

        yield update


@contextmanager
def opened(uri: str, config: HardwareConfig | None = None) -> Iterator[Device]:
    """A device, given back at the end; simulated ones are built first when they never were."""
    with errors.status(f"opening {uri} (a simulator is built the first time)"):
        device = Device.open(uri, config)
    with device:
        yield device


def emit(facts: Any, as_json: bool, show: Callable[[Any], None]) -> None:
    """Report `facts`: as JSON, or the way `show` prints them."""
    if as_json:
        print(json.dumps(facts, indent=2, ensure_ascii=False, default=_plain))
    else:
        show(facts)


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)


def table(title: str, *columns: str) -> Table:
    """A table whose columns other than the first are numbers."""
    made = Table(title=title, title_justify="left")
    for n, column in enumerate(columns):
        made.add_column(column, justify="right" if n else "left")
    return made
