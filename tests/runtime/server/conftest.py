"""Fixtures of the server tests: an image, one shared server, its client."""

from collections.abc import Iterator

import pytest
from openai import OpenAI

from hw.image import Image
from runtime.tokenizer import Tokenizer
from tests.runtime.server.serving import Running, compiled, serving


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return compiled(tmp_path_factory.mktemp("server"))


@pytest.fixture(scope="module")
def shared(image: Image) -> Iterator[Running]:
    with serving(image) as running:
        yield running


@pytest.fixture
def running(shared: Running) -> Iterator[Running]:
    """The shared server; nothing may be left running by a test."""
    yield shared
    shared.valve.delay = 0.0
    shared.idle()


@pytest.fixture
def client(running: Running) -> OpenAI:
    return running.client


@pytest.fixture(scope="module")
def tokenizer(image: Image) -> Tokenizer:
    return Tokenizer(image.text)
