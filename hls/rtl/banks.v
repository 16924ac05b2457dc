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
  parameter WIDTH = `COPAL_W,
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
  input  wire [`COPAL_P*WIDTH-1:0] wdata,
  output wire [`COPAL_P*WIDTH-1:0] raw,       // bank order, cycle 3
  output wire [`COPAL_P*WIDTH-1:0] operands   // cycle 3 + STAGES_ROTATE
);
  localparam P = `COPAL_P, LP = `COPAL_LP, WB = `COPAL_WB;
  localparam BITS = DEPTH > 1 ? $clog2(DEPTH) : 1;
  wire [LP-1:0] by;
  delay #(.WIDTH(LP), .STAGES(3)) u_by (.clk(clk), .in(step), .out(by));
  // The rotator is as wide as the wider memory; what is not used of it costs nothing.
  wire [P*WB-1:0] wide, turned;
  genvar x;
  generate
    for (x = 0; x < P; x = x + 1) begin : g_bank
      localparam [LP-1:0] X = x;
      wire [LP-1:0] low = col ? X - step : step;
      wire [20+LP:0] full = {tile, low};
      reg [BITS-1:0] raddr;
      always @(posedge clk) raddr <= dump ? dump_addr[BITS-1:0] : full[BITS-1:0];
      ram #(.WIDTH(WIDTH), .DEPTH(DEPTH)) u_ram (
        .clk(clk), .we(we[x]), .waddr(waddr[BITS-1:0]), .wdata(wdata[x*WIDTH +: WIDTH]),
        .raddr(raddr), .rdata(raw[x*WIDTH +: WIDTH]));
      assign wide[x*WB +: WIDTH] = raw[x*WIDTH +: WIDTH];
      if (WIDTH < WB) begin : g_spare
        assign wide[x*WB+WIDTH +: WB-WIDTH] = {WB-WIDTH{1'b0}};
      end
      assign operands[x*WIDTH +: WIDTH] = turned[x*WB +: WIDTH];
    end
  endgenerate
  rotate u_rotate (.clk(clk), .by(by), .x(wide), .out(turned));
endmodule
