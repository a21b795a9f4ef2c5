"""Memories of the device as one small Verilog module each, so that depth is free and emission is short.

Amaranth's own memories write an initial line per row; an array has hundreds of thousands. These modules
have the same semantics (synchronous read of the old content, byte enables), start at zero and can be
synthesized. Their storage is called ``storage`` and is visible to a simulation harness, which loads a model by copying.
"""

from amaranth import Cat, ClockSignal, Instance, Signal
from amaranth.utils import bits_for

__all__ = ["Array", "Ram", "VERILOG"]

VERILOG = """\
// Memories of the Wordline device. Reads are registered and see the content before the write of the same edge.

// One access a cycle: a read or a write of some bytes of the row at `address`.
module wordline_array #(
    parameter WIDTH = 320,
    parameter DEPTH = 1024,
    parameter ADDRESS = 10
) (
    input wire clk,
    input wire [ADDRESS-1:0] address,
    input wire read,
    output reg [WIDTH-1:0] q,
    input wire write,
    input wire [WIDTH/8-1:0] strobe,
    input wire [WIDTH-1:0] data
);
    reg [WIDTH-1:0] storage [0:DEPTH-1] /*verilator public_flat_rw*/;
    integer n;
    initial begin
        for (n = 0; n < DEPTH; n = n + 1) storage[n] = {WIDTH{1'b0}};
        q = {WIDTH{1'b0}};
    end

`ifdef VERILATOR
    // The same write as below as one assignment: a simulator pays for each.
    reg [WIDTH-1:0] mask;
    always @* for (n = 0; n < WIDTH / 8; n = n + 1) mask[8*n +: 8] = {8{strobe[n]}};
    always @(posedge clk) begin
        if (read) q <= storage[address];
        if (write) storage[address] <= (storage[address] & ~mask) | (data & mask);
    end
`else
    always @(posedge clk) begin
        if (read) q <= storage[address];
        if (write)
            for (n = 0; n < WIDTH / 8; n = n + 1)
                if (strobe[n]) storage[address][8*n +: 8] <= data[8*n +: 8];
    end
`endif
endmodule

// READS read ports and one write port. With THROUGH, a read sees the write of the same edge.
module wordline_ram #(
    parameter WIDTH = 32,
    parameter DEPTH = 1024,
    parameter ADDRESS = 10,
    parameter READS = 1,
    parameter STROBES = 1,
    parameter THROUGH = 0
) (
    input wire clk,
    input wire [READS-1:0] read,
    input wire [READS*ADDRESS-1:0] read_address,
    output reg [READS*WIDTH-1:0] q,
    input wire write,
    input wire [STROBES-1:0] strobe,
    input wire [ADDRESS-1:0] write_address,
    input wire [WIDTH-1:0] data
);
    localparam GRAIN = WIDTH / STROBES;
    reg [WIDTH-1:0] storage [0:DEPTH-1] /*verilator public_flat_rw*/;
    integer n;
    initial begin
        for (n = 0; n < DEPTH; n = n + 1) storage[n] = {WIDTH{1'b0}};
        q = {READS*WIDTH{1'b0}};
    end

    genvar port;
    generate
        for (port = 0; port < READS; port = port + 1) begin : reads
            wire [ADDRESS-1:0] address = read_address[port*ADDRESS +: ADDRESS];
            if (THROUGH) begin : through
                always @(posedge clk)
                    if (read[port])
                        q[port*WIDTH +: WIDTH] <= write && write_address == address ? data : storage[address];
            end else begin : old
                always @(posedge clk) if (read[port]) q[port*WIDTH +: WIDTH] <= storage[address];
            end
        end
        if (STROBES == 1) begin : whole
            always @(posedge clk) if (write) storage[write_address] <= data;
        end else begin : parts
            always @(posedge clk)
                if (write)
                    for (n = 0; n < STROBES; n = n + 1)
                        if (strobe[n]) storage[write_address][GRAIN*n +: GRAIN] <= data[GRAIN*n +: GRAIN];
        end
    endgenerate
endmodule
"""


class Array:
    """The array of a tile: one row read or one row write a cycle. Add `instance` to a module.

    Timing: a row stands on ``q`` in the cycle after `read` and stays until the next read.

    Parameters
    ----------
    width, depth : int
        Bits of a row, a multiple of 8; rows.
    """

    def __init__(self, *, width: int, depth: int) -> None:
        address = bits_for(max(1, depth - 1))
        self.address = Signal(address, name="array_address")
        self.read = Signal(name="array_read")
        self.q = Signal(width, name="array_q")
        self.write = Signal(name="array_write")
        self.strobe = Signal(width // 8, name="array_strobe")
        self.data = Signal(width, name="array_data")
        self.instance = Instance(
            "wordline_array", p_WIDTH=width, p_DEPTH=depth, p_ADDRESS=address, i_clk=ClockSignal(),
            i_address=self.address, i_read=self.read, o_q=self.q, i_write=self.write, i_strobe=self.strobe,
            i_data=self.data)


class Ram:
    """A memory with some read ports and one write port. Add it to a module with ``m.submodules.name = ram.instance``.

    Timing: a word stands on ``q`` in the cycle after its `read` and stays until the next read of that port.

    Parameters
    ----------
    width, depth : int
        Bits of a word; words.
    reads : int
        Read ports.
    strobes : int
        Equal parts of a word that can be written alone.
    through : bool
        A read sees the write of the same cycle.
    """

    def __init__(self, *, width: int, depth: int, reads: int = 1, strobes: int = 1, through: bool = False,
                 name: str = "ram") -> None:
        address = bits_for(max(1, depth - 1))
        self.read = [Signal(name=f"{name}_read_{n}") for n in range(reads)]
        self.read_address = [Signal(address, name=f"{name}_address_{n}") for n in range(reads)]
        self.q = [Signal(width, name=f"{name}_q_{n}") for n in range(reads)]
        self.write = Signal(name=f"{name}_write")
        self.strobe = Signal(strobes, init=-1 % (1 << strobes), name=f"{name}_strobe")
        self.write_address = Signal(address, name=f"{name}_write_address")
        self.data = Signal(width, name=f"{name}_data")
        self.instance = Instance(
            "wordline_ram", p_WIDTH=width, p_DEPTH=depth, p_ADDRESS=address, p_READS=reads, p_STROBES=strobes,
            p_THROUGH=int(through), i_clk=ClockSignal(), i_read=Cat(self.read),
            i_read_address=Cat(self.read_address), o_q=Cat(self.q), i_write=self.write, i_strobe=self.strobe,
            i_write_address=self.write_address, i_data=self.data)
