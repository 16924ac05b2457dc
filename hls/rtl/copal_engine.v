// SPDX-License-Identifier: MIT
// Top of the learner engine: stream port, registers and core, named as Vivado infers interfaces.
//
//   s_axis --> +------+ --> ld, rd, run --> +--------+
//   m_axis <-- | port |                     | engine |
//              +------+ <-- rsp, done ----- +--------+
//   s_axil <-> axi_lite --> reset of both; their memories stay as they are
//
// One clock. `aresetn` may be asserted at any time, for at least four cycles; it is registered here.
module copal_engine (
  (* X_INTERFACE_PARAMETER = "ASSOCIATED_BUSIF s_axis:m_axis:s_axil, ASSOCIATED_RESET aresetn" *)
  input  wire        aclk,
  input  wire        aresetn,

  input  wire [63:0] s_axis_tdata,
  input  wire [7:0]  s_axis_tkeep,
  input  wire        s_axis_tlast,
  input  wire        s_axis_tvalid,
  output wire        s_axis_tready,

  output wire [63:0] m_axis_tdata,
  output wire [7:0]  m_axis_tkeep,
  output wire        m_axis_tlast,
  output wire        m_axis_tvalid,
  input  wire        m_axis_tready,

  input  wire [7:0]  s_axil_awaddr,
  input  wire [2:0]  s_axil_awprot,
  input  wire        s_axil_awvalid,
  output wire        s_axil_awready,
  input  wire [31:0] s_axil_wdata,
  input  wire [3:0]  s_axil_wstrb,
  input  wire        s_axil_wvalid,
  output wire        s_axil_wready,
  output wire [1:0]  s_axil_bresp,
  output wire        s_axil_bvalid,
  input  wire        s_axil_bready,
  input  wire [7:0]  s_axil_araddr,
  input  wire [2:0]  s_axil_arprot,
  input  wire        s_axil_arvalid,
  output wire        s_axil_arready,
  output wire [31:0] s_axil_rdata,
  output wire [1:0]  s_axil_rresp,
  output wire        s_axil_rvalid,
  input  wire        s_axil_rready
);
  reg bus_reset, core_reset;
  wire soft_reset;
  always @(posedge aclk) begin
    bus_reset <= !aresetn;
    core_reset <= !aresetn || soft_reset;
  end

  wire        ld_valid, ld_ready, rd_valid, rd_ready, rsp_valid;
  wire [6:0]  ld_mem, rd_mem;
  wire [19:0] ld_addr, rd_addr;
  wire [4:0]  ld_beat, rd_beat;
  wire [63:0] ld_data, rsp_data;
  wire        run_valid, run_accumulate, busy, done;
  wire [15:0] run_pc, run_error_pc, error_pc;
  wire [7:0]  run_error, error;
  wire [63:0] cycles, slots, runs;
  wire        active, stream_ready;

  // What comes before the reset has ended would be lost.
  assign s_axis_tready = stream_ready && !core_reset;
  assign m_axis_tkeep = 8'hff;

  port port (
    .clk(aclk), .rst(core_reset),
    .s_tdata(s_axis_tdata), .s_tvalid(s_axis_tvalid && !core_reset), .s_tready(stream_ready),
    .s_tlast(s_axis_tlast),
    .m_tdata(m_axis_tdata), .m_tvalid(m_axis_tvalid), .m_tready(m_axis_tready),
    .m_tlast(m_axis_tlast),
    .ld_valid(ld_valid), .ld_ready(ld_ready), .ld_mem(ld_mem), .ld_addr(ld_addr),
    .ld_beat(ld_beat), .ld_data(ld_data),
    .rd_valid(rd_valid), .rd_ready(rd_ready), .rd_mem(rd_mem), .rd_addr(rd_addr),
    .rd_beat(rd_beat), .rsp_valid(rsp_valid), .rsp_data(rsp_data),
    .run_valid(run_valid), .run_pc(run_pc), .run_accumulate(run_accumulate), .busy(busy),
    .done(done), .run_error(run_error), .run_error_pc(run_error_pc),
    .cycles(cycles), .slots(slots), .runs(runs),
    .active(active), .error(error), .error_pc(error_pc)
  );

  axi_lite axi_lite (
    .clk(aclk), .rst(bus_reset),
    .awaddr(s_axil_awaddr), .awvalid(s_axil_awvalid), .awready(s_axil_awready),
    .wdata(s_axil_wdata), .wstrb(s_axil_wstrb), .wvalid(s_axil_wvalid), .wready(s_axil_wready),
    .bresp(s_axil_bresp), .bvalid(s_axil_bvalid), .bready(s_axil_bready),
    .araddr(s_axil_araddr), .arvalid(s_axil_arvalid), .arready(s_axil_arready),
    .rdata(s_axil_rdata), .rresp(s_axil_rresp), .rvalid(s_axil_rvalid), .rready(s_axil_rready),
    .active(active), .error(error), .error_pc(error_pc), .cycles(cycles),
    .soft_reset(soft_reset)
  );

  engine engine (
    .clk(aclk), .rst(core_reset),
    .ld_valid(ld_valid), .ld_ready(ld_ready), .ld_mem(ld_mem), .ld_addr(ld_addr),
    .ld_beat(ld_beat), .ld_data(ld_data),
    .rd_valid(rd_valid), .rd_ready(rd_ready), .rd_mem(rd_mem), .rd_addr(rd_addr),
    .rd_beat(rd_beat), .rsp_valid(rsp_valid), .rsp_data(rsp_data),
    .run_valid(run_valid), .run_pc(run_pc), .run_accumulate(run_accumulate), .busy(busy),
    .done(done), .error(run_error), .error_pc(run_error_pc),
    .cycles(cycles), .slots(slots), .runs(runs)
  );
endmodule
