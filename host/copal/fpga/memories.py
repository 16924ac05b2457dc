# SPDX-License-Identifier: MIT
"""Code, parameters and moments of an engine: loaded, refreshed, read back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from copal.errors import FpgaError
from copal.fpga.compiler.plan import Plan
from copal.fpga.device import FpgaDevice
from copal.fpga.isa import BEATS, ErrorCode, Memory
from copal.fpga.packet import Exchange, Field, Script

Vectors = Mapping[str, NDArray[np.float32]]


class EngineMemories:
    """What stays on the engine from one update to the next.

    Args:
        device: The engine.
        plan: Where everything lies.
        timeout_s: Limit of each transfer.

    Attributes:
        bytes_sent: So far.
        bytes_received: So far.
    """

    def __init__(self, device: FpgaDevice, plan: Plan, timeout_s: float) -> None:
        self._device, self._plan, self._timeout_s = device, plan, timeout_s
        self._code: NDArray[np.uint64] | None = None
        self._loads: dict[Memory, tuple[Exchange, Field]] = {}
        self._dumps: dict[Memory, tuple[Exchange, Field]] = {}
        script = Script(plan.config)
        script.run(plan.refresh.pc)
        self._refresh = script.ready(device)
        self.bytes_sent = self.bytes_received = 0

    def load_code(self, code: NDArray[np.uint64]) -> None:
        """Loads the microcode, if it is not there already; uint64 [5 * instructions]."""
        if self._code is not None and np.array_equal(code, self._code):
            return
        self._code = None
        self._load(Memory.CODE, code, len(code) // BEATS, "microcode")
        self._code = code.copy()

    def refresh(self) -> None:
        """Writes the integer copies of all parameters with the exponents of the code.

        Raises:
            FpgaError: The engine reports an error.
        """
        status = self._send(self._refresh, "integer copies")
        if status != ErrorCode.NONE:
            raise FpgaError("integer copies", "no error", f"error {status.name}")

    def load(self, memory: Memory, vectors: Vectors) -> None:
        """Loads one of W, T, M, S from flat vectors by network."""
        words = self._plan.layout.words
        self._load(memory, self._plan.layout.pack(vectors), words, f"load of {memory.name}")

    def dump(self, memory: Memory, networks: Iterable[str]) -> dict[str, NDArray[np.float32]]:
        """Flat vectors by network out of one of W, T, M, S."""
        if memory not in self._dumps:
            script = Script(self._plan.config)
            place = script.dump(memory, 0, self._plan.layout.words)
            self._dumps[memory] = (script.ready(self._device), place)
        exchange, place = self._dumps[memory]
        self._send(exchange, f"dump of {memory.name}")
        content = place.take().view(np.float32)
        return {name: self._plan.layout.unpack(name, content) for name in networks}

    def _load(self, memory: Memory, data: NDArray[np.generic], words: int, what: str) -> None:
        if memory not in self._loads:
            script = Script(self._plan.config)
            place = script.load(memory, 0, words)
            self._loads[memory] = (script.ready(self._device), place)
        exchange, place = self._loads[memory]
        place.put(data)
        self._send(exchange, what)

    def _send(self, exchange: Exchange, what: str) -> ErrorCode:
        self.bytes_sent += exchange.bytes_sent
        self.bytes_received += exchange.bytes_received
        return exchange.send(what, self._timeout_s).code
