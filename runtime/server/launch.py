"""From an image file to a server that answers: loads, opens, warms up, listens."""

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from hw.config import HardwareConfig
from hw.errors import WordlineError
from runtime.device import Device
from runtime.engine import Engine, Stats
from runtime.job import Ending, Request, Token
from runtime.server.app import Service
from runtime.server.model import ServedModel
from runtime.server.run import server
from runtime.server.settings import Settings

__all__ = ["launch", "listening", "warm_up"]


class _Witness:
    """Listens to the first sequence."""

    ending: Ending | None = None

    def token(self, token: Token) -> bool:
        return True

    def ended(self, ending: Ending) -> None:
        self.ending = ending


def warm_up(engine: Engine) -> None:
    """Run a short sequence, so that the first client need not wait for what is compiled at first use.

    Raises what went wrong, before anybody is served.
    """
    witness = _Witness()
    engine.submit([(Request((0,) * min(2, engine.context), max_tokens=1), witness)])
    while engine.step():
        pass
    if witness.ending is not None and witness.ending.error is not None:
        raise witness.ending.error
    engine.stats = Stats()


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; raises `WordlineError` for an address or a port that cannot be had."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=512)  # type: ignore[arg-type]
    except OSError as error:
        raise WordlineError(f"a free port was wanted; port {port} of {host!r} cannot be listened on "
                            f"({error.strerror or error}): choose another with --port or --host") from error


def launch(path: Path, opener: Callable[[HardwareConfig], AbstractContextManager[Device]], settings: Settings,
           say: Callable[[str], None]) -> None:
    """Serve the image at `path` on the device that `opener` gives, until the process is told to stop."""
    with listening(settings.host, settings.port) as link:
        model = ServedModel.load(path, settings.name)
        with opener(model.image.config) as device:
            say(f"loading {path} on {device.identity.uri}")
            engine = Engine(device, model.image, queue=settings.queue)
            warm_up(engine)
            running = server(Service(engine, model, settings, path))
            host, port = link.getsockname()[:2]
            url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
            say(f"serving {model.name!r}: {model.image.kv.slots} slots of {model.context} tokens; {url}/ shows it, "
                f"{url}/v1 is for clients")
            running.run(sockets=[link])
