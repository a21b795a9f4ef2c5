"""What a device is doing, in lines that a person reads when it hangs or fails."""

from hw.errors import WordlineError
from runtime.dispatcher import Dispatcher
from runtime.executable import Executable
from runtime.transport import Identity, Snapshot

__all__ = ["describe"]


def describe(identity: Identity, dispatcher: Dispatcher, executable: Executable | None) -> str:
    """Commands, program position, engines, queues and tokens of a device; what a transport cannot know is left out."""
    try:
        seen = dispatcher.transport.snapshot()
    except (WordlineError, OSError) as error:
        seen = Snapshot(notes=(f"the device does not say what it is doing: {error}",))
    lines = [f"device {identity.uri}: {identity.description}", *_commands(dispatcher, executable, seen)]
    if seen.address is not None:
        lines.append("program: " + (executable.place(seen.address) if executable else f"microcode {seen.address}"))
    for engine in seen.engines:
        lines.append(f"{engine.name} engine: {'works' if engine.active else 'is idle'}, {engine.waiting} of "
                     f"{identity.config.queue} instructions wait, {engine.tokens} tokens")
    blocked = [lane for lane in dispatcher.lanes if lane.backlog]
    for lane in blocked:
        waits = ", ".join(f"value {value} of {semaphore!r}" for semaphore, value in lane.backlog[0].waits
                          if semaphore.value < value)
        lines.append(f"queue {dispatcher.lanes.index(lane)}: {len(lane.backlog)} operations not begun"
                     + (f", the first waits for {waits}" if waits else ""))
    return "\n".join([*lines, *seen.notes])


def _commands(dispatcher: Dispatcher, executable: Executable | None, seen: Snapshot) -> list[str]:
    lines = []
    if dispatcher.order:
        entry, arguments, tag = dispatcher.order[0][0]
        name = f"{executable.entered(entry)} " if executable else ""
        lines.append(f"oldest command: {tag}, {name}at {entry} with arguments ({', '.join(map(str, arguments))})")
    facts = [f"{len(dispatcher.order)} submitted and not complete"]
    if seen.running is not None:
        facts.append("one runs" if seen.running else "none runs")
    if seen.waiting is not None:
        facts.append(f"{seen.waiting} wait in the device")
    if seen.completions is not None:
        facts.append(f"{seen.completions} completions not taken")
    if dispatcher.last is not None:
        facts.append(f"the latest complete one is {dispatcher.last.tag}")
    return [*lines, "commands: " + ", ".join(facts)]
