"""The options of the conformance suite for pytest. Nothing is added to pytest unless the suite is what it runs."""

import sys

import pytest

__all__ = ["pytest_addoption"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --device."""
    if any("conformance" in argument for argument in sys.argv):
        group = parser.getgroup("wordline conformance")
        group.addoption("--device", default="model:tiny", help="URI of the device to try (default: model:tiny)")
