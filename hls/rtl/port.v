// SPDX-License-Identifier: MIT
// The stream port: packets of LOAD, RUN and DUMP commands on 64-bit AXI-Stream.
//
//   s_axis --> header --> check --+--> LOAD: register, beats to the core --> ld_*
//                                 +--> RUN: start, wait for `done` --------> run_*
//                                 +--> DUMP: requests, one a cycle --------> rd_*
//   m_axis <-- register <-- FIFO of 32 beats <------------------------------ rsp_*
//
// A command costs three cycles besides its beats. A request is made only if the FIFO has room for all
// beats that are under way, so a receiver that waits never loses one. Errors of a packet:
//   3  LOAD, DUMP or RUN beyond a memory: data are swallowed, a DUMP is answered with zeros
//   6  unknown command, or a memory that it cannot reach: the rest of the packet is swallowed
//   7  TLAST inside a LOAD: the packet ends there
// The first error of a packet stays until the next packet. After one, RUNs are skipped and LOADs
// swallowed; DUMPs are answered.
`include "copal_params.vh"

module port (
  input  wire        clk,
  input  wire        rst,
  // stream in
  input  wire [63:0] s_tdata,
  input  wire        s_tvalid,
  output wire        s_tready,
  input  wire        s_tlast,
  // stream out
  output reg  [63:0] m_tdata,
  output reg         m_tvalid,
  input  wire        m_tready,
  output reg         m_tlast,
  // core: load
  output reg         ld_valid,
  input  wire        ld_ready,
  output reg  [6:0]  ld_mem,
  output reg  [19:0] ld_addr,
  output reg  [4:0]  ld_beat,
  output reg  [63:0] ld_data,
  // core: dump
  output wire        rd_valid,
  input  wire        rd_ready,
  output wire [6:0]  rd_mem,
  output wire [19:0] rd_addr,
  output wire [4:0]  rd_beat,
  input  wire        rsp_valid,
  input  wire [63:0] rsp_data,
  // core: run
  output reg         run_valid,
  output wire [15:0] run_pc,
  output wire        run_accumulate,
  input  wire        busy,
  input  wire        done,
  input  wire [7:0]  run_error,
  input  wire [15:0] run_error_pc,
  input  wire [63:0] cycles,
  input  wire [63:0] slots,
  input  wire [63:0] runs,
  // registers
  output wire        active,
  output reg  [7:0]  error,
  output reg  [15:0] error_pc
);
  localparam [7:0] LOAD = 8'd1, RUN = 8'd2, DUMP = 8'd3;
  localparam [7:0] ADDRESS = 8'd3, COMMAND = 8'd6, TRUNCATED = 8'd7;
  localparam [6:0] CODE = 7'd0, K = 7'd8, RANGE = 7'd9, BIAS = 7'd12, STATUS = 7'd13;
  localparam [2:0]
    HEAD = 3'd0, CHECK = 3'd1, DATA = 3'd2, WAIT = 3'd3, READ = 3'd4, SKIP = 3'd5, MEASURE = 3'd6;

  // ---- the header's fields and what they ask of a memory
  reg [2:0]  state;
  reg [7:0]  command;
  reg [6:0]  memory;
  reg        last;
  reg [23:0] address;
  reg [23:0] count;
  reg        ended;      // the newest beat had TLAST, so the next one starts a packet
  reg        known;      // the memory takes this command
  reg [23:0] depth;      // its words
  reg [4:0]  top_beat;   // its beats a word, less one

  wire [7:0] in_command = s_tdata[7:0];
  wire [6:0] in_memory = s_tdata[14:8];
  reg        in_known;
  reg [23:0] in_depth;
  reg [4:0]  in_top;
  always @* begin
    in_top = `COPAL_P / 2 - 1;
    in_known = 1'b1;
    case (in_memory)
      CODE: begin
        in_top = 5'd4;
        in_depth = `COPAL_DEPTH_CODE;
        in_known = in_command == LOAD;
      end
      7'd1: in_depth = `COPAL_DEPTH_VECTOR;
      7'd2, 7'd3, 7'd4, 7'd5: in_depth = `COPAL_DEPTH_PARAMETERS;
      7'd6: begin
        in_depth = `COPAL_DEPTH_PARAMETERS;
        in_known = in_command == DUMP;
      end
      7'd7: begin
        in_depth = `COPAL_DEPTH_BIAS;
        in_known = in_command == DUMP;
      end
      K: begin
        in_top = 5'd0;
        in_depth = 24'd32;
      end
      RANGE: begin
        in_top = 5'd0;
        in_depth = `COPAL_DEPTH_RANGE;
        in_known = in_command == DUMP;
      end
      7'd10: begin
        in_depth = `COPAL_DEPTH_A;
        in_known = in_command == DUMP;
      end
      7'd11: begin
        in_depth = `COPAL_DEPTH_B;
        in_known = in_command == DUMP;
      end
      BIAS: begin
        in_top = `COPAL_P - 1;
        in_depth = `COPAL_DEPTH_BIAS;
        in_known = in_command == DUMP;
      end
      STATUS: begin
        in_top = 5'd3;
        in_depth = 24'd1;
        in_known = in_command == DUMP;
      end
      default: begin
        in_depth = 24'd0;
        in_known = 1'b0;
      end
    endcase
    if (in_command == RUN) in_known = 1'b1;
    if (in_command != LOAD && in_command != RUN && in_command != DUMP) in_known = 1'b0;
  end

  // ---- checks: measured in the cycle after the header, acted on in the next
  reg         beyond;
  reg         far;
  reg         empty;
  reg         wanting;
  reg         one;
  always @(posedge clk) begin
    beyond <= {1'b0, address} + {1'b0, count} > {1'b0, depth};
    far <= address >= `COPAL_DEPTH_CODE;
    empty <= count == 24'd0;
    wanting <= command == LOAD && count != 24'd0 && ended;
    one <= count == 24'd1;
  end
  reg         local_read;  // beats that the core does not answer: STATUS, zeros where is no memory
  reg         zeros;
  reg         swallow;

  // ---- beats of a LOAD, requests of a DUMP
  reg [23:0] word;
  reg [23:0] words;       // that are still to come or to ask for
  reg [4:0]  beat;
  wire       end_of_word = beat == top_beat;
  reg        last_word;   // words == 1
  wire       end_of_words = end_of_word && last_word;

  // ---- beats on their way out; `answered` counts those in the FIFO and those under way
  reg [64:0] fifo [0:31];
  reg [4:0]  head, tail;
  reg [5:0]  answered, held;
  reg [23:0] due;         // words whose answer has not come
  reg [4:0]  due_beat;
  reg        asking;
  wire       room = answered < 6'd32;
  wire       out_free = !m_tvalid || m_tready;
  wire       pop = out_free && held != 6'd0;
  wire       step_local = state == READ && local_read && asking && room;
  wire       push = rsp_valid || step_local;
  reg        last_due;    // due == 1
  wire       end_of_answer = last_due && due_beat == top_beat;
  wire       ask = rd_valid && rd_ready;
  reg [63:0] status;
  always @* begin
    case (beat[1:0])
      2'd0: status = {32'd0, error_pc, 8'd0, error};
      2'd1: status = cycles;
      2'd2: status = slots;
      default: status = runs;
    endcase
  end
  wire [63:0] local_beat = zeros ? 64'd0 : status;
  wire [63:0] pushed = rsp_valid ? rsp_data : local_beat;

  wire ld_free = !ld_valid || ld_ready;
  wire taken = s_tvalid && s_tready;
  wire step_load = state == DATA && taken;
  wire step = step_load || ask || step_local;

  assign s_tready = state == HEAD || state == SKIP || (state == DATA && (swallow || ld_free));
  assign rd_valid = state == READ && asking && !local_read && room;
  assign rd_mem = memory;
  assign rd_addr = word[19:0];
  assign rd_beat = beat;
  assign run_pc = address[15:0];
  assign run_accumulate = count[0];
  assign active = state != HEAD || !ended || held != 6'd0 || m_tvalid || ld_valid;

  always @(posedge clk) begin
    run_valid <= 1'b0;
    if (taken) ended <= s_tlast;
    case (state)
      HEAD: if (taken) begin
        command <= in_command;
        memory <= in_memory;
        last <= s_tdata[15];
        address <= s_tdata[39:16];
        count <= s_tdata[63:40];
        known <= in_known;
        depth <= in_depth;
        top_beat <= in_top;
        if (ended) begin
          error <= 8'd0;
          error_pc <= 16'd0;
        end
        state <= MEASURE;
      end
      // Not before what was loaded has arrived.
      MEASURE: if (!ld_valid) state <= CHECK;
      CHECK: begin
        word <= address;
        words <= count;
        last_word <= one;
        beat <= 5'd0;
        due <= count;
        last_due <= one;
        due_beat <= 5'd0;
        swallow <= error != 8'd0 || beyond || wanting;
        local_read <= memory == STATUS || beyond;
        zeros <= beyond;
        asking <= 1'b1;
        if (!known) begin
          if (error == 8'd0) error <= COMMAND;
          state <= ended ? HEAD : SKIP;
        end else if (command == RUN) begin
          if (error != 8'd0) state <= HEAD;
          else if (far) begin
            error <= ADDRESS;
            error_pc <= address[15:0];
            state <= HEAD;
          end else if (!busy) begin
            run_valid <= 1'b1;
            state <= WAIT;
          end
        end else begin
          if (error == 8'd0 && beyond) error <= ADDRESS;
          else if (error == 8'd0 && wanting) error <= TRUNCATED;
          if (empty || wanting) state <= HEAD;
          else state <= command == LOAD ? DATA : READ;
        end
      end
      DATA: if (taken) begin
        if (s_tlast && !end_of_words && error == 8'd0) error <= TRUNCATED;
        if (s_tlast || end_of_words) state <= HEAD;
      end
      WAIT: if (done) begin
        error <= run_error;
        error_pc <= run_error == 8'd0 ? 16'd0 : run_error_pc;
        state <= HEAD;
      end
      READ: if (push && end_of_answer) state <= HEAD;
      default: if (taken && s_tlast) state <= HEAD;
    endcase
    if (step) begin
      beat <= end_of_word ? 5'd0 : beat + 5'd1;
      if (end_of_word) begin
        word <= word + 24'd1;
        words <= words - 24'd1;
        last_word <= words == 24'd2;
      end
      if (end_of_words) asking <= 1'b0;
    end
    if (push) begin
      due_beat <= due_beat == top_beat ? 5'd0 : due_beat + 5'd1;
      if (due_beat == top_beat) begin
        due <= due - 24'd1;
        last_due <= due == 24'd2;
      end
      tail <= tail + 5'd1;
    end
    if (pop) head <= head + 5'd1;
    held <= held + {5'd0, push} - {5'd0, pop};
    answered <= answered + {5'd0, ask || step_local} - {5'd0, pop};
    if (out_free) m_tvalid <= held != 6'd0;
    if (ld_free) ld_valid <= step_load && !swallow;
    if (rst) begin
      state <= HEAD;
      ended <= 1'b1;
      run_valid <= 1'b0;
      error <= 8'd0;
      error_pc <= 16'd0;
      head <= 5'd0;
      tail <= 5'd0;
      held <= 6'd0;
      answered <= 6'd0;
      m_tvalid <= 1'b0;
      asking <= 1'b0;
      ld_valid <= 1'b0;
    end
  end

  always @(posedge clk)
    if (ld_free) {ld_mem, ld_addr, ld_beat, ld_data} <= {memory, word[19:0], beat, s_tdata};
  always @(posedge clk) if (push) fifo[tail] <= {last && end_of_answer, pushed};
  always @(posedge clk) if (out_free) {m_tlast, m_tdata} <= fifo[head];
endmodule
