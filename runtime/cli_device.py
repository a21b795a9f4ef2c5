"""The commands that run a compiled image on a device: run, chat, sim, bench, devices."""

import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

from hw.config import preset
from hw.errors import WordlineError
from hw.image import Image, load
from hw.isa import Instruction, Opcode, encode
from hw.memorymap import Space
from runtime.cli import (
    DeviceOption,
    ImageArgument,
    JsonOption,
    MaxTokensOption,
    MinPOption,
    SeedOption,
    SystemOption,
    TemperatureOption,
    TopKOption,
    TopPOption,
    emit,
    errors,
    opened,
    out,
    progress,
    table,
)
from runtime.cli_replay import replay
from runtime.conversation import Conversation
from runtime.device import Device
from runtime.lockstep import Diverged, Lockstep
from runtime.remote import RemoteConversation
from runtime.roofline import share_of_bound
from runtime.sampling import Sampling
from runtime.session import Session, Step
from runtime.transport import SCHEMES, Command

__all__ = ["COLUMNS", "COMMANDS", "PROMPT", "chatted", "peak_megabytes", "row", "summary", "together"]

PROMPT = "Explain how a computer remembers things."


@contextmanager
def resident(uri: str, image: Image) -> Iterator[Device]:
    """A device of the image's configuration with the image in it."""
    with opened(uri, image.config) as device:
        device.load(image)
        yield device


def summary(image: Image, steps: list[Step]) -> dict[str, Any]:
    """Tokens, cycles and speed of prompt and generation, apart."""
    facts: dict[str, Any] = {}
    for kind, name in (("prefill", "prompt"), ("decode", "generation")):
        chosen = [s for s in steps if s.kind == kind]
        seconds, share = sum(s.seconds for s in chosen), share_of_bound(image, chosen)
        facts[name] = {
            "tokens": len(chosen), "seconds": round(seconds, 4),
            "tokens_per_second": round(len(chosen) / seconds, 2) if seconds else None,
            "cycles_per_token": round(sum(s.cycles for s in chosen) / len(chosen)) if chosen else None,
            "share_of_row_bound": round(share, 4) if share else None,
        }
    return facts


def _sentence(image: Image, steps: list[Step]) -> str:
    facts = summary(image, steps)["generation"]
    if not facts["tokens"]:
        return "no tokens"
    said = (f"{facts['tokens']} tokens, {facts['tokens_per_second']} tokens/s, "
            f"{facts['cycles_per_token']:,} cycles per token")
    if facts["share_of_row_bound"] is None:  # a device that takes no time
        return said
    return f"{said}, {facts['share_of_row_bound']:.1%} of the bound"


def run(
    image: ImageArgument,
    prompt: Annotated[str, typer.Argument(help="The prompt; - reads it from standard input.")],
    device: DeviceOption = "model:",
    raw: Annotated[bool, typer.Option("--raw", help="Continue the text, without chat template.")] = False,
    system: SystemOption = None,
    max_tokens: MaxTokensOption = 256,
    temperature: TemperatureOption = 0.0,
    top_k: TopKOption = 0,
    top_p: TopPOption = 1.0,
    min_p: MinPOption = 0.0,
    seed: SeedOption = None,
    as_json: JsonOption = False,
) -> None:
    """Answer one prompt and stream the text."""
    program, chosen = load(image), Sampling(temperature, top_k, top_p, min_p, seed)
    text = sys.stdin.read() if prompt == "-" else prompt
    with resident(device, program) as opened_device, Conversation(opened_device, program, system) as chat_:
        plain = raw or not program.text.get("chat_template")
        pieces = (chat_.complete if plain else chat_.ask)(text, chosen, max_tokens)
        if as_json:
            reply = "".join(pieces)
            emit({"text": reply, "device": device, **summary(program, chat_.session.steps)}, True, out.print)
            return
        _stream(pieces)
        errors.print(_sentence(program, chat_.session.steps), style="dim")


