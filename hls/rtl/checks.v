// SPDX-License-Identifier: MIT
// Finds addresses outside their memories: of a slot, and of a row of results. Comparisons are
// registered, and so is whether one of them is true: an error is known two cycles later. Nothing is
// written before; the first is K, in the cycle in which `halted` rises.
`include "copal_params.vh"

module checks (
  input  wire        clk,
  input  wire        rst,
  // slot
  input  wire [15:0] pc,
  input  wire [20:0] x,
  input  wire [20:0] y,
  input  wire [20:0] z,
  input  wire [12:0] bias,
  input  wire        product,
  input  wire        biased,
  input  wire        vector,
  input  wire        use_x,
  input  wire        use_y,
  input  wire        quant,
  input  wire        exists,
  input  wire        to_a,
  input  wire        to_b,
  input  wire        update,
  input  wire        bias_mode,
  input  wire        copy_w,
  input  wire        copy_t,
  input  wire        norm,
  input  wire        gb,
  input  wire        norm_last,
  input  wire        broadcast,
  input  wire        scalar,
  output reg         far,
  output reg  [15:0] far_pc,
  // row: to_a, to_b, to_v, to_g, relu, use_mask
  input  wire        row,
  input  wire [15:0] row_pc,
  input  wire [5:0]  row_flags,
  input  wire [20:0] row_address,
  input  wire [20:0] row_mask,
  output reg         row_far,
  output reg  [15:0] row_far_pc
);
  localparam V = `COPAL_DEPTH_VECTOR, A = `COPAL_DEPTH_A, B = `COPAL_DEPTH_B;
  localparam PARAMETERS = `COPAL_DEPTH_PARAMETERS, BIAS = `COPAL_DEPTH_BIAS;
  localparam MASK = `COPAL_DEPTH_MASK;
  reg x_v, x_p, x_tile, x_bias, y_v, y_tile, y_bias, y_a, z_v, z_bias, z_a, z_b, at_bias;
  reg row_v, row_a, row_b, row_g, row_m;
  reg [15:0] slot_pc, result_pc;
  always @(posedge clk) begin
    x_v <= !rst && ((vector && use_x) || (quant && exists) || scalar) && x >= V;
    x_p <= !rst && (update || (norm && !gb) || broadcast) && x >= PARAMETERS;
    x_bias <= !rst && norm && gb && x >= BIAS;
    x_tile <= !rst && product && x >= A / `COPAL_P;
    y_v <= !rst && vector && use_y && y >= V;
    y_tile <= !rst && product && y >= B / `COPAL_P;
    y_bias <= !rst && update && bias_mode && y >= BIAS;
    y_a <= !rst && update && !bias_mode && copy_w && y >= A;
    z_v <= !rst && (vector || (norm && norm_last) || broadcast) && z >= V;
    z_bias <= !rst && update && bias_mode && copy_t && z >= BIAS;
    z_a <= !rst && ((update && !bias_mode && copy_t) || (quant && to_a)) && z >= A;
    z_b <= !rst && quant && to_b && z >= B;
    at_bias <= !rst && product && biased && bias >= BIAS;
    slot_pc <= pc;
    row_a <= !rst && row && row_flags[5] && row_address >= A;
    row_b <= !rst && row && row_flags[4] && row_address >= B;
    row_v <= !rst && row && row_flags[3] && row_address >= V;
    row_g <= !rst && row && row_flags[2] && row_address >= PARAMETERS;
    row_m <= !rst && row && (row_flags[1] || row_flags[0]) && row_mask >= MASK;
    result_pc <= row_pc;
    far <= !rst && (x_v || x_p || x_tile || x_bias || y_v || y_tile || y_bias || y_a || z_v || z_bias
                    || z_a || z_b || at_bias);
    far_pc <= slot_pc;
    row_far <= !rst && (row_v || row_a || row_b || row_g || row_m);
    row_far_pc <= result_pc;
  end
endmodule
