// SPDX-License-Identifier: MIT
// The engine on few pins, so that it can be placed and routed with real inputs and outputs.
//
//   in  (16 bit) --> 4 words to a beat --> s_axis      `in_last` goes with the fourth word
//   out (16 bit) <-- 4 words of a beat <-- m_axis      `out_last` comes with the fourth word
//   reg: a read of the register at `reg_address`, 16 bits chosen by `reg_high`; `reg_reset` resets
//
// Every pin has a register of its own.
module copal_pins (
  input  wire        clk,
  input  wire        rst_n,
  input  wire [15:0] in_data,
  input  wire        in_last,
  input  wire        in_valid,
  output wire        in_ready,
  output reg  [15:0] out_data,
  output reg         out_last,
  output reg         out_valid,
  input  wire        out_ready,
  input  wire [5:0]  reg_address,
  input  wire        reg_read,
  input  wire        reg_high,
  input  wire        reg_reset,
  output reg  [15:0] reg_data,
  output reg         reg_valid
);
  // words to beats
  reg [63:0] beat;
  reg [2:0]  got;
  reg        beat_last;
  wire       beat_ready;
  wire       beat_valid = got == 3'd4;
  assign in_ready = !beat_valid;
  always @(posedge clk) begin
    if (in_valid && in_ready) begin
      beat <= {in_data, beat[63:16]};
      beat_last <= in_last;
      got <= got + 3'd1;
    end
    if (beat_valid && beat_ready) got <= 3'd0;
    if (!rst_n) got <= 3'd0;
  end

  // beats to words
  wire [63:0] answer;
  wire        answer_last, answer_valid;
  reg  [63:0] rest;
  reg         rest_last;
  reg  [2:0]  left;
  wire        answer_ready = left == 3'd0;
  wire        step = left != 3'd0 && (!out_valid || out_ready);
  always @(posedge clk) begin
    if (out_ready) out_valid <= 1'b0;
    if (step) begin
      {rest, out_data} <= {16'd0, rest};
      out_last <= rest_last && left == 3'd1;
      out_valid <= 1'b1;
      left <= left - 3'd1;
    end
    if (answer_valid && answer_ready) begin
      rest <= answer;
      rest_last <= answer_last;
      left <= 3'd4;
    end
    if (!rst_n) begin
      left <= 3'd0;
      out_valid <= 1'b0;
    end
  end

  reg  [5:0]  address;
  reg         read, high, reset;
  wire [31:0] value;
  wire        value_valid;
  always @(posedge clk) begin
    address <= reg_address;
    read <= reg_read;
    high <= reg_high;
    reset <= reg_reset;
    reg_data <= high ? value[31:16] : value[15:0];
    reg_valid <= value_valid;
  end

  copal_engine engine (
    .aclk(clk), .aresetn(rst_n),
    .s_axis_tdata(beat), .s_axis_tkeep(8'hff), .s_axis_tlast(beat_last),
    .s_axis_tvalid(beat_valid), .s_axis_tready(beat_ready),
    .m_axis_tdata(answer), .m_axis_tkeep(), .m_axis_tlast(answer_last),
    .m_axis_tvalid(answer_valid), .m_axis_tready(answer_ready),
    .s_axil_awaddr(8'h40), .s_axil_awprot(3'd0), .s_axil_awvalid(reset), .s_axil_awready(),
    .s_axil_wdata(32'd1), .s_axil_wstrb(4'hf), .s_axil_wvalid(reset), .s_axil_wready(),
    .s_axil_bresp(), .s_axil_bvalid(), .s_axil_bready(1'b1),
    .s_axil_araddr({address, 2'd0}), .s_axil_arprot(3'd0), .s_axil_arvalid(read),
    .s_axil_arready(), .s_axil_rdata(value), .s_axil_rresp(), .s_axil_rvalid(value_valid),
    .s_axil_rready(1'b1)
  );
endmodule
