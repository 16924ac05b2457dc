# SPDX-License-Identifier: MIT
# Vivado project of the engine on a board: processing system, AXI DMA, engine, one clock.
#
#   vivado -mode batch -source design.tcl -tclargs BOARD.tcl RTL_FOLDER OUT_FOLDER
#
# THIS SCRIPT HAS NOT BEEN RUN in Vivado: it was written from the manuals. What is tested is that it
# parses, that its files exist, and that its ports are those of the RTL.
#
#   PS M_AXI --> control --> dma S_AXI_LITE, engine s_axil
#   PS S_AXI <-- memory <--- dma M_AXI_MM2S, M_AXI_S2MM
#                            dma M_AXIS_MM2S --> engine s_axis
#                            dma S_AXIS_S2MM <-- engine m_axis

lassign $argv board_file rtl out
source $board_file

proc newest {name} {
    return [lindex [lsort -dictionary [get_ipdefs -all "xilinx.com:ip:$name:*"]] end]
}

proc pins {net args} {
    foreach pin $args {
        connect_bd_net [get_bd_pins $net] [get_bd_pins $pin]
    }
}

proc bus {from to} {
    connect_bd_intf_net [get_bd_intf_pins $from] [get_bd_intf_pins $to]
}

create_project -force copal $out -part $part
set_property board_part $board_part [current_project]
add_files [glob -directory $rtl *.v]
add_files [glob -directory $rtl *.vh]
set_property file_type SystemVerilog [get_files *.v]
# A module reference needs a top in plain Verilog.
set_property file_type Verilog [get_files copal_engine.v]
set_property is_global_include true [get_files copal_params.vh]
update_compile_order -fileset sources_1

create_bd_design design
create_bd_cell -type ip -vlnv [newest $ps_name] ps
apply_bd_automation -rule xilinx.com:bd_rule:$ps_name -config $ps_automation [get_bd_cells ps]
set_property -dict $ps_settings [get_bd_cells ps]

create_bd_cell -type ip -vlnv [newest axi_dma] dma
# Simple mode; transfers below 2^26 bytes; buffers anywhere in memory.
set_property -dict {
    CONFIG.c_include_sg 0
    CONFIG.c_sg_include_stscntrl_strm 0
    CONFIG.c_sg_length_width 26
    CONFIG.c_addr_width 64
    CONFIG.c_include_mm2s 1
    CONFIG.c_include_s2mm 1
    CONFIG.c_include_mm2s_dre 0
    CONFIG.c_include_s2mm_dre 0
    CONFIG.c_m_axi_mm2s_data_width 64
    CONFIG.c_m_axis_mm2s_tdata_width 64
    CONFIG.c_m_axi_s2mm_data_width 64
    CONFIG.c_mm2s_burst_size 64
    CONFIG.c_s2mm_burst_size 64
} [get_bd_cells dma]

create_bd_cell -type module -reference copal_engine engine
create_bd_cell -type ip -vlnv [newest proc_sys_reset] reset
create_bd_cell -type ip -vlnv [newest smartconnect] control
set_property -dict {CONFIG.NUM_SI 1 CONFIG.NUM_MI 2} [get_bd_cells control]
create_bd_cell -type ip -vlnv [newest smartconnect] memory
set_property -dict {CONFIG.NUM_SI 2 CONFIG.NUM_MI 1} [get_bd_cells memory]

pins ps/$ps_clock reset/slowest_sync_clk control/aclk memory/aclk engine/aclk \
    dma/s_axi_lite_aclk dma/m_axi_mm2s_aclk dma/m_axi_s2mm_aclk
foreach pin $ps_bus_clocks {
    pins ps/$ps_clock ps/$pin
}
pins ps/$ps_reset reset/ext_reset_in
pins reset/peripheral_aresetn engine/aresetn dma/axi_resetn control/aresetn memory/aresetn

bus ps/$ps_master control/S00_AXI
bus control/M00_AXI dma/S_AXI_LITE
bus control/M01_AXI engine/s_axil
bus dma/M_AXI_MM2S memory/S00_AXI
bus dma/M_AXI_S2MM memory/S01_AXI
bus memory/M00_AXI ps/$ps_slave
bus dma/M_AXIS_MM2S engine/s_axis
bus engine/m_axis dma/S_AXIS_S2MM

# The driver finds these in the metadata; fixed, so that designs can be exchanged.
assign_bd_address -offset $dma_address -range 64K [get_bd_addr_segs dma/S_AXI_LITE/Reg]
assign_bd_address -offset $engine_address -range 64K [get_bd_addr_segs engine/s_axil/reg0]
assign_bd_address

validate_bd_design
save_bd_design
make_wrapper -files [get_files design.bd] -top -import
set_property top design_wrapper [current_fileset]
