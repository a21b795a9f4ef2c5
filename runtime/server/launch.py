"""From an image file to a server that answers: loads, opens, warms up, listens."""

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

__all__ = ["launch", "warm_up"]


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


def launch(path: Path, opener: Callable[[HardwareConfig], AbstractContextManager[Device]], settings: Settings,
           say: Callable[[str], None]) -> None:
    """Serve the image at `path` on the device that `opener` gives, until the process is told to stop."""
    model = ServedModel.load(path, settings.name)
    with opener(model.image.config) as device:
        say(f"loading {path} on {device.identity.uri}")
        engine = Engine(device, model.image, queue=settings.queue)
        warm_up(engine)
        running = server(Service(engine, model, settings, path))
        shown = f"[{settings.host}]" if ":" in settings.host else settings.host
        say(f"serving {model.name!r}: {model.image.kv.slots} slots of {model.context} tokens; "
            f"http://{shown}:{settings.port}/ shows it, http://{shown}:{settings.port}/v1 is for clients")
        running.run()
        if not running.started:
            raise WordlineError(f"a free port was wanted; {settings.host}:{settings.port} cannot be listened on: "
                                "choose another with --port")
