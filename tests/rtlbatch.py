"""Batches of vectors through one hardware unit: NumPy arrays in, NumPy arrays out, Verilator and C++ between.

How to use it, for a unit with a fixed latency::

    from tests.rtlbatch import Unit

    @pytest.fixture(scope="module")
    def adder():
        return Unit(Adder(), "fp32_adder")

    @pytest.mark.rtl
    def test_sums(adder):
        o = adder.run(a=a_bits, b=b_bits)["o"]       # uint32 arrays of length n; one vector a clock

`run` lines results up with their operands by ``component.latency`` (or ``latency=``): element n of an output
belongs to element n of the inputs. For units with a protocol, `cycles` gives the value of every output port
after every clock edge instead: row n is what stands on the ports once the n-th inputs have met their edge.
Neither resets the unit; its state lasts from call to call until `reset`.

Ports are named as in the signature, nested members joined by two underscores (``stream__payload``). An input
that is not given is 0; a scalar holds for the whole batch; negative numbers are taken modulo the width.
Arrays hold one element a clock: any integers up to 64 bits; wider ports are uint32 (n, words), least
significant word first, or a one-dimensional array of Python integers (dtype object). Outputs come as uint32
up to 32 bits, uint64 up to 64, int64 if the port is signed, uint32 (n, words) beyond.

Libraries are cached by content, so only the first run after a change pays for the compiler (a few seconds).
About 10 million vectors a second pass a small unit.
"""

import ctypes
from typing import Any

import numpy as np
from amaranth import Shape, Value
from amaranth.hdl._ir import PortDirection
from amaranth.lib import wiring

from hw.emit import verilog
from sim.verilator import build_library

__all__ = ["Unit"]

_HARNESS = """
#include "Vtop.h"
#include <cstdint>

// Width decides the C++ type of a port; these read and write any of them as 32-bit words.
template <typename T> static void put(T &port, const uint32_t *in, int words) {{
    if constexpr (sizeof(T) <= 4) port = static_cast<T>(in[0]);
    else if constexpr (sizeof(T) == 8) port = in[0] | static_cast<uint64_t>(in[1]) << 32;
    else for (int i = 0; i < words; i++) port[i] = in[i];
}}
template <typename T> static void get(const T &port, uint32_t *out, int words) {{
    if constexpr (sizeof(T) <= 4) out[0] = port;
    else if constexpr (sizeof(T) == 8) {{ out[0] = port; out[1] = port >> 32; }}
    else for (int i = 0; i < words; i++) out[i] = port[i];
}}

static VerilatedContext context;
static Vtop *top;

extern "C" void cycles(const uint32_t *in, uint32_t *out, uint64_t count, int reset) {{
    if (!top) top = new Vtop(&context);
    for (uint64_t n = 0; n < count; n++) {{
        {puts}
        {clock_low}
        top->eval();
        {clock_high}
        top->eval();
        {gets}
        in += {in_words};
        out += {out_words};
    }}
}}
"""


