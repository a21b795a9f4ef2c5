"""The server's page in a real browser, when one is installed (Debian: `apt-get install chromium`)."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from compiler.compile import compile_model
from hw.config import preset
from runtime.device import Device
from runtime.engine import Engine
from runtime.server.app import Service
from runtime.server.model import ServedModel
from runtime.server.run import server as make_server
from runtime.server.settings import Settings
from tests.models.random_gguf import write_random_model

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


class Browser:
    """A headless browser with one page, spoken to in its own protocol over two pipes."""

    def __init__(self, profile: Path) -> None:
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        words = [str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
                 "--disable-dev-shm-usage", f"--user-data-dir={profile}", "--remote-debugging-pipe"]
        # The browser reads from descriptor 3 and writes to descriptor 4.
        start = f"import os; os.dup2({to_read}, 3); os.dup2({to_write}, 4); os.execvp({words[0]!r}, {words!r})"
        self._process = subprocess.Popen([sys.executable, "-c", start], pass_fds=(to_read, to_write),
                                         stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self._number, self._held = 0, b""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session: str | None = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def call(self, method: str, **params: Any) -> Any:
        """One command and its result; what else the browser says is passed over."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session := getattr(self, "_session", None):
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._held:
                data = os.read(self._read, 1 << 16)
                assert data, "the browser ended"
                self._held += data
            text, _, self._held = self._held.partition(b"\0")
            said = json.loads(text)
            if said.get("id") == self._number:
                assert "error" not in said, said
                return said["result"]

    def run(self, script: str) -> Any:
        """The value of a script."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, script: str, seconds: float = 60) -> None:
        end = monotonic() + seconds
        while not self.run(script):
            assert monotonic() < end, f"waited in vain for {script}: {self.run('document.body.innerText')}"
            sleep(0.05)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(10)
        os.close(self._read)
        os.close(self._write)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, int]]:
    path = write_random_model(tmp_path_factory.mktemp("page") / "random.gguf", layers=1).path
    image = compile_model(path, preset("tiny"), context=200, slots=3, effort=1, checked=False)
    with Device.open("model:", image.config) as device:
        made = Service(Engine(device, image), ServedModel(image, "tiny"), Settings(port=0, api_key="secret"))
        running = make_server(made, log_level="error")
        thread = threading.Thread(target=running.run)
        thread.start()
        while not running.started:
            sleep(0.01)
        yield made, running.servers[0].sockets[0].getsockname()[1]
        running.should_exit = True
        thread.join(20)


def test_chat_and_device(browser, service):
    made, port = service
    browser.call("Page.navigate", url=f"http://127.0.0.1:{port}/")
    browser.until("document.getElementById('what')?.textContent.startsWith('an API key was wanted')")
    browser.run("""$('key').value = 'secret'; $('max_tokens').value = 20; $('text').value = 'the rows';
                   $('ask').requestSubmit()""")
    browser.until("document.querySelector('.note') !== null")
    assert browser.run("document.querySelectorAll('.said').length") == 2
    assert browser.run("document.querySelector('.user').textContent") == "the rows"
    note = browser.run("document.querySelector('.note').textContent")
    assert note.startswith("20 tokens, ") and note.endswith("ended by length")
    browser.until("document.querySelectorAll('.slot').length === 3")
    assert browser.run("$('model').textContent") == "tiny"
    browser.until("Number($('made').textContent) > 0")
    # A second turn goes on where the first ended.
    browser.run("$('text').value = 'a sum'; $('ask').requestSubmit()")
    browser.until("document.querySelectorAll('.note').length === 2")
    assert "0 of them cached" not in browser.run("document.querySelectorAll('.note')[1].textContent")
    assert made.engine.active == 0


def test_errors_are_shown_and_text_is_never_markup(browser, service):
    _, port = service
    browser.call("Page.navigate", url=f"http://127.0.0.1:{port}/?ask=%3Cb%20id%3Dx%3Ehi%3C/b%3E")
    browser.until("document.querySelector('.user')?.textContent === '<b id=x>hi</b>'")
    assert browser.run("document.getElementById('x')") is None
    browser.run("$('clear').click(); $('key').value = 'wrong'; $('text').value = 'hi'; $('ask').requestSubmit()")
    browser.until("document.querySelector('.error')?.textContent.startsWith('an API key was wanted; another key')")


def test_new_gives_the_old_question_up_and_asks_at_once(browser, service):
    made, port = service
    browser.call("Page.navigate", url=f"http://127.0.0.1:{port}/")
    browser.until("document.getElementById('key') !== null")
    browser.run("""$('key').value = 'secret'; $('max_tokens').value = 100; $('text').value = 'old';
                   $('ask').requestSubmit(); $('clear').click();
                   $('max_tokens').value = 3; $('text').value = 'new'; $('ask').requestSubmit()""")
    browser.until("document.querySelector('.note')?.textContent.startsWith('3 tokens, ')")
    assert browser.run("[...document.querySelectorAll('.said')].map(box => box.className)") == ["said user",
                                                                                              "said assistant"]
    assert browser.run("document.querySelector('.user').textContent") == "new"
    browser.until("$('send').textContent === 'Send'")
    browser.until("!running && messages.length === 2")
