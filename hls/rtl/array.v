// SPDX-License-Identifier: MIT
// The P x P lanes, and the drain: one row of sums a cycle, picked from the rows' shadow registers.
//
//   a[i] --> row i: P lanes of acc, P of shadow --+
//   b ----> all rows                              +--> pick a lane --> row of P sums
//   last -------------------------> drain: i, addresses --^
//
// Cycles from an operand at the inputs: acc 3, shadow 4; the drain gives row 0 with the shadow, and its
// sums STAGES_PICK later. `columns` holds with the shadow.
`include "copal_params.vh"

module array #(
  parameter TAG = 1
) (
  input  wire        clk,
  input  wire        rst,
  input  wire        en,
  input  wire        first,
  input  wire        last,
  input  wire [`COPAL_P*`COPAL_ACC-1:0] bias,
  input  wire [`COPAL_P*`COPAL_W-1:0]   a,
  input  wire [`COPAL_P*`COPAL_WB-1:0]  b,
  // of the tile that ends; two cycles behind `last`
  input  wire        tile_valid,
  input  wire [5:0]  tile_rows,
  input  wire [7:0]  tile_stride,
  input  wire [20:0] tile_mask,
  input  wire [20:0] tile_address,
  input  wire [TAG-1:0] tile_tag,
  // a row's place, and STAGES_PICK later its sums
  output wire        row_valid,
  output wire        row_to_v,
  output wire [20:0] row_mask,
  output wire [20:0] row_address,
  output wire [TAG-1:0] row_tag,
  output wire [`COPAL_P*`COPAL_ACC-1:0] sums,
  output wire [`COPAL_P*(`COPAL_W+16)-1:0] columns
);
  localparam P = `COPAL_P, LP = `COPAL_LP, W = `COPAL_W, ACC = `COPAL_ACC, COLUMN = W + 16;
  wire [P*ACC-1:0] shadow [0:P-1];
  wire row_clk;
  clock_gate #(.CYCLES(5)) u_gate (
    .clk(clk), .rst(rst), .active(en || last), .gated(row_clk));
  genvar i, j, k;
  generate
    for (i = 0; i < P; i = i + 1) begin : g_row
      array_row u_row (
        .clk(row_clk), .en(en), .first(first), .last(last), .bias(bias[i*ACC +: ACC]),
        .a(a[i*W +: W]), .b(b), .column(columns[i*COLUMN +: COLUMN]), .sums(shadow[i]));
    end
  endgenerate

  wire [LP-1:0] row_i;
  drain u_drain (
    .clk(clk), .rst(rst),
    .drain__x({tile_valid, tile_rows, tile_stride, tile_mask, tile_address}),
    .drain__x_valid(1'b1), .drain__x_ready(),
    .drain__y({row_valid, row_to_v, row_i, row_mask, row_address}),
    .drain__y_valid(), .drain__y_ready(1'b1));
  reg [TAG-1:0] tag, tag_row;
  always @(posedge clk) begin
    if (tile_valid) tag <= tile_tag;
    tag_row <= tag;
  end
  assign row_tag = tag_row;

  generate
    for (j = 0; j < P; j = j + 1) begin : g_pick
      wire [P*ACC-1:0] lane;
      for (k = 0; k < P; k = k + 1) begin : g_lane
        assign lane[k*ACC +: ACC] = shadow[k][j*ACC +: ACC];
      end
      pick u_pick (.clk(clk), .i(row_i), .x(lane), .out(sums[j*ACC +: ACC]));
    end
  endgenerate
endmodule

// One row. It needs no reset: nothing of it is read before a first product has begun a tile.
module array_row (
  input  wire        clk,
  input  wire        en,
  input  wire        first,
  input  wire        last,
  input  wire [`COPAL_ACC-1:0]          bias,
  input  wire [`COPAL_W-1:0]            a,
  input  wire [`COPAL_P*`COPAL_WB-1:0]  b,
  output wire [`COPAL_W+15:0]           column,
  output wire [`COPAL_P*`COPAL_ACC-1:0] sums
);
  row u_row (
    .clk(clk), .rst(1'b0), .row__x({en, first, last, bias, a, b}), .row__x_valid(1'b1),
    .row__x_ready(), .row__y({column, sums}), .row__y_valid(), .row__y_ready(1'b1));
endmodule