class Unit:
    """One verilated component.

    Parameters
    ----------
    component : the unit, an Amaranth `Component` with clock domain ``sync`` or none.
    name : what its library is called.
    """

    def __init__(self, component: wiring.Component, name: str):
        self.name = name
        self.latency: int | None = getattr(component, "latency", None)
        self._inputs: dict[str, tuple[int, int, int]] = {}   # first word, words, width
        self._outputs: dict[str, tuple[int, int, Shape]] = {}
        ports, puts, gets = {}, [], []
        in_words = out_words = 0
        for path, member, value in component.signature.flatten(component):
            port = "__".join(map(str, path))
            value = Value.cast(value)
            shape, width = Value.cast(value).shape(), len(value)
            words = max(1, -(-width // 32))
            if width == 0:
                continue
            if member.flow == wiring.In:
                alias = f"i{len(self._inputs)}"
                self._inputs[port] = (in_words, words, width)
                puts.append(f"put(top->{alias}, in + {in_words}, {words});")
                in_words += words
                ports[alias] = (value, PortDirection.Input)
            else:
                alias = f"o{len(self._outputs)}"
                self._outputs[port] = (out_words, words, shape)
                gets.append(f"get(top->{alias}, out + {out_words}, {words});")
                out_words += words
                ports[alias] = (value, PortDirection.Output)
        source = verilog(component, "unit", ports)
        clocked = "input clk;" in source
        resettable = "input rst;" in source
        text = _HARNESS.format(
            puts="\n        ".join([*puts, "top->rst = reset;"] if resettable else puts),
            gets="\n        ".join(gets), in_words=in_words, out_words=out_words,
            clock_low="top->clk = 0;" if clocked else "", clock_high="top->clk = 1;" if clocked else "")
        self._in_words, self._out_words = in_words, out_words
        self._cycles = ctypes.CDLL(str(build_library(name, {"unit.v": source}, "unit", text))).cycles
        self.reset()

    def reset(self) -> None:
        """Four clocks of reset with all inputs at 0."""
        self._clock(np.zeros((4, self._in_words), np.uint32), reset=True)

    def cycles(self, count: int | None = None, **inputs: Any) -> dict[str, np.ndarray]:
        """Every output after every clock edge; `count` is the number of clocks if no input is an array."""
        words = self._gather(count, inputs)
        return self._scatter(self._clock(words, reset=False))

    def run(self, latency: int | None = None, **inputs: Any) -> dict[str, np.ndarray]:
        """Outputs in line with their inputs, for a unit of fixed latency (0: combinational)."""
        depth = self.latency if latency is None else latency
        if depth is None:
            raise ValueError(f"{self.name} has no attribute 'latency'; give run() one")
        words = self._gather(None, inputs)
        behind = max(depth, 1) - 1
        words = np.concatenate([words, np.repeat(words[-1:], behind, axis=0)])
        return self._scatter(self._clock(words, reset=False)[behind:])

    def _clock(self, words: np.ndarray, *, reset: bool) -> np.ndarray:
        out = np.zeros((len(words), self._out_words), np.uint32)
        words = np.ascontiguousarray(words)
        self._cycles(ctypes.c_void_p(words.ctypes.data), ctypes.c_void_p(out.ctypes.data),
                     ctypes.c_uint64(len(words)), ctypes.c_int(reset))
        return out

    def _gather(self, count: int | None, inputs: dict[str, Any]) -> np.ndarray:
        unknown = sorted(set(inputs) - set(self._inputs))
        if unknown:
            raise ValueError(f"{self.name} has the inputs {', '.join(self._inputs)}; "
                             f"got also {', '.join(unknown)}")
        arrays = {port: np.asarray(value) for port, value in inputs.items()}
        lengths = {len(array) for array in arrays.values() if array.ndim}
        if count is not None:
            lengths.add(count)
        if len(lengths) != 1:
            raise ValueError(f"inputs of {self.name} must agree on a number of clocks; got {sorted(lengths)}")
        out = np.zeros((lengths.pop(), self._in_words), np.uint32)
        for port, array in arrays.items():
            first, words, width = self._inputs[port]
            out[:, first:first + words] = _words(array, words, width)
        return out

    def _scatter(self, words: np.ndarray) -> dict[str, np.ndarray]:
        out = {}
        for port, (first, count, shape) in self._outputs.items():
            columns = words[:, first:first + count]
            if count > 2:
                out[port] = columns.copy()
                continue
            value = columns[:, 0].astype(np.uint64)
            if count == 2:
                value |= columns[:, 1].astype(np.uint64) << np.uint64(32)
            if shape.signed:
                above = np.uint64(64 - shape.width)
                out[port] = (value << above).view(np.int64) >> above.astype(np.int64)
            else:
                out[port] = value if count == 2 else value.astype(np.uint32)
        return out


def _words(array: np.ndarray, words: int, width: int) -> np.ndarray:
    """Values of a port as 32-bit words (n, words) or (words,), cut to the width."""
    if array.ndim == 2:
        if array.shape[1] != words:
            raise ValueError(f"a port of {width} bits takes arrays (n, {words}); got {array.shape}")
        return array.astype(np.uint32)
    if words > 2 or array.dtype == object:
        mask = (1 << width) - 1
        integers = [int(value) & mask for value in np.atleast_1d(array)]
        raw = b"".join(value.to_bytes(4 * words, "little") for value in integers)
        split = np.frombuffer(raw, "<u4").reshape(-1, words)
        return split if array.ndim else split[0]
    if array.dtype.kind not in "biu":
        raise ValueError(f"a port takes integers; got an array of {array.dtype} (view floats as np.uint32)")
    value = array.astype(np.int64).view(np.uint64) if array.dtype.kind == "i" else array.astype(np.uint64)
    value = value & np.uint64((1 << width) - 1)
    return np.stack([(value >> np.uint64(32 * k)).astype(np.uint32) for k in range(words)], axis=-1)
