"""Queues and timeline semaphores: what waits, what goes on, and how far a failure reaches."""

import re

import numpy as np
import pytest

from hw.memorymap import Space
from runtime.device import Device
from runtime.dispatcher import Operation
from runtime.semaphore import Semaphore
from runtime.transport import DeviceError

pytestmark = pytest.mark.capability("queue")


def loop(device: Device, turns: int = 1) -> tuple[int, tuple[int, ...]]:
    """A checked command for `Queue.enqueue`."""
    return device.model.image.entries["loop"].address, (turns,)


def test_a_signal_comes_at_the_end(loaded: Device) -> None:
    done = Semaphore("done")
    loaded.queue.enqueue(loop(loaded, 500), signals=[done.at(1)])
    assert done.value == 0
    loaded.wait(done.at(1))
    assert done.value == 1


def test_operations_of_one_queue_end_in_order(loaded: Device) -> None:
    timeline = Semaphore("timeline")
    for n in range(1, 20):
        loaded.queue.enqueue(loop(loaded, n), signals=[timeline.at(n)])
    for n in (1, 7, 19):
        loaded.wait(timeline.at(n))
        assert timeline.value >= n
    assert timeline.value == 19


@pytest.mark.parametrize("first", ["waiting", "signalling"])
def test_one_queue_waits_for_another(loaded: Device, first: str) -> None:
    ready, over = Semaphore("ready"), Semaphore("over")
    one, two = loaded.new_queue(), loaded.new_queue()
    order: list[str] = []

    def signalling() -> None:
        one.enqueue(loop(loaded, 50), signals=[ready.at(1)])

    def waiting() -> None:
        operation = two.enqueue(loop(loaded, 1), waits=[ready.at(1)], signals=[over.at(1)])
        order.append("begun" if operation.issued else "held")

    for step in (waiting, signalling) if first == "waiting" else (signalling, waiting):
        step()
    loaded.wait(over.at(1))
    assert ready.value == over.value == 1 and order == ["held"]


def test_the_host_signals(loaded: Device) -> None:
    go = Semaphore("go")
    operation = loaded.queue.enqueue(loop(loaded), waits=[go.at(2)])
    go.signal(1)
    assert not operation.issued
    go.signal(2)
    loaded.wait(operation)
    assert operation.done


def test_many_waits_and_signals(loaded: Device) -> None:
    inputs, outputs = [Semaphore(f"in {n}") for n in range(3)], [Semaphore(f"out {n}") for n in range(3)]
    operation = loaded.queue.enqueue(loop(loaded), [s.at(1) for s in inputs], [s.at(5) for s in outputs])
    for semaphore in inputs:
        assert not operation.issued
        semaphore.signal(1)
    loaded.wait(operation)
    assert [s.value for s in outputs] == [5, 5, 5]


def test_a_barrier_ends_after_what_was_before_it(loaded: Device) -> None:
    done = Semaphore("done")
    before = [loaded.enqueue("loop", turns=n) for n in (300, 200, 100)]
    loaded.queue.barrier(signals=[done.at(1)])
    loaded.wait(done.at(1))
    assert all(operation.done for operation in before)


def test_a_transfer_takes_its_turn(loaded: Device) -> None:
    with loaded.allocate(Space.ARRAY, 1) as buffer:
        found = np.zeros(buffer.shape, np.uint32)
        command = loaded.enqueue("loop", turns=200)
        transfer = loaded.queue.copy(buffer, found)
        assert not transfer.done
        loaded.wait(transfer)
        assert command.done


def test_what_nothing_signals_cannot_be_waited_for(loaded: Device) -> None:
    never = Semaphore("never")
    with pytest.raises(DeviceError, match="^value 1 of <Semaphore 'never' at 0> was wanted, and nothing that is queued "
                                          "brings it about: queue what signals it before waiting$"):
        loaded.wait(never.at(1))
    operation = loaded.queue.enqueue(loop(loaded), waits=[never.at(3)])
    with pytest.raises(DeviceError, match="^value 3 of <Semaphore 'never' at 0> was wanted, and nothing that is queue"):
        loaded.wait(operation)
    never.signal(3)
    loaded.wait(operation)


