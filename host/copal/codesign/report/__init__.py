# SPDX-License-Identifier: MIT
"""`copal report`: one page, and pictures, about one or several runs."""

from copal.codesign.report.command import ReportConfig, run, write

__all__ = ["ReportConfig", "run", "write"]
