// SPDX-License-Identifier: MIT
// One operand memory: P banks of skewed tiles, and the rotator that puts operands in order.
//
//   tile, step --> address a bank --> ram --> ram register --> rotate --> P operands
//   cycle 0        1                  2       3                4
//
// A row (`col` low) has the same address in all banks, a column another one in each: bank x holds
// element x - step of column `step`. While `dump` is high all banks read word `dump_addr`.
`include "copal_params.vh"

module banks #(
  parameter DEPTH = 1024
) (
  input  wire        clk,
  input  wire        dump,
  input  wire [19:0] dump_addr,
  input  wire [20:0] tile,
  input  wire        col,
  input  wire [`COPAL_LP-1:0] step,
  input  wire [`COPAL_P-1:0]  we,
  input  wire [19:0] waddr,
  input  wire [`COPAL_P*`COPAL_W-1:0] wdata,
  output wire [`COPAL_P*`COPAL_W-1:0] raw,       // bank order, cycle 3
  output wire [`COPAL_P*`COPAL_W-1:0] operands   // cycle 3 + STAGES_ROTATE
);
  localparam P = `COPAL_P, LP = `COPAL_LP, W = `COPAL_W;
  localparam BITS = DEPTH > 1 ? $clog2(DEPTH) : 1;
  wire [LP-1:0] by;
  delay #(.WIDTH(LP), .STAGES(3)) u_by (.clk(clk), .in(step), .out(by));
  genvar x;
  generate
    for (x = 0; x < P; x = x + 1) begin : g_bank
      localparam [LP-1:0] X = x;
      wire [LP-1:0] low = col ? X - step : step;
      wire [20+LP:0] full = {tile, low};
      reg [BITS-1:0] raddr;
      always @(posedge clk) raddr <= dump ? dump_addr[BITS-1:0] : full[BITS-1:0];
      ram #(.WIDTH(W), .DEPTH(DEPTH)) u_ram (
        .clk(clk), .we(we[x]), .waddr(waddr[BITS-1:0]), .wdata(wdata[x*W +: W]),
        .raddr(raddr), .rdata(raw[x*W +: W]));
    end
  endgenerate
  rotate u_rotate (.clk(clk), .by(by), .x(raw), .out(operands));
endmodule
