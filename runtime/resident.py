"""What stays in a device between commands: a model whose weights were loaded once, with its program and KV cache."""

from hw.image import Image
from hw.memorymap import Space
from runtime.buffer import Buffer, Memory
from runtime.executable import Executable, same, write
from runtime.kvcache import KvCache

__all__ = ["ResidentModel"]


class ResidentModel:
    """An image in a device.

    Parameters
    ----------
    memory : Memory
        Of the device; raises `OutOfMemory` when somebody holds what the image needs.
    image : Image
        The model.
    uri : str
        What the device is called.

    Attributes
    ----------
    executable : Executable
        The program.
    weights : Buffer or None
        Array rows of weights and KV cache.
    kv : KvCache
        The slots.
    """

    def __init__(self, memory: Memory, image: Image, uri: str) -> None:
        self.image = image
        self.memory = memory
        self.executable = Executable(memory, image, uri)
        self.kv = KvCache(image.kv, self._copy if image.kv.planes else None)
        self.weights: Buffer | None = None
        try:
            if rows := max(len(image.array), image.report.get("rows", 0)):
                owner = f"weights of {image.model.get('name', 'the model')}"
                self.weights = memory.reserve(Space.ARRAY, 0, rows, owner)
            write(memory, Space.ARRAY, image.array)
            write(memory, Space.SCRATCH, image.scratch)
        except BaseException:
            self.release()
            raise

    def prove(self) -> None:
        """Read program and weights back; raises `DeviceError` at the first word that is not the image's."""
        self.executable.prove()
        same(self.memory, Space.ARRAY, self.image.array)
        same(self.memory, Space.SCRATCH, self.image.scratch)

    def release(self) -> None:
        """Give its memories back. Buffers and command buffers of it cannot be used afterwards."""
        self.executable.release()
        if self.weights is not None and self.weights.alive:
            self.weights.free()

    def _copy(self, source: int, target: int, tokens: int) -> None:
        """Copy the keys and values of the first tokens of a slot, plane by plane, whole entries."""
        dispatcher = self.memory.dispatcher
        for plane in self.image.kv.planes:
            space, count = Space(plane.space), -(-tokens // plane.tokens)
            for n in range(plane.count):
                first = plane.first + n * plane.step
                values = dispatcher.read(space, first + source * plane.slot, count)
                dispatcher.write(space, first + target * plane.slot, values)
