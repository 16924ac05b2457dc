// SPDX-License-Identifier: MIT
// Vector memory and vector lanes. V is there twice, so that x and y are read in the same cycle.
//
//   x, y address --> V --> V register --> pick VL of P lanes --> VL lanes --> V, or integers
//   cycle 0          2     3              4                      4 + STAGES_VEC
//
// All writes pass one register: results of a row, of the lanes here, a word of equal lanes, the port.
`include "copal_params.vh"

module vector #(
  parameter FLAGS = 54,
  parameter TAG = 1
) (
  input  wire        clk,
  input  wire        rst,
  input  wire        halted,
  // a slot; `write` for VECTOR, `quant` for QUANT
  input  wire        write,
  input  wire        quant,
  input  wire [FLAGS-1:0] flags,      // vop, exponent, imm, pred, x_imm .. y_neg
  input  wire [`COPAL_LP-1:0] step,
  input  wire [19:0] x_addr,
  input  wire [19:0] y_addr,
  input  wire [19:0] d_addr,
  input  wire [TAG-1:0] tag,
  output wire [`COPAL_P*32-1:0] x_word,   // cycle 3
  // integers of QUANT, cycle 4 + STAGES_VEC
  output wire        int_valid,
  output wire [`COPAL_LP-1:0] int_step,
  output wire [`COPAL_VL*32-1:0] int_data,
  output wire [`COPAL_VL-1:0] int_bad,    // lanes that were not finite
  output wire [TAG-1:0] int_tag,
  // other writes
  input  wire        row_we,
  input  wire [19:0] row_addr,
  input  wire [`COPAL_P*32-1:0] row_data,
  input  wire        all_we,
  input  wire [19:0] all_addr,
  input  wire [31:0] all_data,
  input  wire        ld_we,
  input  wire [19:0] ld_addr,
  input  wire [4:0]  ld_beat,
  input  wire [63:0] ld_data,
  output wire        conflict
);
  localparam P = `COPAL_P, LP = `COPAL_LP, VL = `COPAL_VL, VEC = `COPAL_STAGES_VEC;
  localparam DEPTH = `COPAL_DEPTH_VECTOR, BITS = DEPTH > 1 ? $clog2(DEPTH) : 1;
  localparam GROUPS = P / VL;

  // ---- memory
  reg  [BITS-1:0] x_at, y_at;
  reg  [P-1:0]    we;
  reg  [BITS-1:0] waddr;
  reg  [P*32-1:0] wdata;
  wire [P*32-1:0] y_word;
  always @(posedge clk) begin
    x_at <= x_addr[BITS-1:0];
    y_at <= y_addr[BITS-1:0];
  end
  genvar j;
  generate
    for (j = 0; j < P; j = j + 1) begin : g_lane
      ram #(.WIDTH(32), .DEPTH(DEPTH)) u_x (
        .clk(clk), .we(we[j]), .waddr(waddr), .wdata(wdata[j*32 +: 32]),
        .raddr(x_at), .rdata(x_word[j*32 +: 32]));
      ram #(.WIDTH(32), .DEPTH(DEPTH)) u_y (
        .clk(clk), .we(we[j]), .waddr(waddr), .wdata(wdata[j*32 +: 32]),
        .raddr(y_at), .rdata(y_word[j*32 +: 32]));
    end
  endgenerate

  // ---- lanes
  wire lane_clk;
  clock_gate #(.CYCLES(VEC + 4)) u_gate (
    .clk(clk), .rst(rst), .active(write || quant), .gated(lane_clk));
  wire [LP-1:0]    step3;
  wire [FLAGS-1:0] flags4;
  wire             quant4;
  delay #(.WIDTH(LP), .STAGES(3)) u_step (.clk(clk), .in(step), .out(step3));
  delay #(.WIDTH(FLAGS + 1), .STAGES(4)) u_flags (
    .clk(clk), .in({flags, quant}), .out({flags4, quant4}));
  reg  [VL*32-1:0] x, y;
  wire [VL-1:0]    lane_bad, lane_we;
  wire [VL*32-1:0] lane_int, lane_out;
  generate
    if (GROUPS == 1) begin : g_whole
      always @(posedge clk) {x, y} <= {x_word, y_word};
    end else begin : g_part
      always @(posedge clk) begin
        x <= x_word[step3*VL*32 +: VL*32];
        y <= y_word[step3*VL*32 +: VL*32];
      end
    end
    for (j = 0; j < VL; j = j + 1) begin : g_vec
      vec u_vec (
        .clk(lane_clk),
        .vop(flags4[53:49]), .exponent(flags4[48:40]), .imm(flags4[39:8]), .pred(flags4[7:6]),
        .x_imm(flags4[5]), .y_imm(flags4[4]), .x_abs(flags4[3]), .x_neg(flags4[2]),
        .y_abs(flags4[1]), .y_neg(flags4[0]), .quant(quant4),
        .x(x[j*32 +: 32]), .y(y[j*32 +: 32]),
        .out({lane_bad[j], lane_we[j], lane_int[j*32 +: 32], lane_out[j*32 +: 32]}));
    end
  endgenerate
  wire          v_valid;
  wire [19:0]   v_addr;
  wire [LP-1:0] v_step;
  delay_valid #(.WIDTH(2), .STAGES(VEC + 4)) u_valid (
    .clk(clk), .rst(rst), .in({write, quant}), .out({v_valid, int_valid}));
  delay #(.WIDTH(20 + LP + TAG), .STAGES(VEC + 4)) u_place (
    .clk(clk), .in({d_addr, step, tag}), .out({v_addr, v_step, int_tag}));
  assign int_step = v_step;
  assign int_data = lane_int;
  assign int_bad = lane_bad;

  // ---- writes
  assign conflict = (v_valid && (row_we || all_we)) || (row_we && all_we);
  wire [P-1:0] v_lanes, ld_lanes;
  generate
    for (j = 0; j < P; j = j + 1) begin : g_write
      assign v_lanes[j] = v_valid && v_step == j / VL && lane_we[j % VL];
      assign ld_lanes[j] = ld_we && ld_beat == j / 2;
      always @(posedge clk) begin
        wdata[j*32 +: 32] <= row_we ? row_data[j*32 +: 32] : all_we ? all_data
                             : v_valid ? lane_out[(j % VL)*32 +: 32] : ld_data[(j % 2)*32 +: 32];
        we[j] <= !rst && ((!halted && (row_we || all_we || v_lanes[j])) || ld_lanes[j]);
      end
    end
  endgenerate
  always @(posedge clk)
    waddr <= row_we ? row_addr[BITS-1:0] : all_we ? all_addr[BITS-1:0]
             : v_valid ? v_addr[BITS-1:0] : ld_addr[BITS-1:0];
endmodule
