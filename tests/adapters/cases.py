# SPDX-License-Identifier: MIT
"""Runs the cases of a module in another framework's environment; one JSON line a case.

<the framework's python> cases.py in_sb3
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import traceback
import warnings


def main() -> int:
    """Runs every function whose name begins with `case_`; returns 0 if the module could load."""
    warnings.filterwarnings("ignore")
    module = importlib.import_module(sys.argv[1])
    for name, case in list(vars(module).items()):
        if not name.startswith("case_"):
            continue
        start = time.perf_counter()
        try:
            case()
            failure = ""
        except BaseException:  # noqa: BLE001 - reported as the case's failure
            failure = traceback.format_exc()
        row = {"case": name, "failure": failure, "s": time.perf_counter() - start}
        print("\n@case " + json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
