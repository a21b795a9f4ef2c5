"""The device-visible state of the functional model, and its form at the host port.

Spaces and shapes are those of docs/machine.md; everything is zero after power-up. Memory is only taken for rows that
are touched (`np.zeros` maps pages lazily), so that a large array costs what the model in it costs.
"""

from collections.abc import Callable

import numpy as np

from hw.config import BLOCK, MAX_TILES, HardwareConfig
from hw.isa import FUNCTION_FIELDS, FUNCTIONS, TABLE_ENTRIES
from hw.memorymap import OPERAND_WORDS, SPACE_TABLE, Space
from hw.sequence import MachineError

__all__ = ["State"]

_COEFFICIENT_BITS = (32, 28, 20)  # widths of c0, c1, c2 in the coefficient memory
_FUNCTION_BITS = sum(width for name, width, _ in FUNCTION_FIELDS if name not in ("lo", "hi"))


def _zeros(shape: tuple[int, ...]) -> np.ndarray:
    """uint32 zeros that begin at a cache line, so that a row of sixteen tiles is ten lines and no more."""
    size = int(np.prod(shape))
    room = np.zeros(size + 16, np.uint32)
    first = -room.ctypes.data % 64 // 4
    return room[first:first + size].reshape(shape)


class State:
    """All memories and registers of one device.

    Parameters
    ----------
    config : HardwareConfig
        With at most 32 tiles: beyond that only the timing model goes.

    Attributes
    ----------
    array, scratch, accumulators, row_buffer, scalars, registers, microcode, tables, functions : ndarray of uint32
        In their host shapes.
    operand_q : ndarray of int16 (operands, 32)
    operand_e, operand_sum : ndarray of int32 (operands,)
        The operand buffer.
    coefficients : ndarray of int64 (3, 1024)
        The coefficient memory again, as the lanes use it.
    descriptors : ndarray of int64 (16, 6)
        The function table again: the fields of `FUNCTION_FIELDS`.
    version : dict of int
        Counts the writes to each space by the host.
    """

    def __init__(self, config: HardwareConfig) -> None:
        if config.tiles > MAX_TILES:
            raise MachineError(f"the functional model runs up to {MAX_TILES} tiles; configuration {config.name!r} has "
                               f"{config.tiles}: use the timing model for it")
        self.config = config
        for space, info in SPACE_TABLE.items():
            if space != Space.OPERANDS:
                setattr(self, space.name.lower(), _zeros(info.shape(config)))
        self.operand_q = np.zeros((config.operands, BLOCK), np.int16)
        self.operand_e = np.zeros(config.operands, np.int32)
        self.operand_sum = np.zeros(config.operands, np.int32)
        self.coefficients = np.zeros((3, TABLE_ENTRIES), np.int64)
        self.descriptors = np.zeros((FUNCTIONS, len(FUNCTION_FIELDS)), np.int64)
        self.version = dict.fromkeys(Space, 0)

    array: np.ndarray
    scratch: np.ndarray
    accumulators: np.ndarray
    row_buffer: np.ndarray
    scalars: np.ndarray
    registers: np.ndarray
    microcode: np.ndarray
    tables: np.ndarray
    functions: np.ndarray

    def __repr__(self) -> str:
        return f"State({self.config!r})"

    def view(self, space: Space) -> np.ndarray:
        """A whole space in host form, read-only; without a copy for all spaces but the operands."""
        space = Space(space)
        whole = self._operands(0, self.config.operands) if space == Space.OPERANDS else self._words(space)
        found = whole.view()
        found.flags.writeable = False
        return found

    def read(self, space: Space, address: int = 0, count: int | None = None, tile: int | None = None) -> np.ndarray:
        """A copy of `count` entries from `address` (to the end by default), uint32 (count, …) in host form.

        With `tile` given, only that tile's part, without the last axis.
        """
        space, first, last = self._range(space, address, count, tile)
        if space == Space.OPERANDS:
            return self._operands(first, last)
        found = self._words(space)[first:last]
        return (found if tile is None else found[..., tile]).copy()

    def write(self, space: Space, data: np.ndarray, address: int = 0, tile: int | None = None) -> None:
        """Write entries from `address` on; `data` is uint32 (count, …) in host form, or one tile's part of it.

        As in the hardware, bits that a field does not have are dropped and register 0 stays zero. Raises `MachineError`
        for a shape or an address that does not fit, or operand integers wider than the device's.
        """
        data = np.ascontiguousarray(data, dtype=np.uint32)
        count = len(data) if data.ndim else 1
        space, first, last = self._range(space, address, count, tile)
        wanted = (count, *SPACE_TABLE[space].shape(self.config)[1:])
        wanted = wanted if tile is None else wanted[:-1]
        if data.shape != wanted:
            raise MachineError(f"{space.name.lower()}: data of shape {wanted} was wanted; got {data.shape}")
        special = _WRITERS.get(space)
        if special is not None:
            special(self, first, last, data)
        elif tile is None:
            self._words(space)[first:last] = data
        else:
            self._words(space)[first:last, ..., tile] = data
        self.version[space] += 1

    def reset(self) -> None:
        """Everything back to zero, as after power-up."""
        fresh = State(self.config)
        fresh.version = {space: count + 1 for space, count in self.version.items()}
        self.__dict__.update(fresh.__dict__)

    def _range(self, space: Space, address: int, count: int | None, tile: int | None) -> tuple[Space, int, int]:
        space = Space(space)
        info = SPACE_TABLE[space]
        size = info.entries(self.config)
        last = size if count is None else address + count
        if not 0 <= address <= last <= size:
            raise MachineError(f"{space.name.lower()} has entries 0 to {size - 1}; got {address} to {last - 1}")
        if tile is not None and not (info.per_tile and 0 <= tile < self.config.tiles):
            whose = f"has tiles 0 to {self.config.tiles - 1}" if info.per_tile else "belongs to no tile"
            raise MachineError(f"{space.name.lower()} {whose}; got tile {tile!r}")
        return space, address, last

    def _words(self, space: Space) -> np.ndarray:
        found: np.ndarray = getattr(self, space.name.lower())
        return found

    def _operands(self, first: int, last: int) -> np.ndarray:
        out = np.empty((last - first, OPERAND_WORDS), np.uint32)
        out[:, :-1] = self.operand_q[first:last].view(np.uint32)
        out[:, -1] = (self.operand_sum[first:last] & 0xFFFF) | ((self.operand_e[first:last] & 0xFF) << 16)
        return out

    def _write_operands(self, first: int, last: int, data: np.ndarray) -> None:
        q = np.ascontiguousarray(data[:, :-1]).view(np.int16)
        reach = 1 << (self.config.activation_bits - 1)
        if q.size and (q.min() < -reach or q.max() >= reach):
            raise MachineError(f"operand integers of {self.config.activation_bits} bits are {-reach} to {reach - 1}; "
                               f"got {q.min()} to {q.max()}")
        self.operand_q[first:last] = q
        self.operand_sum[first:last] = (data[:, -1] & 0xFFFF).astype(np.uint16).view(np.int16)
        self.operand_e[first:last] = (data[:, -1] >> 16 & 0xFF).astype(np.uint8).view(np.int8)

    def _write_registers(self, first: int, last: int, data: np.ndarray) -> None:
        self.registers[first:last] = data
        self.registers[0] = 0

    def _write_tables(self, first: int, last: int, data: np.ndarray) -> None:
        for k, bits in enumerate(_COEFFICIENT_BITS):
            value = data[:, k].view(np.int32) << (32 - bits) >> (32 - bits)
            self.tables[first:last, k] = value.view(np.uint32)
            self.coefficients[k, first:last] = value

    def _write_functions(self, first: int, last: int, data: np.ndarray) -> None:
        # Word 0 is packed, words 1 and 2 are `lo` and `hi`, word 3 does not exist.
        data = data & np.array([(1 << _FUNCTION_BITS) - 1, 0xFFFF_FFFF, 0xFFFF_FFFF, 0], np.uint32)
        self.functions[first:last] = data
        offset = 0
        for k, (name, width, signed) in enumerate(FUNCTION_FIELDS):
            if name in ("lo", "hi"):
                value = data[:, 1 + (name == "hi")].astype(np.int64)
            else:
                value = (data[:, 0] >> offset & ((1 << width) - 1)).astype(np.int64)
                offset += width
            if signed:
                value -= (value >> (width - 1)) << width
            self.descriptors[first:last, k] = value


_WRITERS: dict[Space, Callable[[State, int, int, np.ndarray], None]] = {
    Space.OPERANDS: State._write_operands, Space.REGISTERS: State._write_registers, Space.TABLES: State._write_tables,
    Space.FUNCTIONS: State._write_functions,
}
