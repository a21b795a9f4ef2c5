"""Memories of the device as one small Verilog module each, so that depth is free and emission is short.

Amaranth's own memories write an initial line per row; an array has hundreds of thousands. These modules
have the same semantics (synchronous read of the old content, byte enables), start at zero and can be
synthesized. Their storage is called ``storage`` and is visible to a simulation harness, which loads a model by copying.
"""

from amaranth import C, ClockSignal, Instance, Signal
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
    always @(posedge clk) begin
        if (read) q <= storage[address];
        if (write) begin
            /* verilator lint_off BLKSEQ */
            for (n = 0; n < WIDTH / 8; n = n + 1) mask[8*n +: 8] = {8{strobe[n]}};
            /* verilator lint_on BLKSEQ */
            storage[address] <= (storage[address] & ~mask) | (data & mask);
        end
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

// One write port and two read ports, each with its clock: all are `clk`, or it with edges left out. With THROUGH, a
// read sees the write of the same edge.
module wordline_ram #(
    parameter WIDTH = 32,
    parameter DEPTH = 1024,
    parameter ADDRESS = 10,
    parameter STROBES = 1,
    parameter THROUGH = 0
) (
    input wire clk,
    input wire write,
    input wire [STROBES-1:0] strobe,
    input wire [ADDRESS-1:0] write_address,
    input wire [WIDTH-1:0] data,
    input wire clk_0,
    input wire read_0,
    input wire [ADDRESS-1:0] address_0,
    output reg [WIDTH-1:0] q_0,
    input wire clk_1,
    input wire read_1,
    input wire [ADDRESS-1:0] address_1,
    output reg [WIDTH-1:0] q_1
);
    localparam GRAIN = WIDTH / STROBES;
    reg [WIDTH-1:0] storage [0:DEPTH-1] /*verilator public_flat_rw*/;
    integer n;
    initial begin
        for (n = 0; n < DEPTH; n = n + 1) storage[n] = {WIDTH{1'b0}};
        q_0 = {WIDTH{1'b0}};
        q_1 = {WIDTH{1'b0}};
    end

    generate
        if (THROUGH != 0) begin : through
            always @(posedge clk_0) if (read_0) q_0 <= write && write_address == address_0 ? data : storage[address_0];
            always @(posedge clk_1) if (read_1) q_1 <= write && write_address == address_1 ? data : storage[address_1];
        end else begin : old
            always @(posedge clk_0) if (read_0) q_0 <= storage[address_0];
            always @(posedge clk_1) if (read_1) q_1 <= storage[address_1];
        end
        if (STROBES == 1) begin : whole
            always @(posedge clk) if (write) storage[write_address] <= data;
        end else begin : parts
`ifdef VERILATOR
            reg [WIDTH-1:0] mask;
            always @(posedge clk)
                if (write) begin
                    /* verilator lint_off BLKSEQ */
                    for (n = 0; n < STROBES; n = n + 1) mask[GRAIN*n +: GRAIN] = {GRAIN{strobe[n]}};
                    /* verilator lint_on BLKSEQ */
                    storage[write_address] <= (storage[write_address] & ~mask) | (data & mask);
                end
`else
            always @(posedge clk)
                if (write)
                    for (n = 0; n < STROBES; n = n + 1)
                        if (strobe[n]) storage[write_address][GRAIN*n +: GRAIN] <= data[GRAIN*n +: GRAIN];
`endif
        end
    endgenerate
endmodule

// The clock of a part that sleeps: edges of `clk` at which `enable` is low are left out. That changes no result, so a
// device without clock gates lets them through. Verilator saves the work; a chip that wants to, defines WORDLINE_GATES.
`ifdef VERILATOR
`define WORDLINE_GATES
`endif
module wordline_gate (
    input wire clk,
    input wire enable,
    output wire gated
);
`ifdef WORDLINE_GATES
    reg open = 1'b0;
    always @(negedge clk) open <= enable;
    assign gated = clk & open;
`else
    assign gated = clk;
`endif
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
    """A memory with one or two read ports and a write port. Add `instance` to a module.

    Timing: a word stands on ``q`` in the cycle after its `read` and stays until the next read of that port.

    Parameters
    ----------
    width, depth : int
        Bits of a word; words.
    strobes : int
        Equal parts of a word that can be written alone.
    through : bool
        A read sees the write of the same cycle.
    domain : str
        Clock domain of the write port.
    reads : tuple of str
        Clock domains of the read ports.
    """

    def __init__(self, *, width: int, depth: int, strobes: int = 1, through: bool = False, name: str = "ram",
                 domain: str = "sync", reads: tuple[str, ...] = ("sync",)) -> None:
        address = bits_for(max(1, depth - 1))
        self.read = [Signal(name=f"{name}_read_{n}") for n in range(len(reads))]
        self.read_address = [Signal(address, name=f"{name}_address_{n}") for n in range(len(reads))]
        self.q = [Signal(width, name=f"{name}_q_{n}") for n in range(len(reads))]
        self.write = Signal(name=f"{name}_write")
        self.strobe = Signal(strobes, init=-1 % (1 << strobes), name=f"{name}_strobe")
        self.write_address = Signal(address, name=f"{name}_write_address")
        self.data = Signal(width, name=f"{name}_data")
        ports = {}
        for n in (0, 1):
            used = n < len(reads)
            ports |= {f"i_clk_{n}": ClockSignal(reads[n]) if used else C(0, 1),
                      f"i_read_{n}": self.read[n] if used else C(0, 1),
                      f"i_address_{n}": self.read_address[n] if used else C(0, address)}
            ports[f"o_q_{n}"] = self.q[n] if used else Signal(width, name=f"{name}_unused")
        self.instance = Instance(
            "wordline_ram", p_WIDTH=width, p_DEPTH=depth, p_ADDRESS=address, p_STROBES=strobes,
            p_THROUGH=int(through), i_clk=ClockSignal(domain), i_write=self.write, i_strobe=self.strobe,
            i_write_address=self.write_address, i_data=self.data, **ports)
