// SPDX-License-Identifier: MIT
// The engine without its stream port: memories, sequencer, array, vector unit, optimiser.
//
// Load: one 64-bit beat a cycle while `ld_ready`. `ld_addr` is the word, `ld_beat` the beat in it.
// The port checks addresses and counts; a beat beyond a memory's depth is ignored here.
// Dump: a request a cycle while `rd_ready`; its beat comes five cycles later, `rsp_valid`,
// and cannot be held back. Only while no RUN is in progress.
// Run: `run_valid` for one cycle while `busy` is low. `done` is high for one cycle at its end;
// `error` (0: none) and `error_pc` hold until the next RUN.
//
//            slot (cycle 0)
//   control --+-> banks A, B -> array -> +            +-> A, B, MASK, V, G, RANGE
//             +-> vector: V, lanes ----> + row -> results
//             +-> optimiser: W, T, M, S -+
//             +-> G, GB -> norm -> V
`include "copal_params.vh"

module engine (
  input  wire        clk,
  input  wire        rst,
  input  wire        ld_valid,
  output wire        ld_ready,
  input  wire [6:0]  ld_mem,
  input  wire [19:0] ld_addr,
  input  wire [4:0]  ld_beat,
  input  wire [63:0] ld_data,
  input  wire        rd_valid,
  output wire        rd_ready,
  input  wire [6:0]  rd_mem,
  input  wire [19:0] rd_addr,
  input  wire [4:0]  rd_beat,
  output wire        rsp_valid,
  output wire [63:0] rsp_data,
  input  wire        run_valid,
  input  wire [15:0] run_pc,
  input  wire        run_accumulate,
  output wire        busy,
  output wire        done,
  output wire [7:0]  error,
  output wire [15:0] error_pc,
  output wire [63:0] cycles,
  output wire [63:0] slots,
  output wire [63:0] runs
);
  localparam P = `COPAL_P, LP = `COPAL_LP, W = `COPAL_W, WB = `COPAL_WB;
  localparam ACC = `COPAL_ACC, COLUMN = W + 16;
  localparam VL = `COPAL_VL, AL = `COPAL_AL;
  localparam PICK = `COPAL_STAGES_PICK, NORM = `COPAL_STAGES_SQUARES + 1 + `COPAL_STAGES_SHRINK, GATHER = `COPAL_STAGES_GATHER;
  localparam ROW = 3 + `COPAL_STAGES_ROTATE;   // cycle in which operands reach the array
  genvar j;

  assign ld_ready = 1'b1;
  assign rd_ready = 1'b1;
  wire dump = !busy;

  // ---- control and the slot's fields
  wire [`COPAL_BITS_OF_SEQ-1:0] slot;
  wire accumulate, clear, halted;
  wire far, row_far;
  reg  conflict;
  reg  not_finite;
  wire [15:0] far_pc, row_far_pc;
  reg  [15:0] not_finite_pc;
  wire s_done, s_valid, s_en, s_first, s_last, s_n_first, s_exists;
  wire [1:0]    s_error;
  wire [15:0]   s_pc;
  wire [LP-1:0] s_step;
  wire [5:0]    s_rows, s_lanes;
  wire [12:0]   s_bias;
  wire [20:0]   s_x, s_y, s_z, s_mask;
  wire f_product, f_vector, f_quant, f_update, f_norm, f_broadcast, f_scalar;
  wire f_to_a, f_to_b, f_to_v, f_to_g, f_relu, f_use_mask, f_a_col, f_b_col, f_use_bias, f_bgrad, f_use_y;
  wire [5:0] f_shift;
  wire [7:0] f_stride, f_range, f_range_w, f_range_t;
  wire [53:0] f_vec;
  wire f_adam, f_average, f_bias, f_copy_w, f_copy_t, f_gb, f_norm_first, f_norm_last, f_target;
  wire [26:0] f_exponents;
  wire [1:0] f_set;
  wire [4:0] f_lane;
  wire [5:0] f_index;
  assign {s_done, s_error, s_valid, s_pc, s_en, s_first, s_last, s_n_first, s_exists, s_step, s_rows,
          s_lanes, s_bias, s_x, s_y, s_z, s_mask,
          f_product, f_vector, f_quant, f_update, f_norm, f_broadcast, f_scalar,
          f_to_a, f_to_b, f_to_v, f_to_g, f_relu, f_use_mask, f_shift, f_stride, f_range,
          f_a_col, f_b_col, f_use_bias, f_bgrad, f_use_y, f_vec,
          f_adam, f_average, f_bias, f_copy_w, f_copy_t, f_exponents, f_set, f_range_w, f_range_t,
          f_gb, f_norm_first, f_norm_last, f_lane, f_target, f_index} = slot;
  wire product = s_valid && f_product && s_en;
  wire tile_end = s_valid && f_product && s_last;
  wire update = s_valid && f_update;
  wire control_rst;
  local_reset u_control_reset (.clk(clk), .rst(rst), .out(control_rst));
  control u_control (
    .clk(clk), .rst(control_rst), .ld_we(ld_valid && ld_mem == 7'd0), .ld_addr(ld_addr),
    .ld_beat(ld_beat), .ld_data(ld_data), .run_valid(run_valid), .run_pc(run_pc),
    .run_accumulate(run_accumulate), .slot(slot), .accumulate(accumulate), .clear(clear),
    .far(far), .far_pc(far_pc), .row_far(row_far), .row_far_pc(row_far_pc),
    .not_finite(not_finite), .not_finite_pc(not_finite_pc), .conflict(conflict),
    .enabled(product), .busy(busy), .halted(halted), .done(done), .error(error),
    .error_pc(error_pc), .cycles(cycles), .slots(slots), .runs(runs));

  // ---- operand memories
  wire [P-1:0]   a_we, b_we;
  wire [19:0]    ab_addr;
  wire [P*W-1:0]  a_data, a_raw, a;
  wire [P*WB-1:0] ab_data, b_raw, b;
  generate
    for (j = 0; j < P; j = j + 1) begin : g_a_data
      assign a_data[j*W +: W] = ab_data[j*WB +: W];
    end
  endgenerate
  banks #(.WIDTH(W), .DEPTH(`COPAL_DEPTH_A)) u_a (
    .clk(clk), .dump(dump), .dump_addr(rd_addr), .tile(s_x), .col(f_a_col), .step(s_step),
    .we(a_we), .waddr(ab_addr), .wdata(a_data), .raw(a_raw), .operands(a));
  banks #(.WIDTH(WB), .DEPTH(`COPAL_DEPTH_B)) u_b (
    .clk(clk), .dump(dump), .dump_addr(rd_addr), .tile(s_y), .col(f_b_col), .step(s_step),
    .we(b_we), .waddr(ab_addr), .wdata(ab_data), .raw(b_raw), .operands(b));

  // ---- biases
  localparam BIAS_BITS = `COPAL_DEPTH_BIAS > 1 ? $clog2(`COPAL_DEPTH_BIAS) : 1;
  reg  [BIAS_BITS-1:0] bias_at;
  reg                  bias_we;
  reg  [BIAS_BITS-1:0] bias_waddr;
  reg  [P*ACC-1:0]     bias_wdata;
  wire [P*ACC-1:0]     bias_raw, bias;
  wire                 use_bias3;
  always @(posedge clk) bias_at <= dump ? rd_addr[BIAS_BITS-1:0] : s_bias[BIAS_BITS-1:0];
  ram #(.WIDTH(P*ACC), .DEPTH(`COPAL_DEPTH_BIAS)) u_bias (
    .clk(clk), .we(bias_we), .waddr(bias_waddr), .wdata(bias_wdata), .raddr(bias_at),
    .rdata(bias_raw));
  delay #(.STAGES(3)) u_use_bias (.clk(clk), .in(f_use_bias), .out(use_bias3));
  delay #(.WIDTH(P*ACC), .STAGES(`COPAL_STAGES_ROTATE)) u_bias_row (
    .clk(clk), .in(bias_raw & {P*ACC{use_bias3}}), .out(bias));

  // ---- array
  localparam TILE = 6 + 6 + 8 + 6 + 16;
  wire row_en, row_first, row_last, tile_valid, tile_bgrad;
  wire [5:0]      tile_rows;
  wire [7:0]      tile_stride;
  wire [20:0]     tile_mask, tile_address;
  wire [12:0]     tile_bias;
  wire [TILE-1:0] tile_tag, row_tag;
  delay_valid #(.WIDTH(2), .STAGES(ROW)) u_row_valid (
    .clk(clk), .rst(rst), .in({product, tile_end}), .out({row_en, row_last}));
  delay #(.STAGES(ROW)) u_row_first (.clk(clk), .in(s_first), .out(row_first));
  delay_valid #(.WIDTH(2), .STAGES(ROW + 2)) u_tile_valid (
    .clk(clk), .rst(rst), .in({tile_end, tile_end && f_bgrad && s_n_first}),
    .out({tile_valid, tile_bgrad}));
  delay #(.WIDTH(TILE + 6 + 8 + 42 + 13), .STAGES(ROW + 2)) u_tile (
    .clk(clk),
    .in({f_to_a, f_to_b, f_to_v, f_to_g, f_relu, f_use_mask, f_shift, f_range, s_lanes, s_pc,
         s_rows, f_stride, s_mask, s_z, s_bias}),
    .out({tile_tag, tile_rows, tile_stride, tile_mask, tile_address, tile_bias}));
  wire             row_valid, row_v;
  wire [20:0]      row_mask, row_address;
  wire [P*ACC-1:0] sums;
  wire [P*COLUMN-1:0] columns;
  wire array_rst;
  local_reset u_array_reset (.clk(clk), .rst(rst), .out(array_rst));
  array #(.TAG(TILE)) u_array (
    .clk(clk), .rst(array_rst), .en(row_en), .first(row_first), .last(row_last), .bias(bias), .a(a),
    .b(b), .tile_valid(tile_valid), .tile_rows(tile_rows), .tile_stride(tile_stride),
    .tile_mask(tile_mask), .tile_address(tile_address), .tile_tag(tile_tag),
    .row_valid(row_valid), .row_to_v(row_v), .row_mask(row_mask), .row_address(row_address),
    .row_tag(row_tag), .sums(sums), .columns(columns));

  // ---- addresses that do not exist
  checks u_checks (
    .clk(clk), .rst(rst), .pc(s_pc), .x(s_x), .y(s_y), .z(s_z), .bias(s_bias),
    .product(product), .biased(s_first && (f_use_bias || (f_bgrad && s_n_first))),
    .vector(s_valid && f_vector), .use_x(!f_vec[5]), .use_y(f_use_y),
    .quant(s_valid && f_quant), .exists(s_exists), .to_a(f_to_a), .to_b(f_to_b),
    .update(update), .bias_mode(f_bias), .copy_w(f_copy_w), .copy_t(f_copy_t),
    .norm(s_valid && f_norm), .gb(f_gb), .norm_last(s_last && f_norm_last),
    .broadcast(s_valid && f_broadcast), .scalar(s_valid && f_scalar), .far(far), .far_pc(far_pc),
    .row(row_valid), .row_pc(row_tag[15:0]), .row_flags({row_tag[41:40], row_v && row_tag[39], row_tag[38:36]}),
    .row_address(row_address), .row_mask(row_mask), .row_far(row_far), .row_far_pc(row_far_pc));

  // ---- row masks
  localparam MASK_BITS = `COPAL_DEPTH_MASK > 1 ? $clog2(`COPAL_DEPTH_MASK) : 1;
  wire [MASK_BITS-1:0] mask_next;
  reg  [MASK_BITS-1:0] mask_at;
  wire                 mask_we;
  wire [19:0]          mask_waddr;
  wire [P-1:0]         mask_wdata, mask;
  delay #(.WIDTH(MASK_BITS), .STAGES(PICK - 2)) u_mask_next (
    .clk(clk), .in(row_mask[MASK_BITS-1:0]), .out(mask_next));
  always @(posedge clk) mask_at <= mask_next;
  ram #(.WIDTH(P), .DEPTH(`COPAL_DEPTH_MASK)) u_mask (
    .clk(clk), .we(mask_we), .waddr(mask_waddr[MASK_BITS-1:0]), .wdata(mask_wdata),
    .raddr(mask_at), .rdata(mask));

  // ---- vector unit
  localparam QTAG = 20 + 2 + 8 + 6 + 1 + 16;
  wire [P*32-1:0]  x_word;
  wire             int_valid, v_row_we, v_conflict;
  wire [LP-1:0]    int_step;
  wire [VL*32-1:0] int_data;
  wire [VL-1:0]    int_bad;
  wire [QTAG-1:0]  int_tag;
  wire [19:0]      v_row_addr;
  wire [P*32-1:0]  v_row_data;
  reg              bc_we;
  reg  [31:0]      bc_data;
  wire [19:0]      bc_addr, norm_addr;
  wire             norm_we;
  wire [31:0]      norm_data;
  wire vector_rst;
  local_reset u_vector_reset (.clk(clk), .rst(rst), .out(vector_rst));
  vector #(.TAG(QTAG)) u_vector (
    .clk(clk), .rst(vector_rst), .halted(halted), .write(s_valid && f_vector),
    .quant(s_valid && f_quant), .flags(f_vec), .step(s_step),
    .x_addr(dump ? rd_addr : s_x[19:0]), .y_addr(s_y[19:0]), .d_addr(s_z[19:0]),
    .tag({s_z[19:0], f_to_a, f_to_b, f_range, s_lanes, s_exists, s_pc}), .x_word(x_word),
    .int_valid(int_valid), .int_step(int_step), .int_data(int_data), .int_bad(int_bad),
    .int_tag(int_tag), .row_we(v_row_we), .row_addr(v_row_addr), .row_data(v_row_data),
    .all_we(bc_we || norm_we), .all_addr(bc_we ? bc_addr : norm_addr),
    .all_data(bc_we ? bc_data : norm_data), .ld_we(ld_valid && ld_mem == 7'd1),
    .ld_addr(ld_addr), .ld_beat(ld_beat), .ld_data(ld_data), .conflict(v_conflict));

  // ---- scalars: 16 memories of one number a set
  wire [16*32-1:0] k_raw;
  reg  [1:0]       k_set;
  wire             scalar3;
  wire [5:0]       index3;
  reg  [9*32-1:0]  k_held;
  delay_valid #(.STAGES(3)) u_scalar (
    .clk(clk), .rst(rst), .in(s_valid && f_scalar), .out(scalar3));
  delay #(.WIDTH(6), .STAGES(3)) u_index (.clk(clk), .in(f_index), .out(index3));
  wire k_load = ld_valid && ld_mem == 7'd8;
  wire k_write = scalar3 && !halted;
  generate
    for (j = 0; j < 16; j = j + 1) begin : g_k
      small_ram u_k (
        .clk(clk), .we((k_load && ld_addr[2:0] == j / 2) || (k_write && index3[3:0] == j)),
        .waddr(k_load ? ld_addr[4:3] : index3[5:4]),
        .wdata(k_load ? ld_data[(j % 2)*32 +: 32] : x_word[31:0]),
        .raddr(k_set), .rdata(k_raw[j*32 +: 32]));
    end
  endgenerate
  always @(posedge clk) begin
    if (dump) k_set <= rd_addr[4:3];
    else if (update) k_set <= f_set;
    k_held <= {k_raw[0*32 +: 32], k_raw[1*32 +: 32], k_raw[2*32 +: 32], k_raw[3*32 +: 32],
               k_raw[4*32 +: 32], k_raw[5*32 +: 32], k_raw[6*32 +: 32], k_raw[7*32 +: 32],
               k_raw[8*32 +: 32]};
  end

  // ---- gradients
  localparam G_BITS = `COPAL_DEPTH_PARAMETERS > 1 ? $clog2(`COPAL_DEPTH_PARAMETERS) : 1;
  wire             g_read, g_we, gb_read, gb_we;
  wire [19:0]      g_read_addr, g_waddr;
  wire [12:0]      gb_waddr;
  wire [P*32-1:0]  g_wdata, gb_wdata, g_raw, gb_raw;
  reg  [G_BITS-1:0]    g_at;
  reg  [BIAS_BITS-1:0] gb_at;
  wire unit_g = (update && !f_bias) || (s_valid && f_norm && !f_gb);
  wire unit_gb = (update && f_bias) || (s_valid && f_norm && f_gb);
  // `g_read` asks for the word that `results` needs two cycles on, so its address goes past `g_at`.
  always @(posedge clk) begin
    g_at <= dump ? rd_addr[G_BITS-1:0] : s_x[G_BITS-1:0];
    gb_at <= dump ? rd_addr[BIAS_BITS-1:0] : f_norm ? s_x[BIAS_BITS-1:0] : s_y[BIAS_BITS-1:0];
  end
  ram #(.WIDTH(P*32), .DEPTH(`COPAL_DEPTH_PARAMETERS)) u_g (
    .clk(clk), .we(g_we), .waddr(g_waddr[G_BITS-1:0]), .wdata(g_wdata),
    .raddr(g_read ? g_read_addr[G_BITS-1:0] : g_at), .rdata(g_raw));
  ram #(.WIDTH(P*32), .DEPTH(`COPAL_DEPTH_BIAS)) u_gb (
    .clk(clk), .we(gb_we), .waddr(gb_waddr[BIAS_BITS-1:0]), .wdata(gb_wdata),
    .raddr(gb_read ? tile_bias[BIAS_BITS-1:0] : gb_at), .rdata(gb_raw));
  assign gb_read = tile_bgrad;
  wire gb_write;
  delay_valid #(.STAGES(2 + GATHER)) u_gb_write (
    .clk(clk), .rst(rst), .in(tile_bgrad), .out(gb_write));
  delay #(.WIDTH(13), .STAGES(2 + GATHER)) u_gb_addr (
    .clk(clk), .in(tile_bias), .out(gb_waddr));
  assign gb_we = gb_write && !halted;
  generate
    for (j = 0; j < P; j = j + 1) begin : g_gb
      gather u_gather (
        .clk(clk), .accumulate(accumulate), .old(gb_raw[j*32 +: 32]),
        .sum(columns[j*COLUMN +: COLUMN]), .out(gb_wdata[j*32 +: 32]));
    end
  endgenerate
  reg unit_g1, unit_gb1;
  always @(posedge clk) begin
    unit_g1 <= unit_g && !rst;
    unit_gb1 <= unit_gb && !rst;
  end
  wire read_conflict = (g_read && unit_g1) || (gb_read && unit_gb1);

  // ---- norm
  wire norm3, norm_first3, norm_last3, gb3;
  wire [5:0] shift3;
  wire [LP-1:0] step3;
  delay_valid #(.WIDTH(2), .STAGES(3)) u_norm_valid (
    .clk(clk), .rst(rst), .in({s_valid && f_norm, s_valid && f_norm && s_last && f_norm_last}),
    .out({norm3, norm_last3}));
  delay #(.WIDTH(LP + 8), .STAGES(3)) u_norm_flags (
    .clk(clk), .in({s_first && f_norm_first, f_norm ? f_gb : f_bias, f_shift, s_step}),
    .out({norm_first3, gb3, shift3, step3}));
  wire [P*32-1:0] g_word = gb3 ? gb_raw : g_raw;
  wire norm_clk;
  clock_gate #(.CYCLES(NORM)) u_norm_gate (
    .clk(clk), .rst(rst), .active(norm3), .gated(norm_clk));
  norm u_norm (
    .clk(norm_clk), .rst(rst), .valid(norm3), .first(norm_first3), .shift(shift3), .g(g_word),
    .out(norm_data));
  delay_valid #(.STAGES(NORM)) u_norm_we (.clk(clk), .rst(rst), .in(norm_last3), .out(norm_we));
  delay #(.WIDTH(20), .STAGES(NORM + 3)) u_norm_addr (
    .clk(clk), .in(s_z[19:0]), .out(norm_addr));

  // ---- optimiser
  localparam UTAG = 40 + 16 + 3;
  reg  [AL*32-1:0]  g4;
  wire [AL*32-1:0]  w_read, t_read, m_read, s_read;
  wire              w_valid, t_valid;
  wire [UTAG-1:0]   w_tag, t_tag;
  wire [P*ACC-1:0]  w_row, t_row;
  wire [LP-1:0]     lane = f_lane[LP-1:0];
  always @(posedge clk) g4 <= g_word[step3*AL*32 +: AL*32];
  wire optimiser_rst;
  local_reset u_optimiser_reset (.clk(clk), .rst(rst), .out(optimiser_rst));
  optimiser #(.TAG(UTAG)) u_optimiser (
    .clk(clk), .rst(optimiser_rst), .halted(halted), .update(update), .word(s_x[19:0]),
    .step(f_broadcast ? lane / AL : s_step), .adam(f_adam), .average(f_average),
    .exponents(f_exponents), .tag({s_y[19:0], s_z[19:0], f_range_w, f_range_t, f_bias, f_copy_w, f_copy_t}),
    .g(g4), .scalars(k_held), .dump(dump), .dump_word(rd_addr), .dump_step(rd_beat / (AL / 2)),
    .w_read(w_read), .t_read(t_read), .m_read(m_read), .s_read(s_read),
    .ld_we({4{ld_valid}} & {ld_mem == 7'd2, ld_mem == 7'd3, ld_mem == 7'd4, ld_mem == 7'd5}),
    .ld_addr(ld_addr), .ld_beat(ld_beat), .ld_data(ld_data),
    .w_valid(w_valid), .w_tag(w_tag), .w_row(w_row), .t_valid(t_valid), .t_tag(t_tag),
    .t_row(t_row));
  always @(posedge clk) begin
    bias_we <= !halted && !rst && ((w_valid && w_tag[2] && w_tag[1]) || (t_valid && t_tag[2] && t_tag[0]));
    bias_waddr <= w_valid ? w_tag[39 +: BIAS_BITS] : t_tag[19 +: BIAS_BITS];
    bias_wdata <= w_valid ? w_row : t_row;
  end
  wire bc4, bc_target4;
  wire [LP-1:0] bc_lane4;
  delay_valid #(.STAGES(4)) u_bc (.clk(clk), .rst(rst), .in(s_valid && f_broadcast), .out(bc4));
  delay #(.WIDTH(LP + 1), .STAGES(4)) u_bc_lane (
    .clk(clk), .in({lane, f_target}), .out({bc_lane4, bc_target4}));
  delay #(.WIDTH(20), .STAGES(5)) u_bc_addr (.clk(clk), .in(s_z[19:0]), .out(bc_addr));
  always @(posedge clk) begin
    bc_we <= bc4 && !rst;
    bc_data <= bc_target4 ? t_read[(bc_lane4 % AL)*32 +: 32] : w_read[(bc_lane4 % AL)*32 +: 32];
  end

  // ---- rows of integers: from the array, the vector lanes, the optimiser
  wire             from_array;
  wire [TILE-1:0]  array_tag;
  wire [19:0]      array_addr, array_mask;
  wire             array_v;
  delay_valid #(.STAGES(PICK)) u_from_array (
    .clk(clk), .rst(rst), .in(row_valid), .out(from_array));
  delay #(.WIDTH(TILE + 41), .STAGES(PICK)) u_array_tag (
    .clk(clk), .in({row_tag, row_address[19:0], row_mask[19:0], row_v}),
    .out({array_tag, array_addr, array_mask, array_v}));
  wire        from_w = w_valid && !w_tag[2] && w_tag[1];
  wire        from_t = t_valid && !t_tag[2] && t_tag[0];
  wire [19:0] int_addr;
  wire        int_a, int_b, int_exists;
  wire [7:0]  int_range;
  wire [5:0]  int_lanes;
  wire [15:0] int_pc;
  assign {int_addr, int_a, int_b, int_range, int_lanes, int_exists, int_pc} = int_tag;
  reg              e_valid, e_a, e_b, e_v, e_g, e_relu, e_use_mask;
  reg  [P*ACC-1:0] e_sums;
  reg  [P-1:0]     e_lanes, e_counted;
  reg  [5:0]       e_shift;
  reg  [7:0]       e_range;
  reg  [19:0]      e_address, e_mask_address;
  wire [P-1:0]     int_here, bad;
  generate
    for (j = 0; j < P; j = j + 1) begin : g_e
      localparam [5:0] J = j;
      wire [31:0] whole = int_data[(j % VL)*32 +: 32];
      assign int_here[j] = int_step == j / VL;
      assign bad[j] = int_here[j] && J < int_lanes && int_bad[j % VL];
      always @(posedge clk) begin
        e_sums[j*ACC +: ACC] <= from_array ? sums[j*ACC +: ACC]
          : int_valid ? {{ACC-32{whole[31] && int_exists}}, whole & {32{int_exists}}}
          : from_w ? w_row[j*ACC +: ACC] : t_row[j*ACC +: ACC];
        e_lanes[j] <= !int_valid || int_here[j];
        e_counted[j] <= from_array ? J < array_tag[21:16]
                        : int_valid ? int_here[j] && J < int_lanes : 1'b1;
      end
    end
  endgenerate
  always @(posedge clk) begin
    e_valid <= !rst && !halted && (from_array || int_valid || from_w || from_t);
    {e_a, e_b, e_v, e_g, e_relu, e_use_mask, e_shift, e_range} <=
      from_array ? {array_tag[41:40], array_tag[39] && array_v, array_tag[38:22]}
      : int_valid ? {int_a, int_b, 10'd0, int_range}
      : {1'b1, 11'd0, from_w ? w_tag[18:11] : t_tag[10:3]};
    e_address <= from_array ? array_addr : int_valid ? int_addr
                 : from_w ? w_tag[58:39] : t_tag[38:19];
    e_mask_address <= array_mask;
    not_finite <= !rst && int_valid && int_exists && |bad;
    not_finite_pc <= int_pc;
  end
  wire row_conflict = (from_array && (int_valid || from_w || from_t))
                      || (int_valid && (from_w || from_t));
  always @(posedge clk)
    conflict <= !rst && (row_conflict || v_conflict || read_conflict || (bc_we && norm_we));
  wire [63:0] range_data;
  reg  [7:0]  range_at;
  always @(posedge clk) range_at <= rd_addr[7:0];
  wire results_rst;
  local_reset u_results_reset (.clk(clk), .rst(rst), .out(results_rst));
  results u_results (
    .clk(clk), .rst(results_rst), .halted(halted), .accumulate(accumulate), .clear(clear),
    .valid(e_valid), .sums(e_sums), .mask(mask), .lanes(e_lanes), .counted(e_counted),
    .shift(e_shift), .to_a(e_a), .to_b(e_b), .to_v(e_v), .to_g(e_g), .relu(e_relu),
    .use_mask(e_use_mask), .range(e_range), .address(e_address),
    .mask_address(e_mask_address), .a_we(a_we), .b_we(b_we), .ab_addr(ab_addr),
    .ab_data(ab_data), .v_we(v_row_we), .v_addr(v_row_addr), .v_data(v_row_data),
    .mask_we(mask_we), .mask_addr(mask_waddr), .mask_data(mask_wdata), .g_read(g_read),
    .g_read_addr(g_read_addr), .g_old(g_raw), .g_we(g_we), .g_addr(g_waddr), .g_data(g_wdata),
    .dump_addr(range_at), .dump_data(range_data));

  dump u_dump (
    .clk(clk), .rst(rst), .valid(rd_valid), .mem(rd_mem), .addr(rd_addr[2:0]), .beat(rd_beat),
    .v(x_word), .w(w_read), .t(t_read), .m(m_read), .s(s_read), .g(g_raw), .gb(gb_raw), .k(k_raw),
    .range(range_data), .a(a_raw), .b(b_raw), .bias(bias_raw), .rsp_valid(rsp_valid),
    .rsp_data(rsp_data));
endmodule
