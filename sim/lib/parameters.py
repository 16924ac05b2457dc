# SPDX-License-Identifier: MIT
"""The engine that the device under test belongs to, as the runner describes it."""

from __future__ import annotations

import json
import os

from copal.fpga.config import Depths, EngineConfig

_VALUES = json.loads(os.environ["COPAL_SIM_CONFIG"])
CONFIG = EngineConfig(**{**_VALUES, "depths": Depths(**_VALUES["depths"])})
"""What the device under test was generated with."""
