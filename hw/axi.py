"""AXI4 and AXI4-Lite as signatures, and the register slice that ends every channel at the edge of the chip.

Names and rules follow AMBA AXI (ARM IHI 0022), chapters A2 and A3. Signals that a simple slave may leave out
(lock, cache, prot, qos, region, user) are left out.
"""

from enum import IntEnum

from amaranth import Module, Mux, Shape, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = [
    "Burst", "DATA_BITS", "ID_BITS", "Response", "Slice", "full", "lite", "members", "slices", "streams",
]

DATA_BITS = 32
"""Width of both ports' data."""

ID_BITS = 4
"""Width of the window port's transaction identifiers."""


class Response(IntEnum):
    """Content of ``bresp`` and ``rresp``."""

    OKAY = 0
    SLVERR = 2


class Burst(IntEnum):
    """Content of ``awburst`` and ``arburst``."""

    FIXED = 0
    INCR = 1
    WRAP = 2


_WRITE = {"wdata": DATA_BITS, "wstrb": DATA_BITS // 8}


def lite(address_bits):
    """Channels of an AXI4-Lite manager: name to members, and who drives it ("out" the manager)."""
    return {
        "aw": ("out", {"awaddr": address_bits}),
        "w": ("out", _WRITE),
        "b": ("in", {"bresp": 2}),
        "ar": ("out", {"araddr": address_bits}),
        "r": ("in", {"rdata": DATA_BITS, "rresp": 2}),
    }


def full(address_bits):
    """Channels of an AXI4 manager, as `lite` gives them."""
    def address(c):
        return {f"{c}id": ID_BITS, f"{c}addr": address_bits, f"{c}len": 8, f"{c}size": 3, f"{c}burst": 2}
    return {
        "aw": ("out", address("aw")),
        "w": ("out", {**_WRITE, "wlast": 1}),
        "b": ("in", {"bid": ID_BITS, "bresp": 2}),
        "ar": ("out", address("ar")),
        "r": ("in", {"rid": ID_BITS, "rdata": DATA_BITS, "rresp": 2, "rlast": 1}),
    }


def members(channels, prefix):
    """The ports of a subordinate, flat: ``{prefix}_awaddr`` and so on, as tools know them."""
    ports = {}
    for name, (driver, payload) in channels.items():
        forth, back = (In, Out) if driver == "out" else (Out, In)
        ports |= {f"{prefix}_{signal}": forth(width) for signal, width in payload.items()}
        ports |= {f"{prefix}_{name}valid": forth(1), f"{prefix}_{name}ready": back(1)}
    return ports


def streams(channels):
    """Stream members of a component that serves the channels: requests come in, answers go out."""
    return {name: (In if driver == "out" else Out)(stream.Signature(data.StructLayout(payload)))
            for name, (driver, payload) in channels.items()}


class Slice(wiring.Component):
    """Two-entry register slice of a stream, with no path from one side to the other.

    Latency is one cycle, throughput one transfer a cycle. ``i.ready`` does not depend on ``i.valid``.

    Parameters
    ----------
    shape : ShapeLike
        Shape of the payload.

    Members
    -------
    i : In(stream.Signature(shape))
    o : Out(stream.Signature(shape))
    """

    def __init__(self, shape):
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        width = Shape.cast(self.i.p.shape()).width
        spare = Signal(width)
        spared = Signal()
        into, out = Value.cast(self.i.p), Value.cast(self.o.p)

        m.d.comb += self.i.ready.eq(~spared)
        with m.If(self.o.ready | ~self.o.valid):
            m.d.sync += [
                out.eq(Mux(spared, spare, into)),
                self.o.valid.eq(spared | self.i.valid),
                spared.eq(0),
            ]
        with m.Elif(self.i.valid & ~spared):
            m.d.sync += [spare.eq(into), spared.eq(1)]
        return m


def slices(m, component, channels, prefix, server):
    """Put a `Slice` between every flat channel of `component` and the stream of that name of `server`."""
    for name, (driver, payload) in channels.items():
        slice_ = Slice(data.StructLayout(payload))
        m.submodules[f"{prefix}_{name}"] = slice_
        outer, inner = (slice_.i, slice_.o) if driver == "out" else (slice_.o, slice_.i)
        valid, ready = (getattr(component, f"{prefix}_{name}{wire}") for wire in ("valid", "ready"))
        wires = [(getattr(component, f"{prefix}_{signal}"), outer.p[signal]) for signal in payload]
        served = getattr(server, name)
        if driver == "out":
            m.d.comb += [*(o.eq(w) for w, o in wires), outer.valid.eq(valid), ready.eq(outer.ready)]
            wiring.connect(m, inner, served)
        else:
            m.d.comb += [*(w.eq(o) for w, o in wires), valid.eq(outer.valid), outer.ready.eq(ready)]
            wiring.connect(m, served, inner)
