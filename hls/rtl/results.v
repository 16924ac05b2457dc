// SPDX-License-Identifier: MIT
// What happens to rows of integers: shift, round, ReLU, mask, saturate; ranges; and where they go.
//
//   row --> post: P lanes --+--> skew --> A, B          cycles behind the row:
//     mask bits ---^        +--> V, MASK                V, MASK: STAGES_POST
//                           +--> gather, + old --> G    A, B:    STAGES_POST + STAGES_SKEW
//                           +--> ranges --> RANGE       G:       STAGES_POST + STAGES_GATHER
//
// `lanes` says which lanes the row has at all; `counted` of them RANGE sees.
`include "copal_params.vh"

module results (
  input  wire        clk,
  input  wire        rst,
  input  wire        halted,
  input  wire        accumulate,
  input  wire        clear,
  // a row
  input  wire        valid,
  input  wire [`COPAL_P*`COPAL_ACC-1:0] sums,
  input  wire [`COPAL_P-1:0] mask,
  input  wire [`COPAL_P-1:0] lanes,
  input  wire [`COPAL_P-1:0] counted,
  input  wire [5:0]  shift,
  input  wire        to_a,
  input  wire        to_b,
  input  wire        to_v,
  input  wire        to_g,
  input  wire        relu,
  input  wire        use_mask,
  input  wire [7:0]  range,
  input  wire [19:0] address,
  input  wire [19:0] mask_address,
  // writes
  output wire [`COPAL_P-1:0] a_we,
  output wire [`COPAL_P-1:0] b_we,
  output wire [19:0] ab_addr,
  output wire [`COPAL_P*`COPAL_WB-1:0] ab_data,
  output wire        v_we,
  output wire [19:0] v_addr,
  output wire [`COPAL_P*32-1:0] v_data,
  output wire        mask_we,
  output wire [19:0] mask_addr,
  output wire [`COPAL_P-1:0] mask_data,
  // the old sum: asked for two cycles before it is needed
  output wire        g_read,
  output wire [19:0] g_read_addr,
  input  wire [`COPAL_P*32-1:0] g_old,
  output wire        g_we,
  output wire [19:0] g_addr,
  output wire [`COPAL_P*32-1:0] g_data,
  // RANGE for the port
  input  wire [7:0]  dump_addr,
  output wire [63:0] dump_data
);
  localparam P = `COPAL_P, LP = `COPAL_LP, WB = `COPAL_WB, ACC = `COPAL_ACC;
  localparam COLUMN = `COPAL_W + 16;
  localparam POST = `COPAL_STAGES_POST, GATHER = `COPAL_STAGES_GATHER, SKEW = `COPAL_STAGES_SKEW;
  localparam RANGES = `COPAL_STAGES_RANGES;

  // ---- lanes
  wire lane_clk;
  clock_gate #(.CYCLES(POST)) u_gate (
    .clk(clk), .rst(rst), .active(valid), .gated(lane_clk));
  wire [P-1:0]    positive, saturated;
  wire [P*32-1:0] magnitude, wide;
  wire [P*WB-1:0] elem;
  genvar j;
  generate
    for (j = 0; j < P; j = j + 1) begin : g_post
      post u_post (
        .clk(lane_clk), .sum(sums[j*ACC +: ACC]), .shift(shift), .relu(relu), .use_mask(use_mask),
        .mask(mask[j]), .to_a(to_a), .to_b(to_b), .counted(counted[j]),
        .out({positive[j], saturated[j], magnitude[j*32 +: 32], wide[j*32 +: 32],
              elem[j*WB +: WB]}));
    end
  endgenerate

  // ---- flags beside them
  wire q_a, q_b, q_v, q_g, q_mask, q_valid;
  wire [P-1:0]  q_lanes;
  wire [7:0]    q_range;
  wire [19:0]   q_address, q_mask_address;
  delay_valid #(.WIDTH(6), .STAGES(POST)) u_valid (
    .clk(clk), .rst(rst),
    .in({6{valid}} & {1'b1, to_a, to_b, to_v, to_g, relu}),
    .out({q_valid, q_a, q_b, q_v, q_g, q_mask}));
  delay #(.WIDTH(P + 48), .STAGES(POST)) u_place (
    .clk(clk), .in({lanes, range, address, mask_address}),
    .out({q_lanes, q_range, q_address, q_mask_address}));

  // ---- V, MASK
  assign v_we = q_v && !halted;
  assign v_addr = q_address;
  assign v_data = wide;
  assign mask_we = q_mask && !halted;
  assign mask_addr = q_mask_address;
  assign mask_data = positive;

  // ---- A, B
  wire [P*(WB+1)-1:0] in_order, skewed;
  wire k_a, k_b;
  generate
    for (j = 0; j < P; j = j + 1) begin : g_skew
      assign in_order[j*(WB+1) +: WB+1] = {q_lanes[j], elem[j*WB +: WB]};
      assign ab_data[j*WB +: WB] = skewed[j*(WB+1) +: WB];
      assign a_we[j] = k_a && !halted && skewed[j*(WB+1)+WB];
      assign b_we[j] = k_b && !halted && skewed[j*(WB+1)+WB];
    end
  endgenerate
  skew u_skew (.clk(clk), .address(q_address[LP-1:0]), .x(in_order), .out(skewed));
  delay_valid #(.WIDTH(2), .STAGES(SKEW)) u_ab (
    .clk(clk), .rst(rst), .in({q_a, q_b}), .out({k_a, k_b}));
  delay #(.WIDTH(20), .STAGES(SKEW)) u_ab_addr (.clk(clk), .in(q_address), .out(ab_addr));

  // ---- G
  delay_valid #(.STAGES(POST - 2)) u_g_read (
    .clk(clk), .rst(rst), .in(valid && to_g), .out(g_read));
  delay #(.WIDTH(20), .STAGES(POST - 2)) u_g_read_addr (
    .clk(clk), .in(address), .out(g_read_addr));
  wire g_valid;
  assign g_we = g_valid && !halted;
  delay_valid #(.STAGES(GATHER)) u_g (.clk(clk), .rst(rst), .in(q_g), .out(g_valid));
  delay #(.WIDTH(20), .STAGES(GATHER)) u_g_addr (.clk(clk), .in(q_address), .out(g_addr));
  generate
    for (j = 0; j < P; j = j + 1) begin : g_gather
      gather u_gather (
        .clk(clk), .accumulate(accumulate), .old(g_old[j*32 +: 32]),
        .sum({{COLUMN-32{wide[j*32+31]}}, wide[j*32 +: 32]}), .out(g_data[j*32 +: 32]));
    end
  endgenerate

  // ---- RANGE: read, then add and write; an entry that was written last is taken from the register
  localparam BITS = `COPAL_DEPTH_RANGE > 1 ? $clog2(`COPAL_DEPTH_RANGE) : 1;
  wire [5:0]  r_count;
  wire [31:0] r_seen;
  wire        r_valid;
  wire [7:0]  r_range;
  ranges u_ranges (.clk(clk), .saturated(saturated), .magnitude(magnitude), .out({r_count, r_seen}));
  delay_valid #(.STAGES(RANGES)) u_r (
    .clk(clk), .rst(rst), .in(q_valid && q_range != 8'd255), .out(r_valid));
  delay #(.WIDTH(8), .STAGES(RANGES)) u_r_range (.clk(clk), .in(q_range), .out(r_range));
  reg [`COPAL_DEPTH_RANGE-1:0] used;   // entries that have been written in this update
  wire [63:0] entry;
  wire [7:0]  read_range = r_valid ? r_range : dump_addr;
  reg         s_valid, s_same;
  reg [7:0]   s_range;
  reg [5:0]   s_count;
  reg [31:0]  s_seen;
  reg [63:0]  s_old, newest;
  wire [63:0] base = s_same ? newest : s_old;
  wire [63:0] sum = {base[63:32] | s_seen, base[31:0] + {26'd0, s_count}};
  wire        s_write = s_valid && !halted;
  small_ram #(.WIDTH(64), .DEPTH(`COPAL_DEPTH_RANGE)) u_entries (
    .clk(clk), .we(s_write), .waddr(s_range[BITS-1:0]), .wdata(sum),
    .raddr(read_range[BITS-1:0]), .rdata(entry));
  always @(posedge clk) begin
    s_valid <= r_valid && !rst;
    s_same <= s_valid && s_range == r_range;
    s_range <= r_range;
    s_count <= r_count;
    s_seen <= r_seen;
    s_old <= used[read_range[BITS-1:0]] ? entry : 64'd0;
    newest <= sum;
    if (rst || clear) used <= {`COPAL_DEPTH_RANGE{1'b0}};
    else if (s_write) used[s_range[BITS-1:0]] <= 1'b1;
  end
  assign dump_data = s_old;
endmodule
