"""Devices that fail: the error reaches who waits, says what the device was doing, and after a reset all is well."""

import re
from collections.abc import Iterator

import numpy as np
import pytest

from hw.image import Image
from hw.memorymap import Space
from runtime.conformance.program import WORDS
from runtime.device import Device
from runtime.dispatcher import DeviceFailure, DeviceHang
from runtime.semaphore import Semaphore
from runtime.transport import DeviceError
from runtime.transport_faulty import FaultyTransport

pytestmark = pytest.mark.capability("recovery")

FAULTS = {"hang": 2, "drop": 2, "disconnect": 20}
MESSAGES = {
    "hang": (DeviceHang, r"^the completion of command \d+ was wanted from device '.*' within 100000 cycles; it hangs: "
                         r"reset it\n"),
    "drop": (DeviceFailure, r"^the completion of command \d+ was wanted from device '.*'; that of \d+ came, and "
                            r"commands complete in order, so one was lost: reset it\n"),
    "disconnect": (DeviceFailure, r"^device 'faulty:' was to answer; the connection is lost: reset it\n"),
}


@pytest.fixture
def faulty(device: Device, image: Image, request: pytest.FixtureRequest) -> Iterator[Device]:
    """The device under test with a fault that comes after the image is loaded."""
    device.load(image)
    device.timeout_cycles = 100_000
    plain = device.transport
    device.transport = FaultyTransport(plain, {request.param: FAULTS[request.param]}, "faulty:")
    yield device
    device.transport = plain


each_fault = pytest.mark.parametrize("faulty", FAULTS, indirect=True)


def fail(device: Device) -> DeviceError:
    """Run commands until the fault comes; its error."""
    operations = [device.enqueue("loop", turns=5) for _ in range(4)]
    with pytest.raises(DeviceError) as caught:
        for operation in operations:
            device.wait(operation)
        for _ in range(40):
            device.submit("loop", turns=1)
    return caught.value


@each_fault
def test_who_waits_hears_of_it(faulty: Device, request: pytest.FixtureRequest) -> None:
    kind, message = MESSAGES[request.node.callspec.params["faulty"]]
    error = fail(faulty)
    assert isinstance(error, kind) and re.match(message, str(error)), str(error)


@each_fault
def test_the_error_says_what_the_device_was_doing(faulty: Device) -> None:
    text = str(fail(faulty))
    assert f"\ndevice {faulty.identity.uri}: " in text
    assert re.search(r"\ncommands: \d+ submitted and not complete", text)
    assert "the device does not say" in text or "loop at 5 with arguments (" in text


@each_fault
def test_semaphores_carry_it(faulty: Device) -> None:
    signal, other = Semaphore("signal"), Semaphore("other")
    command = faulty.model.image.entries["loop"].address, (1,)
    for n in range(1, 60):
        if faulty.failure is not None:
            break
        faulty.queue.enqueue(command, signals=[signal.at(n)])
        faulty.new_queue().enqueue(command, waits=[signal.at(n)], signals=[other.at(n)])
        try:
            faulty.wait(other.at(n))
        except DeviceFailure:
            pass
    assert isinstance(other.error, DeviceFailure) and other.error is faulty.failure


@each_fault
def test_nothing_is_taken_until_a_reset(faulty: Device) -> None:
    fail(faulty)
    first = str(faulty.failure).splitlines()[0]
    message = f"device {faulty.identity.uri!r} has failed and must be reset before it is used again ({first})"
    for use in (lambda: faulty.submit("loop", turns=1), faulty.read_argmax, faulty.read_logits):
        with pytest.raises(DeviceError, match=f"^{re.escape(message)}$"):
            use()


@each_fault
@pytest.mark.capability("model")
def test_after_recovery_everything_is_still_there(faulty: Device, image: Image) -> None:
    kv, model = faulty.kv, faulty.model
    slot = kv.take()
    kv.grow(slot, 7)
    with faulty.allocate(Space.ARRAY, 2, "mine") as mine:
        values = np.arange(mine.count * mine.shape[1] * mine.shape[2], dtype=np.uint32).reshape(mine.shape)
        faulty.transport.inner.write(Space.ARRAY, mine.first, values)  # type: ignore[attr-defined]
        fail(faulty)
        faulty.recover()
        assert faulty.failure is None and faulty.model is model and kv.lengths == {slot: 7}
        assert np.array_equal(faulty.transport.read(Space.ARRAY, mine.first, 2), values)
    model.prove()
    faulty.submit("copy", source=0, target=4 * WORDS)
    found = faulty.transport.read(Space.SCRATCH, 4 * WORDS, WORDS).view(np.float32)
    assert np.array_equal(found, image.scratch.view(np.float32)[:WORDS] + np.float32(0.5))


@each_fault
def test_after_a_reset_it_is_as_new(faulty: Device, image: Image) -> None:
    fail(faulty)
    faulty.reset()
    assert faulty.failure is None
    faulty.load(image)
    faulty.submit("loop", turns=3)


@each_fault
def test_what_was_queued_fails_and_other_devices_go_on(faulty: Device, image: Image) -> None:
    with Device.open("null:", faulty.config) as other:
        other.load(image)
        fail(faulty)
        other.submit("loop", turns=1)
        assert other.failure is None


@pytest.mark.capability("model")
def test_a_corrupted_read_is_noticed_by_a_proof(device: Device, image: Image) -> None:
    device.load(image)
    plain = device.transport
    device.transport = FaultyTransport(plain, {"corrupt": 1}, "faulty:")
    try:
        with pytest.raises(DeviceError, match=r"^space microcode must hold the image; 1 words differ"):
            device.model.prove()
        device.model.prove()
    finally:
        device.transport = plain


@pytest.mark.parametrize("refusals", [1, 5])
def test_a_full_queue_is_waited_out(loaded: Device, refusals: int) -> None:
    plain = loaded.transport
    loaded.transport = FaultyTransport(plain, {"full": refusals}, "faulty:")
    try:
        operations = [loaded.enqueue("loop", turns=n + 1) for n in range(3)]
        loaded.wait(operations[-1])
        assert [len(operation.completions) for operation in operations] == [1, 1, 1]
    finally:
        loaded.transport = plain


def test_a_reset_fails_what_was_queued(loaded: Device) -> None:
    never = Semaphore("never")
    waiting = loaded.queue.enqueue((5, (1,)), waits=[never.at(1)])
    image = loaded.model.image
    loaded.reset()
    with pytest.raises(DeviceError, match=f"^device {re.escape(repr(loaded.identity.uri))} was reset before this was "
                                          "done: queue it again$"):
        loaded.wait(waiting)
    loaded.load(image)
    loaded.submit("loop", turns=1)


@pytest.mark.capability("hang")
def test_a_stuck_program_is_named(loaded: Device) -> None:
    loaded.timeout_cycles = 5000
    loaded.submit("loop", turns=1)
    with pytest.raises(DeviceFailure) as caught:
        loaded.submit("stuck")
    text = str(caught.value)
    assert re.search(r"\nprogram: microcode (9|10), operator 'stuck': ", text), text
    loaded.recover()
    loaded.submit("loop", turns=1)
    loaded.model.prove()


@pytest.mark.capability("time")
def test_progress_is_told_in_cycles(loaded: Device) -> None:
    told: list[int] = []
    loaded.progress = told.append
    loaded.submit("loop", turns=30_000)
    assert told and told == sorted(told)
