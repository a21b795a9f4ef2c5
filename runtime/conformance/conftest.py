"""The device under test, and the lists of what it need not do."""

from collections.abc import Iterator

import pytest

from hw.config import HardwareConfig
from hw.image import Image
from runtime.conformance.expectations import CAPABILITIES, EXPECTED_FAILURES, unsupported
from runtime.conformance.program import small_image
from runtime.device import Device


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", "capability(name): what a device must be able to do for this case")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what the device need not do, and expect the failures that are known."""
    scheme = config.getoption("--device").partition(":")[0]
    for item in items:
        marker = item.get_closest_marker("capability")
        if marker is None:
            continue
        for name in marker.args:
            assert name in CAPABILITIES, f"{item.nodeid}: capability {name!r} is in no list"
            if reason := unsupported(scheme, name):
                item.add_marker(pytest.mark.skip(reason=f"{scheme}: {reason}"))
        if reason := EXPECTED_FAILURES.get(scheme, {}).get(item.name.partition("[")[0]):
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.fixture(scope="session")
def uri(pytestconfig: pytest.Config) -> str:
    """The URI of the device."""
    return str(pytestconfig.getoption("--device"))


@pytest.fixture(scope="session")
def opened(uri: str) -> Iterator[Device]:
    """The device, opened once."""
    with Device.open(uri) as device:
        yield device


@pytest.fixture
def device(opened: Device) -> Iterator[Device]:
    """The device after a reset, without a model."""
    opened.reset()
    patience = opened.timeout_cycles
    yield opened
    opened.timeout_cycles = patience
    opened.progress = None


@pytest.fixture
def config(device: Device) -> HardwareConfig:
    """Its configuration."""
    return device.config


@pytest.fixture
def image(config: HardwareConfig) -> Image:
    """A small image for it."""
    return small_image(config)


@pytest.fixture
def loaded(device: Device, image: Image) -> Device:
    """The device with the image in it."""
    device.load(image)
    return device
