// SPDX-License-Identifier: MIT
// Parameters, and the lanes that update them. Memories are AL lanes wide: word w is at w * P/AL.
//
//   word, step --> W, T, M, S --> AL lanes --> W, T, M, S
//   cycle 0        4              4 + STAGES_ADAM
//   gradient ------^                |
//                                   +--> integers, gathered to words: the row of W, then that of T
//
// A word takes P/AL >= 2 slots, so the two rows of integers leave on the same port, one cycle apart.
`include "copal_params.vh"

module optimiser #(
  parameter TAG = 1
) (
  input  wire        clk,
  input  wire        rst,
  input  wire        halted,
  // a slot
  input  wire        update,
  input  wire [19:0] word,
  input  wire [`COPAL_LP-1:0] step,
  input  wire        adam,
  input  wire        average,
  input  wire [26:0] exponents,           // e_g, e_w, e_t
  input  wire [TAG-1:0] tag,
  input  wire [`COPAL_AL*32-1:0] g,       // cycle 4
  input  wire [9*32-1:0] scalars,         // beta1 .. scale, held
  // words for BROADCAST and the port: cycle 3
  input  wire        dump,
  input  wire [19:0] dump_word,
  input  wire [`COPAL_LP-1:0] dump_step,
  output wire [`COPAL_AL*32-1:0] w_read,
  output wire [`COPAL_AL*32-1:0] t_read,
  output wire [`COPAL_AL*32-1:0] m_read,
  output wire [`COPAL_AL*32-1:0] s_read,
  // load
  input  wire [3:0]  ld_we,               // W, T, M, S
  input  wire [19:0] ld_addr,
  input  wire [4:0]  ld_beat,
  input  wire [63:0] ld_data,
  // integers
  output wire        w_valid,
  output wire [TAG-1:0] w_tag,
  output wire [`COPAL_P*`COPAL_ACC-1:0] w_row,
  output wire        t_valid,
  output wire [TAG-1:0] t_tag,
  output wire [`COPAL_P*`COPAL_ACC-1:0] t_row
);
  localparam P = `COPAL_P, LP = `COPAL_LP, AL = `COPAL_AL, ACC = `COPAL_ACC;
  localparam ADAM = `COPAL_STAGES_ADAM, STEPS = P / AL, LS = $clog2(STEPS), PAIRS = AL / 2;
  localparam DEPTH = `COPAL_DEPTH_PARAMETERS * STEPS, BITS = DEPTH > 1 ? $clog2(DEPTH) : 1;
  localparam [LP-1:0] LAST = STEPS - 1;

  // ---- memories, in pairs of lanes as the port writes them
  wire [19+LS:0] full = {word, step[LS-1:0]};
  wire [19+LS:0] dump_full = {dump_word, dump_step[LS-1:0]};
  wire [19+LS:0] ld_full = {ld_addr, {LS{1'b0}}} + ld_beat / PAIRS;
  reg  [BITS-1:0] at, raddr;
  wire [BITS-1:0] done_at;
  wire            done;
  wire [BITS-1:0] waddr = |ld_we ? ld_full[BITS-1:0] : done_at;
  always @(posedge clk) begin
    at <= full[BITS-1:0];
    raddr <= dump ? dump_full[BITS-1:0] : at;
  end
  wire [AL*32-1:0] w_new, t_new, m_new, s_new;
  wire write = done && !halted;
  genvar j;
  generate
    for (j = 0; j < PAIRS; j = j + 1) begin : g_pair
      wire here = ld_beat % PAIRS == j;
      ram #(.WIDTH(64), .DEPTH(DEPTH)) u_w (
        .clk(clk), .we(write || (ld_we[3] && here)), .waddr(waddr),
        .wdata(ld_we[3] ? ld_data : w_new[j*64 +: 64]), .raddr(raddr), .rdata(w_read[j*64 +: 64]));
      ram #(.WIDTH(64), .DEPTH(DEPTH)) u_t (
        .clk(clk), .we(write || (ld_we[2] && here)), .waddr(waddr),
        .wdata(ld_we[2] ? ld_data : t_new[j*64 +: 64]), .raddr(raddr), .rdata(t_read[j*64 +: 64]));
      ram #(.WIDTH(64), .DEPTH(DEPTH)) u_m (
        .clk(clk), .we(write || (ld_we[1] && here)), .waddr(waddr),
        .wdata(ld_we[1] ? ld_data : m_new[j*64 +: 64]), .raddr(raddr), .rdata(m_read[j*64 +: 64]));
      ram #(.WIDTH(64), .DEPTH(DEPTH)) u_s (
        .clk(clk), .we(write || (ld_we[0] && here)), .waddr(waddr),
        .wdata(ld_we[0] ? ld_data : s_new[j*64 +: 64]), .raddr(raddr), .rdata(s_read[j*64 +: 64]));
    end
  endgenerate

  // ---- lanes
  wire lane_clk;
  clock_gate #(.CYCLES(ADAM + 4)) u_gate (
    .clk(clk), .rst(rst), .active(update), .gated(lane_clk));
  wire        adam4, average4;
  wire [26:0] exponents4;
  delay #(.WIDTH(29), .STAGES(4)) u_flags (
    .clk(clk), .in({adam, average, exponents}), .out({adam4, average4, exponents4}));
  wire [AL*ACC-1:0] w_int, t_int;
  generate
    for (j = 0; j < AL; j = j + 1) begin : g_adam
      adam u_adam (
        .clk(lane_clk), .step(adam4), .average(average4),
        .e_g(exponents4[26:18]), .e_w(exponents4[17:9]), .e_t(exponents4[8:0]),
        .beta1(scalars[8*32 +: 32]), .c1(scalars[7*32 +: 32]), .beta2(scalars[6*32 +: 32]),
        .c2(scalars[5*32 +: 32]), .alpha(scalars[4*32 +: 32]), .eps(scalars[3*32 +: 32]),
        .tau(scalars[2*32 +: 32]), .c_tau(scalars[1*32 +: 32]), .scale(scalars[0 +: 32]),
        .w(w_read[j*32 +: 32]), .t(t_read[j*32 +: 32]), .m(m_read[j*32 +: 32]),
        .s(s_read[j*32 +: 32]), .g(g[j*32 +: 32]),
        .out({w_int[j*ACC +: ACC], t_int[j*ACC +: ACC], w_new[j*32 +: 32], t_new[j*32 +: 32],
              m_new[j*32 +: 32], s_new[j*32 +: 32]}));
    end
  endgenerate
  wire [LP-1:0]  done_step;
  wire [TAG-1:0] done_tag;
  delay_valid #(.STAGES(ADAM + 4)) u_done (.clk(clk), .rst(rst), .in(update), .out(done));
  delay #(.WIDTH(BITS + LP + TAG), .STAGES(ADAM + 4)) u_place (
    .clk(clk), .in({full[BITS-1:0], step, tag}), .out({done_at, done_step, done_tag}));

  // ---- words of integers; those of T come one cycle later
  reg [P*ACC-1:0]  w_word, t_word;
  reg [AL*ACC-1:0] t_late;
  reg [LP-1:0]     t_step;
  reg              t_done, w_full, t_full;
  reg [TAG-1:0]    w_held, t_now, t_held;
  generate
    for (j = 0; j < P; j = j + 1) begin : g_word
      always @(posedge clk) begin
        if (done_step == j / AL) w_word[j*ACC +: ACC] <= w_int[(j % AL)*ACC +: ACC];
        if (t_step == j / AL) t_word[j*ACC +: ACC] <= t_late[(j % AL)*ACC +: ACC];
      end
    end
  endgenerate
  always @(posedge clk) begin
    t_late <= t_int;
    t_step <= done_step;
    t_done <= done && !rst;
    w_full <= done && done_step == LAST && !rst;
    t_full <= t_done && t_step == LAST && !rst;
    w_held <= done_tag;
    t_now <= done_tag;
    t_held <= t_now;
  end
  assign w_valid = w_full;
  assign w_tag = w_held;
  assign w_row = w_word;
  assign t_valid = t_full;
  assign t_tag = t_held;
  assign t_row = t_word;
endmodule
