# SPDX-License-Identifier: MIT
# KV260: Kria K26. Read by design.tcl; not run in Vivado so far.
set part xck26-sfvc784-2LV-c
set board_part xilinx.com:kv260_som:part0:1.4
set clock_mhz 200

set ps_name zynq_ultra_ps_e
set ps_automation {apply_board_preset "1"}
set ps_settings [list \
    CONFIG.PSU__USE__M_AXI_GP0 1 \
    CONFIG.PSU__USE__M_AXI_GP1 0 \
    CONFIG.PSU__USE__M_AXI_GP2 0 \
    CONFIG.PSU__USE__S_AXI_GP2 1 \
    CONFIG.PSU__SAXIGP2__DATA_WIDTH 64 \
    CONFIG.PSU__FPGA_PL0_ENABLE 1 \
    CONFIG.PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ $clock_mhz]
set ps_clock pl_clk0
set ps_reset pl_resetn0
set ps_bus_clocks {maxihpm0_fpd_aclk saxihp0_fpd_aclk}
set ps_master M_AXI_HPM0_FPD
set ps_slave S_AXI_HP0_FPD

set dma_address 0xA0000000
set engine_address 0xA0010000
