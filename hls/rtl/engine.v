// SPDX-License-Identifier: MIT
// The engine without its stream port: memories, sequencer, array, vector unit, optimiser.
//
// Load: one 64-bit beat a cycle while `ld_ready`. `ld_addr` is the word, `ld_beat` the beat in it.
// The port checks addresses and counts; a beat beyond a memory's depth is ignored here.
// Dump: a request a cycle while `rd_ready`; its beat comes RD_LATENCY cycles later, `rsp_valid`,
// and cannot be held back. Only while no RUN is in progress.
// Run: `run_valid` for one cycle while `busy` is low. `done` is high for one cycle at its end;
// `error` (0: none) and `error_pc` hold until the next RUN.
`include "copal_params.vh"

module engine #(
  parameter RD_LATENCY = 5
) (
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
  assign ld_ready = 1'b1;
  assign rd_ready = 1'b1;
  assign rsp_valid = 1'b0;
  assign rsp_data = 64'd0;
  assign busy = 1'b0;
  assign done = 1'b0;
  assign error = 8'd0;
  assign error_pc = 16'd0;
  assign cycles = 64'd0;
  assign slots = 64'd0;
  assign runs = 64'd0;
endmodule