def chat(
    image: Annotated[Path | None, typer.Argument(help="A compiled image (.wl); none with --server.")] = None,
    server: Annotated[str | None, typer.Option(help="Talk with a server at this address instead.")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="WORDLINE_API_KEY", help="The server's key.")] = None,
    prompt: Annotated[str | None, typer.Option("--prompt", "-p", help="Ask this and end.")] = None,
    device: DeviceOption = "model:",
    system: SystemOption = None,
    max_tokens: MaxTokensOption = 512,
    temperature: TemperatureOption = 0.0,
    top_k: TopKOption = 0,
    top_p: TopPOption = 1.0,
    min_p: MinPOption = 0.0,
    seed: SeedOption = None,
) -> None:
    """Talk with the model; an empty line or Ctrl-D ends, Ctrl-C stops a reply."""
    chosen = Sampling(temperature, top_k, top_p, min_p, seed)
    if (image is None) == (server is None):
        raise WordlineError("an image or --server ADDRESS was wanted; got " + ("both" if image else "neither"))
    if image is None:
        assert server is not None
        remote = RemoteConversation(server, api_key, system)
        _talk(prompt, lambda text: remote.ask(text, chosen, max_tokens), lambda: None)
        return
    program = load(image)
    with resident(device, program) as opened_device, Conversation(opened_device, program, system) as talk:
        told = 0

        def tell() -> None:
            nonlocal told
            errors.print(_sentence(program, talk.session.steps[told:]), style="dim")
            told = len(talk.session.steps)

        _talk(prompt, lambda text: talk.ask(text, chosen, max_tokens), tell)


def _talk(prompt: str | None, ask: Callable[[str], Iterator[str]], tell: Callable[[], None]) -> None:
    """One turn, or turns until an empty line; `tell` comments on each."""
    if prompt is not None:
        _stream(ask(prompt))
        return
    while text := _asked():
        try:
            _stream(ask(text))
        except KeyboardInterrupt:
            print()
        tell()


def _asked() -> str:
    try:
        return input("> ").strip()
    except EOFError:
        print()
        return ""


def _stream(pieces: Iterator[str]) -> None:
    for piece in pieces:
        print(piece, end="", flush=True)
    print()


def chatted(device: Device, image: Image, prompt: str, tokens: int, quiet: bool = False) -> dict[str, Any]:
    """A greedy chat on a device, streamed to standard output unless `quiet`; its text and its speed."""
    device.load(image)
    pieces = []
    with Conversation(device, image) as talk:
        for piece in talk.ask(prompt, max_tokens=tokens):
            pieces.append(piece)
            if not quiet:
                print(piece, end="", flush=True)
        if not quiet:
            print()
        return {"device": device.identity.uri, "text": "".join(pieces), **summary(image, talk.session.steps)}


def together(first: Device, second: Device, image: Image, prompt: str, tokens: int,
             system: str | None = None) -> dict[str, Any]:
    """The start of a chat on two devices at once, whole state compared after every command; what was found.

    `difference` is None when they were identical.
    """
    lockstep = Lockstep(first, second, image)
    difference, text = None, ""
    with Conversation(lockstep, image, system) as talk, progress("lockstep") as update:
        ids = talk.prompt(prompt)
        commands = len(ids) + tokens - 1
        lockstep.progress = lambda done: update(f"{done} of {commands} commands", done / commands)
        generated: list[int] = []
        try:
            for token in talk.session.generate(ids, max_tokens=tokens):
                generated.append(token)
        except Diverged as error:
            difference = str(error)
        text = talk.tokenizer.decode(generated)
    facts: dict[str, Any] = {
        "commands": len(lockstep.pairs), "prompt_tokens": len(ids), "tokens": len(generated), "text": text,
        "identical": difference is None, "difference": difference}
    for name, device in (("first", first), ("second", second)):
        steps = [replace(step, cycles=getattr(pair, name).cycles, seconds=getattr(pair, f"{name}_seconds"))
                 for pair, step in zip(lockstep.pairs, talk.session.steps, strict=True)]
        facts[name] = {"device": device.identity.uri, **summary(image, steps)}
    return facts


def sim(
    image: ImageArgument,
    tokens: Annotated[int, typer.Option("--tokens", "-n", help="Tokens to generate.", min=1)] = 4,
    prompt: Annotated[str, typer.Option("--prompt", "-p", help="What the user says.")] = PROMPT,
    system: SystemOption = None,
    device: DeviceOption = "rtl:",
    against: Annotated[str, typer.Option(help="The device that is taken to be right.")] = "model:",
    as_json: JsonOption = False,
) -> None:
    """Run a chat on the Verilog and on the functional model; compare the whole state after every command."""
    program = load(image)
    with opened(against, program.config) as right, opened(device, program.config) as judged:
        facts = together(right, judged, program, prompt, tokens, system)
    emit(facts, as_json, _show_together)
    if not facts["identical"]:
        raise typer.Exit(1)


def _show_together(facts: dict[str, Any]) -> None:
    shown = table(f"{facts['commands']} commands, {facts['prompt_tokens']} prompt tokens", *COLUMNS)
    for name in ("first", "second"):
        shown.add_row(*row(facts[name]))
    out.print(shown)
    out.print(f"text: {facts['text']!r}", markup=False)
    out.print(facts["difference"] or "identical", markup=False)


