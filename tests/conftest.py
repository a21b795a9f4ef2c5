"""Fixtures that tests of several parts need."""

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C reaches programs that are started, also where the tests themselves run with it ignored, as behind `&`."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