def test_a_timeline_only_grows() -> None:
    timeline = Semaphore("timeline")
    timeline.signal(4)
    assert timeline.reached(3) and timeline.reached(4) and not timeline.reached(5)
    with pytest.raises(DeviceError, match="^timeline is at 4; a signal must go beyond that, got 4$"):
        timeline.signal(4)


def chain(device: Device) -> tuple[Semaphore, Operation, Operation]:
    """A semaphore, an operation that waits for it, and one behind that on another queue."""
    broken, between = Semaphore("broken"), Semaphore("between")
    one, two = device.new_queue(), device.new_queue()
    first = one.enqueue(loop(device), waits=[broken.at(1)], signals=[between.at(1)])
    second = two.enqueue(loop(device), waits=[between.at(1)])
    return broken, first, second


def test_a_failure_reaches_all_that_depend_on_it(loaded: Device) -> None:
    broken, first, second = chain(loaded)
    reason = DeviceError("the other device is gone")
    broken.fail(reason)
    for operation in (second, first):
        with pytest.raises(DeviceError, match="^the other device is gone$"):
            loaded.wait(operation)
        assert operation.error is reason


def test_a_failure_reaches_nobody_else(loaded: Device) -> None:
    broken, _, _ = chain(loaded)
    untouched = loaded.enqueue("loop", turns=3)
    broken.fail(DeviceError("gone"))
    loaded.wait(untouched)
    assert untouched.error is None and loaded.failure is None


def test_a_queue_goes_on_behind_a_failed_operation(loaded: Device) -> None:
    broken = Semaphore("broken")
    broken.fail(DeviceError("gone"))
    failed = loaded.queue.enqueue(loop(loaded), waits=[broken.at(1)])
    loaded.wait(loaded.enqueue("loop", turns=1))
    assert failed.done and failed.error is not None


def test_the_first_reason_stays() -> None:
    semaphore = Semaphore()
    semaphore.fail(DeviceError("first"))
    semaphore.fail(DeviceError("second"))
    semaphore.signal(9)
    with pytest.raises(DeviceError, match="^first$"):
        semaphore.reached(1)


@pytest.mark.parametrize("case, message", [
    ("shapes", "a copy needs two sides of one shape; got (2, 10, TILES) and (1, 10, TILES)"),
    ("arrays", "a copy on a queue has a buffer on one side; got two arrays: use NumPy"),
    ("type", "contiguous values of 32 bits were wanted; got float64: use np.ascontiguousarray and .astype(np.float32) "
             "or .astype(np.uint32)"),
    ("freed", "buffer 'buffer' was freed, or its device was reset: allocate it again"),
])
def test_transfers_that_cannot_be(loaded: Device, case: str, message: str) -> None:
    buffer = loaded.allocate(Space.ARRAY, 1)
    words = np.zeros(buffer.shape, np.uint32)
    sides = {"shapes": (np.zeros((2, *words.shape[1:]), np.uint32), buffer), "arrays": (words, words),
             "type": (words.astype(np.float64), buffer), "freed": (words, buffer)}[case]
    if case == "freed":
        buffer.free()
    with pytest.raises(DeviceError, match=f"^{re.escape(message.replace('TILES', str(loaded.config.tiles)))}$"):
        loaded.queue.copy(*sides)  # type: ignore[arg-type]


def test_two_devices_at_once(loaded: Device) -> None:
    with Device.open("null:", loaded.config) as other:
        other.load(loaded.model.image)
        here, there = Semaphore("here"), Semaphore("there")
        other.queue.enqueue(loop(loaded), waits=[here.at(1)], signals=[there.at(1)])
        last = loaded.queue.enqueue(loop(loaded), waits=[there.at(1)])
        loaded.new_queue().enqueue(loop(loaded, 9), signals=[here.at(1)])
        loaded.wait(last)
        assert here.value == there.value == 1