COLUMNS = ("device", "tokens", "cycles per token", "share of the row-read bound", "seconds per token")


def row(facts: dict[str, Any]) -> tuple[str, ...]:
    """Cells of `COLUMNS` for one device's generation, as `together` and `chatted` report it."""
    f = facts["generation"]
    if not f["tokens"]:
        return facts["device"], "0", "", "", ""
    share = f["share_of_row_bound"]
    return (facts["device"], str(f["tokens"]), f"{f['cycles_per_token']:,}", f"{share:.1%}" if share else "",
            f"{f['seconds'] / f['tokens']:.3f}")


def bench(
    image: ImageArgument,
    device: DeviceOption = "model:",
    prompt_tokens: Annotated[int, typer.Option(help="Tokens of the prompt.", min=1)] = 64,
    tokens: Annotated[int, typer.Option("--tokens", "-n", help="Tokens to generate.", min=1)] = 64,
    as_json: JsonOption = False,
) -> None:
    """Measure the speed of an image on a device."""
    started = perf_counter()
    program = load(image)
    loaded = perf_counter()
    with opened(device, program.config) as opened_device:
        before = perf_counter()
        opened_device.load(program)
        resident_seconds = perf_counter() - before
        with Session(opened_device, program) as session:
            list(session.generate([1], max_tokens=2))  # compiles what is compiled at first use
            session.steps.clear()
            prompt = [n % session.vocabulary for n in range(2, 2 + prompt_tokens)]
            with progress("bench") as update:
                for n, _ in enumerate(session.generate(prompt, max_tokens=tokens), 1):
                    update(f"{n} of {tokens} tokens", n / tokens)
            steps = session.steps
    facts = {"image": str(image), "device": device, "configuration": program.config.name,
             "read_seconds": round(loaded - started, 3), "load_seconds": round(resident_seconds, 3),
             **summary(program, steps), "peak_megabytes": peak_megabytes()}
    emit(facts, as_json, _show_bench)


def peak_megabytes() -> int:
    """Largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _show_bench(facts: dict[str, Any]) -> None:
    shown = table(f"{facts['image']} on {facts['device']}", "", "tokens", "tokens/s", "cycles per token")
    for name in ("prompt", "generation"):
        f = facts[name]
        shown.add_row(name, str(f["tokens"]), str(f["tokens_per_second"]), f"{f['cycles_per_token'] or 0:,}")
    out.print(shown)
    out.print(f"image read in {facts['read_seconds']} s, loaded in {facts['load_seconds']} s; "
              f"{facts['peak_megabytes']} MB resident at most")


def devices(
    config: Annotated[str, typer.Option(help="Preset to open simulated devices with.")] = "tiny",
    as_json: JsonOption = False,
) -> None:
    """Open every kind of device, try it, and print PASS or the reason why not."""
    chosen = preset(config)
    found = []
    for scheme in SCHEMES.values():
        if not scheme.whole:
            found.append({"device": scheme.usage, "what": scheme.sentence, "state": "",
                          "detail": "not a machine by itself, so there is nothing to try"})
            continue
        try:
            with opened(f"{scheme.name}:", chosen) as device:
                _try(device)
                state, text = "PASS", device.identity.description
        except WordlineError as error:
            state, text = "fail", str(error)
        found.append({"device": scheme.usage, "what": scheme.sentence, "state": state, "detail": text})
    emit(found, as_json, _show_devices)


def _try(device: Device) -> None:
    """Write a program that halts, run it, and read back what was written; raises `WordlineError`."""
    words = encode([Instruction(Opcode.HALT)])
    device.transport.write(Space.MICROCODE, 0, words)
    found = device.transport.read(Space.MICROCODE, 0, 1)
    if (found != words).any():
        raise WordlineError(f"microcode {words.tolist()} was written; {found.tolist()} was read back")
    while not device.transport.submit(Command(0)):
        device.transport.advance(100)
    for _ in range(1000):
        if device.transport.poll() is not None:
            return
        device.transport.advance(100)
    raise WordlineError("a program of one HALT was started and did not complete")


def _show_devices(found: list[dict[str, str]]) -> None:
    for device in found:
        out.print(f"{device['state']:5} {device['device']:24} {device['what']}", markup=False)
        out.print(f"      {device['detail']}", markup=False, style="dim")


COMMANDS = (run, chat, sim, replay, bench, devices)
