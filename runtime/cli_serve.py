"""The command that puts a model on the network: serve."""

from typing import Annotated

import typer

from hw.errors import WordlineError
from runtime.cli import DeviceOption, ImageArgument, errors, opened
from runtime.server.settings import Settings

__all__ = ["COMMANDS", "serve"]

MISSING = ("the server's libraries were wanted; {0!r} is not installed: pip install 'wordline[serve]'")


def serve(
    image: ImageArgument,
    device: DeviceOption = "model:",
    host: Annotated[str, typer.Option(help="Address to listen on; others than this machine's need a key.")] =
        Settings.host,
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)] =
        Settings.port,
    api_key: Annotated[str | None, typer.Option(
        envvar="WORDLINE_API_KEY", help="What clients must present. Better given by the variable.")] = None,
    name: Annotated[str | None, typer.Option(help="The model's name for clients; the file's if not given.")] = None,
    queue: Annotated[int, typer.Option(help="Sequences that may wait for a slot.", min=1)] = Settings.queue,
    body_bytes: Annotated[int, typer.Option(help="Largest body of a request.", min=1)] = Settings.body_bytes,
    request_seconds: Annotated[float, typer.Option(help="Time in which a sequence must end.")] =
        Settings.request_seconds,
    write_seconds: Annotated[float, typer.Option(help="Time in which a client must read what was sent.")] =
        Settings.write_seconds,
    choices: Annotated[int, typer.Option(help="Sequences that one request may ask for.", min=1)] = Settings.choices,
    connections: Annotated[int, typer.Option(help="Open connections.", min=1)] = Settings.connections,
    open_access: Annotated[bool, typer.Option("--open-access", help="Serve other machines without a key.")] = False,
) -> None:
    """Serve an image with OpenAI's interface, many requests at once."""
    try:
        from runtime.server.launch import launch
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] in ("runtime", "hw", "sim"):
            raise
        raise WordlineError(MISSING.format(error.name)) from error
    settings = Settings(host=host, port=port, api_key=api_key, name=name, queue=queue, body_bytes=body_bytes,
                        request_seconds=request_seconds, write_seconds=write_seconds, choices=choices,
                        connections=connections, open_access=open_access)
    launch(image, lambda config: opened(device, config), settings, lambda line: errors.print(line, markup=False))


COMMANDS = (serve,)
