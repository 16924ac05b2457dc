# SPDX-License-Identifier: MIT
# PYNQ-Z2: Zynq-7000 XC7Z020. Read by design.tcl; not run in Vivado so far.
set part xc7z020clg400-1
set board_part tul.com.tw:pynq-z2:part0:1.0
set clock_mhz 100

set ps_name processing_system7
set ps_automation {make_external "FIXED_IO, DDR" apply_board_preset "1"}
set ps_settings [list \
    CONFIG.PCW_USE_M_AXI_GP0 1 \
    CONFIG.PCW_USE_S_AXI_HP0 1 \
    CONFIG.PCW_S_AXI_HP0_DATA_WIDTH 64 \
    CONFIG.PCW_EN_CLK0_PORT 1 \
    CONFIG.PCW_EN_RST0_PORT 1 \
    CONFIG.PCW_FPGA0_PERIPHERAL_FREQMHZ $clock_mhz]
set ps_clock FCLK_CLK0
set ps_reset FCLK_RESET0_N
set ps_bus_clocks {M_AXI_GP0_ACLK S_AXI_HP0_ACLK}
set ps_master M_AXI_GP0
set ps_slave S_AXI_HP0

set dma_address 0x40000000
set engine_address 0x40010000
