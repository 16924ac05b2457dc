// SPDX-License-Identifier: MIT
// Squared norm of a gradient: sums the squares of P lanes a cycle.
//
//   g --> squares --> total, from 0 at `first` --> shrink --> out
//   0     SQUARES     1                            SQUARES + 1 + SHRINK
`include "copal_params.vh"

module norm (
  input  wire        clk,
  input  wire        rst,
  input  wire        valid,
  input  wire        first,
  input  wire [5:0]  shift,
  input  wire [`COPAL_P*32-1:0] g,
  output wire [31:0] out
);
  localparam SQUARES = `COPAL_STAGES_SQUARES;
  wire        valid_now, first_now;
  wire [5:0]  shift_now;
  wire [55:0] sum;
  squares u_squares (.clk(clk), .g(g), .out(sum));
  delay_valid #(.STAGES(SQUARES)) u_valid (.clk(clk), .rst(rst), .in(valid), .out(valid_now));
  delay #(.WIDTH(7), .STAGES(SQUARES)) u_flags (
    .clk(clk), .in({first, shift}), .out({first_now, shift_now}));
  reg [55:0] total;
  reg [5:0]  shift_then;
  always @(posedge clk) begin
    shift_then <= shift_now;
    if (rst) total <= 56'd0;
    else if (valid_now) total <= (first_now ? 56'd0 : total) + sum;
  end
  shrink u_shrink (.clk(clk), .total(total), .shift(shift_then), .out(out));
endmodule
