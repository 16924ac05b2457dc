// SPDX-License-Identifier: MIT
// Memories and delays. Numbers of words need not be powers of two; an address beyond the last word
// reads anything, and the caller never writes there.

// One write and one read port, as block RAM with a register behind it: data come two cycles after
// their address. A word that is written while it is read comes old.
module ram #(
  parameter WIDTH = 18,
  parameter DEPTH = 1024,
  parameter BITS = DEPTH > 1 ? $clog2(DEPTH) : 1
) (
  input  wire             clk,
  input  wire             we,
  input  wire [BITS-1:0]  waddr,
  input  wire [WIDTH-1:0] wdata,
  input  wire [BITS-1:0]  raddr,
  output reg  [WIDTH-1:0] rdata
);
  reg [WIDTH-1:0] mem [0:DEPTH-1];
  reg [WIDTH-1:0] read;
  always @(posedge clk) begin
    if (we) mem[waddr] <= wdata;
    read <= mem[raddr];
    rdata <= read;
  end
endmodule

// Small and read in the same cycle: LUT RAM.
module small_ram #(
  parameter WIDTH = 32,
  parameter DEPTH = 4,
  parameter BITS = DEPTH > 1 ? $clog2(DEPTH) : 1
) (
  input  wire             clk,
  input  wire             we,
  input  wire [BITS-1:0]  waddr,
  input  wire [WIDTH-1:0] wdata,
  input  wire [BITS-1:0]  raddr,
  output wire [WIDTH-1:0] rdata
);
  (* ram_style = "distributed" *) reg [WIDTH-1:0] mem [0:DEPTH-1];
  assign rdata = mem[raddr];
  always @(posedge clk) if (we) mem[waddr] <= wdata;
endmodule

// What came in comes out STAGES cycles later. No reset. A few bits are registers, more of them a ring
// in LUT RAM: the oldest word leaves where the newest is written.
module delay #(
  parameter WIDTH = 1,
  parameter STAGES = 1
) (
  input  wire             clk,
  input  wire [WIDTH-1:0] in,
  output wire [WIDTH-1:0] out
);
  generate
    if (STAGES < 6 || WIDTH * STAGES < 48) begin : g_registers
      delay_registers #(.WIDTH(WIDTH), .STAGES(STAGES)) u_line (.clk(clk), .in(in), .out(out));
    end else begin : g_ring
      localparam BITS = $clog2(STAGES - 1);
      localparam [BITS-1:0] LAST = STAGES - 2;
      reg  [BITS-1:0]  at = {BITS{1'b0}};
      reg  [WIDTH-1:0] oldest;
      wire [WIDTH-1:0] read;
      small_ram #(.WIDTH(WIDTH), .DEPTH(STAGES - 1)) u_ring (
        .clk(clk), .we(1'b1), .waddr(at), .wdata(in), .raddr(at), .rdata(read));
      always @(posedge clk) begin
        at <= at >= LAST ? {BITS{1'b0}} : at + 1'b1;
        oldest <= read;
      end
      assign out = oldest;
    end
  endgenerate
endmodule

module delay_registers #(
  parameter WIDTH = 1,
  parameter STAGES = 1
) (
  input  wire             clk,
  input  wire [WIDTH-1:0] in,
  output wire [WIDTH-1:0] out
);
  wire [WIDTH*(STAGES+1)-1:0] line;
  genvar i;
  assign line[WIDTH-1:0] = in;
  generate
    for (i = 0; i < STAGES; i = i + 1) begin : g_stage
      reg [WIDTH-1:0] held;
      always @(posedge clk) held <= line[i*WIDTH +: WIDTH];
      assign line[(i+1)*WIDTH +: WIDTH] = held;
    end
  endgenerate
  assign out = line[STAGES*WIDTH +: WIDTH];
endmodule

// The same for flags that must be low after a reset.
module delay_valid #(
  parameter WIDTH = 1,
  parameter STAGES = 1
) (
  input  wire             clk,
  input  wire             rst,
  input  wire [WIDTH-1:0] in,
  output wire [WIDTH-1:0] out
);
  wire [WIDTH*(STAGES+1)-1:0] line;
  genvar i;
  assign line[WIDTH-1:0] = in;
  generate
    for (i = 0; i < STAGES; i = i + 1) begin : g_stage
      reg [WIDTH-1:0] held;
      always @(posedge clk) held <= rst ? {WIDTH{1'b0}} : line[i*WIDTH +: WIDTH];
      assign line[(i+1)*WIDTH +: WIDTH] = held;
    end
  endgenerate
  assign out = line[STAGES*WIDTH +: WIDTH];
endmodule

// The reset of one unit, a cycle later: so that no net of it reaches across the device. `keep`, or
// Vivado would make one register of all; yosys keeps them apart by this module.
module local_reset (
  input  wire clk,
  input  wire rst,
  output wire out
);
  (* keep *) reg held;
  always @(posedge clk) held <= rst;
  assign out = held;
endmodule

// The clock of a pipeline: on a device simply the clock. Simulations that define COPAL_GATE_CLOCKS
// stop it while `active` has been low for CYCLES, when nothing that counts is in the pipeline, and
// so need not compute what it would do.
module clock_gate #(
  parameter CYCLES = 1
) (
  input  wire clk,
  input  wire rst,
  input  wire active,
  output wire gated
);
`ifdef COPAL_GATE_CLOCKS
  reg [7:0] left;
  reg       on;
  always @(posedge clk) begin
    if (rst || active) left <= CYCLES;
    else if (left != 8'd0) left <= left - 8'd1;
  end
  always @(negedge clk) on <= rst || active || left != 8'd0;
  assign gated = clk && on;
`else
  assign gated = clk;
`endif
endmodule
