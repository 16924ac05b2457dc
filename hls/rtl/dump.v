// SPDX-License-Identifier: MIT
// Answers of DUMP: picks the beat out of the word that a memory gives three cycles after the request,
// then the memory.   word (3) --> beat (4) --> memory (5)
`include "copal_params.vh"

module dump (
  input  wire        clk,
  input  wire        rst,
  input  wire        valid,
  input  wire [6:0]  mem,
  input  wire [2:0]  addr,
  input  wire [4:0]  beat,
  input  wire [`COPAL_P*32-1:0]  v,
  input  wire [`COPAL_AL*32-1:0] w,
  input  wire [`COPAL_AL*32-1:0] t,
  input  wire [`COPAL_AL*32-1:0] m,
  input  wire [`COPAL_AL*32-1:0] s,
  input  wire [`COPAL_P*32-1:0]  g,
  input  wire [`COPAL_P*32-1:0]  gb,
  input  wire [16*32-1:0]        k,       // one cycle behind the request
  input  wire [63:0]             range,   // two cycles behind it
  input  wire [`COPAL_P*`COPAL_W-1:0]   a,
  input  wire [`COPAL_P*`COPAL_WB-1:0]  b,
  input  wire [`COPAL_P*`COPAL_ACC-1:0] bias,
  output wire        rsp_valid,
  output reg  [63:0] rsp_data
);
  localparam P = `COPAL_P, LP = `COPAL_LP, W = `COPAL_W, WB = `COPAL_WB;
  localparam ACC = `COPAL_ACC, PAIRS = `COPAL_AL / 2;
  wire [4:0] beat3;
  wire [2:0] addr1;
  wire [6:0] mem4;
  delay_valid #(.STAGES(5)) u_valid (.clk(clk), .rst(rst), .in(valid), .out(rsp_valid));
  delay #(.WIDTH(5), .STAGES(3)) u_beat (.clk(clk), .in(beat), .out(beat3));
  delay #(.WIDTH(3), .STAGES(1)) u_addr (.clk(clk), .in(addr), .out(addr1));
  delay #(.WIDTH(7), .STAGES(4)) u_mem (.clk(clk), .in(mem), .out(mem4));
  wire [LP-2:0] pair = beat3[LP-2:0];
  wire [LP-1:0] lane = beat3[LP-1:0];
  wire [4:0]    part = beat3 % PAIRS;
  wire [2*W-1:0]  a_pair = a[pair*2*W +: 2*W];
  wire [2*WB-1:0] b_pair = b[pair*2*WB +: 2*WB];
  wire [ACC-1:0] bias_lane = bias[lane*ACC +: ACC];
  reg [63:0] v4, w4, t4, m4, s4, g4, gb4, k2, k3, k4, range3, range4, a4, b4, bias4;
  always @(posedge clk) begin
    v4 <= v[pair*64 +: 64];
    w4 <= w[part*64 +: 64];
    t4 <= t[part*64 +: 64];
    m4 <= m[part*64 +: 64];
    s4 <= s[part*64 +: 64];
    g4 <= g[pair*64 +: 64];
    gb4 <= gb[pair*64 +: 64];
    k2 <= k[addr1*64 +: 64];
    k3 <= k2;
    k4 <= k3;
    range3 <= range;
    range4 <= range3;
    a4 <= {{32-W{a_pair[2*W-1]}}, a_pair[2*W-1:W], {32-W{a_pair[W-1]}}, a_pair[W-1:0]};
    b4 <= {{32-WB{b_pair[2*WB-1]}}, b_pair[2*WB-1:WB], {32-WB{b_pair[WB-1]}}, b_pair[WB-1:0]};
    bias4 <= {{64-ACC{bias_lane[ACC-1]}}, bias_lane};
    case (mem4)
      7'd1: rsp_data <= v4;
      7'd2: rsp_data <= w4;
      7'd3: rsp_data <= t4;
      7'd4: rsp_data <= m4;
      7'd5: rsp_data <= s4;
      7'd6: rsp_data <= g4;
      7'd7: rsp_data <= gb4;
      7'd8: rsp_data <= k4;
      7'd9: rsp_data <= range4;
      7'd10: rsp_data <= a4;
      7'd11: rsp_data <= b4;
      default: rsp_data <= bias4;
    endcase
  end
endmodule
