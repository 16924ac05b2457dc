// SPDX-License-Identifier: MIT
// Answers of DUMP: picks the beat out of the word that a memory gives three cycles after the request,
// zero unless it is the memory that was asked; then all are joined.
//
//   word (3) --> beat of the one memory (4) --> or (5)
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
  localparam LAST = 12;
  wire [4:0] beat3;
  wire [2:0] addr1;
  wire [6:0] mem2;
  delay_valid #(.STAGES(5)) u_valid (.clk(clk), .rst(rst), .in(valid), .out(rsp_valid));
  delay #(.WIDTH(5), .STAGES(3)) u_beat (.clk(clk), .in(beat), .out(beat3));
  delay #(.WIDTH(3), .STAGES(1)) u_addr (.clk(clk), .in(addr), .out(addr1));
  delay #(.WIDTH(7), .STAGES(2)) u_mem (.clk(clk), .in(mem), .out(mem2));
  reg  [LAST:1] asked;              // cycle 3, a bit a memory
  genvar j;
  generate
    for (j = 1; j <= LAST; j = j + 1) begin : g_asked
      localparam [6:0] J = j;
      always @(posedge clk) asked[j] <= mem2 == J;
    end
  endgenerate
  wire [LP-2:0] pair = beat3[LP-2:0];
  wire [LP-1:0] lane = beat3[LP-1:0];
  wire [4:0]    part = beat3 % PAIRS;
  wire [2*W-1:0]  a_pair = a[pair*2*W +: 2*W];
  wire [2*WB-1:0] b_pair = b[pair*2*WB +: 2*WB];
  wire [ACC-1:0] bias_lane = bias[lane*ACC +: ACC];
  reg [63:0] v4, w4, t4, m4, s4, g4, gb4, k2, k3, k4, range3, range4, a4, b4, bias4;
  always @(posedge clk) begin
    v4 <= v[pair*64 +: 64] & {64{asked[1]}};
    w4 <= w[part*64 +: 64] & {64{asked[2]}};
    t4 <= t[part*64 +: 64] & {64{asked[3]}};
    m4 <= m[part*64 +: 64] & {64{asked[4]}};
    s4 <= s[part*64 +: 64] & {64{asked[5]}};
    g4 <= g[pair*64 +: 64] & {64{asked[6]}};
    gb4 <= gb[pair*64 +: 64] & {64{asked[7]}};
    k2 <= k[addr1*64 +: 64];
    k3 <= k2;
    k4 <= k3 & {64{asked[8]}};
    range3 <= range;
    range4 <= range3 & {64{asked[9]}};
    a4 <= {{32-W{a_pair[2*W-1]}}, a_pair[2*W-1:W], {32-W{a_pair[W-1]}}, a_pair[W-1:0]}
          & {64{asked[10]}};
    b4 <= {{32-WB{b_pair[2*WB-1]}}, b_pair[2*WB-1:WB], {32-WB{b_pair[WB-1]}}, b_pair[WB-1:0]}
          & {64{asked[11]}};
    bias4 <= {{64-ACC{bias_lane[ACC-1]}}, bias_lane} & {64{asked[12]}};
    rsp_data <= v4 | w4 | t4 | m4 | s4 | g4 | gb4 | k4 | range4 | a4 | b4 | bias4;
  end
endmodule
