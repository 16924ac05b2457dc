// SPDX-License-Identifier: MIT
// Microcode memory, fetch, sequencer, and the life of a RUN: start, end, errors, counters.
//
//   run --> pc --> CODE --> decode --> seq --> slot, one a cycle
//            ^___ next when seq took it __|
//
// The next instruction is fetched while one runs; it is there FETCH cycles after the one before was
// taken. The first error of a RUN wins. From the cycle behind it `halted` is high and no unit writes
// (two units that write at once are noticed a cycle late); the RUN ends when all pipelines are empty.
`include "copal_params.vh"

module control (
  input  wire        clk,
  input  wire        rst,
  input  wire        ld_we,
  input  wire [19:0] ld_addr,
  input  wire [4:0]  ld_beat,
  input  wire [63:0] ld_data,
  input  wire        run_valid,
  input  wire [15:0] run_pc,
  input  wire        run_accumulate,
  output wire [`COPAL_BITS_OF_SEQ-1:0] slot,
  output reg         accumulate,
  output wire        clear,        // a RUN starts that does not accumulate
  // what the units found
  input  wire        far,          // a slot's address is outside its memory
  input  wire [15:0] far_pc,
  input  wire        row_far,      // the same for a row of results
  input  wire [15:0] row_far_pc,
  input  wire        not_finite,
  input  wire [15:0] not_finite_pc,
  input  wire        conflict,
  input  wire        enabled,      // the array has a product
  output reg         busy,
  output reg         halted,
  output reg         done,
  output reg  [7:0]  error,
  output reg  [15:0] error_pc,
  output reg  [63:0] cycles,
  output reg  [63:0] slots,
  output reg  [63:0] runs
);
  localparam JOB = `COPAL_BITS_OF_DECODE, SLOT = `COPAL_BITS_OF_SEQ;
  localparam FETCH = 2 + `COPAL_STAGES_DECODE;
  localparam BITS = `COPAL_DEPTH_CODE > 1 ? $clog2(`COPAL_DEPTH_CODE) : 1;
  localparam [7:0] ADDRESS = 8'd3, CONFLICT = 8'd4, NOT_FINITE = 8'd5;

  // ---- fetch: everything behind `pc` stands still while seq is not ready
  reg  [15:0]  pc;
  reg  [3:0]   age;
  reg          fetching;
  reg          beyond;
  wire [319:0] word;
  wire [JOB-1:0] decoded;
  wire [JOB-1:0] job = {beyond ? 2'd3 : decoded[JOB-1 -: 2], decoded[JOB-3:0]};
  wire         job_end = decoded[JOB-3] && job[JOB-1 -: 2] == 2'd0;
  wire         offered = fetching && age == FETCH;
  wire         ready;
  genvar i;
  generate
    for (i = 0; i < 5; i = i + 1) begin : g_code
      ram #(.WIDTH(64), .DEPTH(`COPAL_DEPTH_CODE)) u_ram (
        .clk(clk), .we(ld_we && ld_beat == i), .waddr(ld_addr[BITS-1:0]), .wdata(ld_data),
        .raddr(pc[BITS-1:0]), .rdata(word[64*i +: 64]));
    end
  endgenerate
  decode u_decode (.clk(clk), .w(word), .out(decoded));
  wire [SLOT-1:0] seq_y;
  wire seq_valid;
  reg  still;                      // a cycle behind `halted`, which hides what seq says meanwhile
  always @(posedge clk) still <= rst || halted;
  seq u_seq (
    .clk(clk), .rst(still), .seq__x({pc, job}), .seq__x_valid(offered),
    .seq__x_ready(ready), .seq__y(seq_y), .seq__y_valid(seq_valid), .seq__y_ready(1'b1));

  // done, error, valid and pc are the first fields of a slot
  wire       slot_done = seq_valid && !halted && seq_y[SLOT-1];
  wire [1:0] slot_error = seq_valid && !halted ? seq_y[SLOT-2 -: 2] : 2'd0;
  assign slot = {slot_done, slot_error, seq_valid && !halted && seq_y[SLOT-4], seq_y[SLOT-5:0]};
  wire [15:0] slot_pc = seq_y[SLOT-5 -: 16];

  // ---- the RUN
  wire start = run_valid && !busy;
  wire failed = busy && !halted && (slot_error != 2'd0 || far || row_far || not_finite || conflict);
  reg       ending;               // a cycle behind `slot_done`: the last writes may have met
  reg [7:0] quiet;
  assign clear = start && !run_accumulate;
  always @(posedge clk) begin
    done <= 1'b0;
    age <= age == FETCH ? age : age + 4'd1;
    beyond <= {4'd0, pc} >= `COPAL_DEPTH_CODE;
    if (offered && ready) begin
      pc <= pc + 16'd1;
      age <= 4'd0;
      if (job_end) fetching <= 1'b0;
    end
    if (start) begin
      busy <= 1'b1;
      fetching <= 1'b1;
      pc <= run_pc;
      age <= 4'd0;
      accumulate <= run_accumulate;
      error <= 8'd0;
      cycles <= 64'd0;
      slots <= 64'd0;
    end
    if (busy) begin
      cycles <= cycles + 64'd1;
      if (enabled) slots <= slots + 64'd1;
    end
    quiet <= halted ? quiet - 8'd1 : 8'd255;
    if (failed) begin
      halted <= 1'b1;
      fetching <= 1'b0;
      error <= row_far || far ? ADDRESS : not_finite ? NOT_FINITE : conflict ? CONFLICT
               : {6'd0, slot_error};
      error_pc <= row_far ? row_far_pc : far ? far_pc : not_finite ? not_finite_pc : slot_pc;
    end
    ending <= slot_done;
    if (busy && (ending || (halted && quiet == 8'd0))) begin
      busy <= 1'b0;
      halted <= 1'b0;
      done <= 1'b1;
      runs <= runs + 64'd1;
    end
    if (rst) begin
      busy <= 1'b0;
      halted <= 1'b0;
      fetching <= 1'b0;
      done <= 1'b0;
      ending <= 1'b0;
      error <= 8'd0;
      error_pc <= 16'd0;
      cycles <= 64'd0;
      slots <= 64'd0;
      runs <= 64'd0;
    end
  end
endmodule
