// SPDX-License-Identifier: MIT
// The engine's registers on AXI4-Lite, 32 bit: what it is, what it does, and its reset.
//
//   aw, w --> held until both are there --> CONTROL --> `soft_reset`, RESET_CYCLES long
//   ar    --> one read at a time --> r, one cycle later
//
// Every access is answered OKAY: an error response would stop a processor that only asked for a
// register that a later engine has. A reset lasts longer than any pipeline of the engine is deep.
`include "copal_params.vh"
`ifndef COPAL_BUILD
`define COPAL_BUILD 0
`endif

module axi_lite #(
  parameter RESET_CYCLES = 255
) (
  input  wire        clk,
  input  wire        rst,
  input  wire [7:0]  awaddr,
  input  wire        awvalid,
  output wire        awready,
  input  wire [31:0] wdata,
  input  wire [3:0]  wstrb,
  input  wire        wvalid,
  output wire        wready,
  output wire [1:0]  bresp,
  output reg         bvalid,
  input  wire        bready,
  input  wire [7:0]  araddr,
  input  wire        arvalid,
  output wire        arready,
  output reg  [31:0] rdata,
  output wire [1:0]  rresp,
  output reg         rvalid,
  input  wire        rready,
  input  wire        active,
  input  wire [7:0]  error,
  input  wire [15:0] error_pc,
  input  wire [63:0] cycles,
  output wire        soft_reset
);
  localparam [31:0] ID = 32'h434f504c, ABI = 32'd1;
  localparam [5:0] CONTROL = 6'h10;

  reg        aw_held, w_held;
  reg [5:0]  aw;
  reg        w_reset;
  reg [8:0]  resetting;
  reg [31:0] value;
  wire       write = aw_held && w_held && !bvalid;

  assign awready = !aw_held;
  assign wready = !w_held;
  assign arready = !rvalid;
  assign bresp = 2'b00;
  assign rresp = 2'b00;
  assign soft_reset = resetting != 9'd0;

  always @* begin
    case (araddr[7:2])
      6'h00: value = ID;
      6'h01: value = ABI;
      6'h02: value = {8'd`COPAL_AL, 8'd`COPAL_VL, 8'd`COPAL_W, 8'd`COPAL_P};
      6'h03: value = {8'd0, 8'd`COPAL_WB, 7'd0, 1'd`COPAL_FUNCTIONS, 8'd`COPAL_ACC};
      6'h04: value = `COPAL_DEPTH_CODE;
      6'h05: value = `COPAL_DEPTH_VECTOR;
      6'h06: value = `COPAL_DEPTH_A;
      6'h07: value = `COPAL_DEPTH_B;
      6'h08: value = `COPAL_DEPTH_PARAMETERS;
      6'h09: value = `COPAL_DEPTH_BIAS;
      6'h0a: value = `COPAL_DEPTH_MASK;
      6'h0b: value = `COPAL_DEPTH_RANGE;
      6'h0c: value = `COPAL_BUILD;
      6'h11: value = {error_pc, error, 6'd0, error != 8'd0, active || soft_reset};
      6'h12: value = cycles[31:0];
      6'h13: value = cycles[63:32];
      default: value = 32'd0;
    endcase
  end

  always @(posedge clk) begin
    if (awvalid && awready) begin
      aw_held <= 1'b1;
      aw <= awaddr[7:2];
    end
    if (wvalid && wready) begin
      w_held <= 1'b1;
      w_reset <= wdata[0] && wstrb[0];
    end
    if (bvalid && bready) bvalid <= 1'b0;
    if (write) begin
      aw_held <= 1'b0;
      w_held <= 1'b0;
      bvalid <= 1'b1;
    end
    if (write && aw == CONTROL && w_reset) resetting <= RESET_CYCLES;
    else if (soft_reset) resetting <= resetting - 9'd1;
    if (rvalid && rready) rvalid <= 1'b0;
    if (arvalid && arready) begin
      rvalid <= 1'b1;
      rdata <= value;
    end
    if (rst) begin
      aw_held <= 1'b0;
      w_held <= 1'b0;
      bvalid <= 1'b0;
      rvalid <= 1'b0;
      resetting <= 9'd0;
    end
  end
endmodule
