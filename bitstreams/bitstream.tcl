# SPDX-License-Identifier: MIT
# Implements the project that design.tcl made and leaves copal.bit, copal.hwh and result.txt.
#
#   vivado -mode batch -source bitstream.tcl -tclargs OUT_FOLDER
#
# THIS SCRIPT HAS NOT BEEN RUN in Vivado: it was written from the manuals.

lassign $argv out
open_project [file join $out copal.xpr]
launch_runs impl_1 -to_step write_bitstream -jobs 4
wait_on_run impl_1
if {[get_property PROGRESS [get_runs impl_1]] ne "100%"} {
    puts stderr "implementation failed: [get_property STATUS [get_runs impl_1]]"
    exit 1
}
set slack [get_property STATS.WNS [get_runs impl_1]]
if {$slack < 0} {
    puts stderr "timing is not met: worst slack $slack ns; lower clock_mhz in board.tcl"
    exit 1
}
open_run impl_1
report_utilization -file [file join $out utilization.txt]
file copy -force [file join $out copal.runs impl_1 design_wrapper.bit] [file join $out copal.bit]
file copy -force [file join $out copal.gen sources_1 bd design hw_handoff design.hwh] \
    [file join $out copal.hwh]
set result [open [file join $out result.txt] w]
puts $result "vivado [version -short]"
puts $result "slack_ns $slack"
close $result
