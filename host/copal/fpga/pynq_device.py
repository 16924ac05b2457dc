# SPDX-License-Identifier: MIT
"""The engine on a board, through the `pynq` library, which is imported when a board is opened.

pynq waits without limit, cannot reset its DMA, sends views of a buffer wrongly without an error and
does not compare a bitstream with the board. All of that is done here. A remote board (PYNQ.remote)
has the same face.
"""

from __future__ import annotations

import os
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from copal.errors import BackendUnavailableError, FpgaError, FpgaTimeoutError
from copal.fpga import boards, overlay, registers
from copal.fpga.config import EngineConfig
from copal.fpga.device import Beats
from copal.fpga.in_use import InUse

BITSTREAM = "COPAL_BITSTREAM"
"""Environment variable with the path of the bitstream to load."""
SMALLEST_BYTES = 8192
"""What pynq before 4.0 gives out below this may lie where a 32-bit DMA does not reach."""
RESET_S = 1.0
"""Longest wait for the DMA to come out of its reset."""
RESET, RUN = 4, 1
STATUS = 4
"""Offset of a channel's status from its control register."""
NUMPY_MAJOR = int(np.__version__.split(".")[0])
_MANAGER = Path("/sys/class/fpga_manager/fpga0")
_FAULTS = {
    0x01: "halted",
    0x10: "internal error: length 0, or the engine sent more than was asked for",
    0x20: "slave error: the memory refused an access",
    0x40: "decode error: an address that is not there",
}


def unavailable() -> str | None:
    """None if a board can be opened here, else the reason and what to do."""
    reason = _library_reason()
    if reason is not None:
        return reason
    remote = bool(os.environ.get("PYNQ_REMOTE_DEVICES"))
    if _MANAGER.exists() and not os.environ.get("XILINX_XRT"):
        return (
            "XILINX_XRT is not set, which hides the board from pynq: `export XILINX_XRT=/usr` "
            "(sudo drops it: `sudo -E`)"
        )
    if _MANAGER.exists() and not remote and os.geteuid() != 0:
        return "the board's memory needs root: `sudo -E copal ...`, or use PYNQ.remote"
    import pynq

    if not pynq.Device.devices:
        return (
            "pynq finds no device: run on the board, or set PYNQ_REMOTE_DEVICES to its address; "
            "`--device sim` and `--device model` need none"
        )
    return None


def _library_reason() -> str | None:
    import importlib.util

    if importlib.util.find_spec("pynq") is None:
        return "pynq is not installed: on the board, `pip install 'copal-rl[fpga]'`"
    if NUMPY_MAJOR >= 2:
        return f"pynq needs numpy<2, this is {np.__version__}: `pip install 'numpy<2'`"
    try:
        import pynq  # noqa: F401
    except Exception as e:  # noqa: BLE001 - its dependencies fail in many ways
        hint = ": `pip install 'pycparser<3'`" if "pycparser" in str(e) else ""
        return f"pynq cannot be imported: {type(e).__name__}: {e}{hint}"
    return None


def bitstream() -> Path:
    """The bitstream to load: `COPAL_BITSTREAM`.

    Raises:
        BackendUnavailableError: It is not set.
    """
    named = os.environ.get(BITSTREAM)
    if named:
        return Path(named)
    raise BackendUnavailableError(
        "device",
        "a bitstream for the board",
        f"{BITSTREAM} is not set",
        "`copal build --board NAME --stage bitstream` makes one where Vivado is installed; then "
        f"`export {BITSTREAM}=/path/to/copal.bit`",
    )


class PynqDevice:
    """The engine on a board.

    Args:
        bit: Bitstream, with its `.hwh` beside it.
        board: Name of the board; None: what the system says.
        download: Load the bitstream; False: it has been loaded.

    Attributes:
        clock_mhz: Clock in the manifest; None if there is none.

    Raises:
        BackendUnavailableError: There is no board, or pynq cannot be used; says why.
        FpgaError: The files do not fit the board or each other, or the engine is another one.
        FpgaTimeoutError: The DMA does not come out of its reset.
    """

    name = "pynq"

    def __init__(self, bit: Path, *, board: str | None = None, download: bool = True) -> None:
        reason = unavailable()
        if reason is not None:
            raise BackendUnavailableError("device", "a board", reason)
        self._arenas: dict[int, Any] = {}
        self._given: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._use = InUse(self._arenas.clear)
        facts = overlay.inspect(bit)
        name = board if board is not None else boards.present()
        if name is not None:
            overlay.check_part(facts, boards.get(name).device, name)
        entry = overlay.check_manifest(facts)
        self.clock_mhz = None if entry is None else entry.get("clock_mhz")
        self._load(facts, download)
        self.max_transfer = min(int(self._dma.buffer_max_size), (1 << facts.length_bits) - 1)
        self._reset_dma()
        self.config: EngineConfig = registers.read_config(self)

    def _load(self, facts: overlay.Overlay, download: bool) -> None:
        import pynq

        self._pynq = pynq
        try:
            self._overlay: Any = pynq.Overlay(str(facts.bit), download=download)
        except Exception as e:
            got = f"{type(e).__name__}: {e}"
            hint = f"pynq {getattr(pynq, '__version__', '?')} has to be one for this board"
            raise FpgaError(facts.bit.name, "an overlay that pynq loads", got, hint) from e
        for path in (facts.engine, facts.dma):
            found = self._overlay.ip_dict.get(path, {}).get("phys_addr")
            wanted = facts.addresses.get(path.rsplit("/", 1)[-1])
            if found != wanted:
                _clear_state()
                raise FpgaError(
                    path, f"address {_hex(wanted)}, as in the .hwh", _hex(found),
                    "pynq kept the metadata of another design; it has been cleared: try again",
                )  # fmt: skip
        self._engine, self._dma = self._part(facts.engine), self._part(facts.dma)

    def _part(self, path: str) -> Any:
        node = self._overlay
        for name in path.split("/"):
            node = getattr(node, name)
        return node

    def read32(self, offset: int) -> int:
        """See `copal.fpga.device.FpgaDevice`."""
        return int(self._engine.read(offset))

    def write32(self, offset: int, value: int) -> None:
        """See `copal.fpga.device.FpgaDevice`."""
        self._engine.write(offset, int(value) & 0xFFFFFFFF)

    def alloc(self, beats: int) -> Beats:
        """See `copal.fpga.device.FpgaDevice`."""
        with self._use:
            return self._alloc(beats)

    def _alloc(self, beats: int) -> Beats:
        size = max(8 * beats, SMALLEST_BYTES)
        try:
            arena = self._pynq.allocate((size // 8,), np.uint64)
        except Exception as e:
            hint = "other programs hold it, or reserve more at boot (`cma=`)"
            got = f"{type(e).__name__}: {e}; {_free_text()}"
            raise FpgaError("alloc", f"{size:,} bytes of contiguous memory", got, hint) from e
        arena[:] = 0
        view: Beats = np.asarray(arena)[:beats]
        key = id(view)
        self._arenas[key], self._given[key] = arena, view
        weakref.finalize(view, self._arenas.pop, key, None)
        return view

    def exchange(self, tx: Beats, rx: Beats, timeout_s: float) -> int:
        """See `copal.fpga.device.FpgaDevice`."""
        with self._use:
            try:
                return self._exchange(tx, rx, timeout_s)
            except FpgaError:
                raise
            except BaseException:  # interrupted: the DMA must not go on in memory that is freed
                self.reset()
                raise

    def _exchange(self, tx: Beats, rx: Beats, timeout_s: float) -> int:
        sending = self._checked("tx", tx)
        receiving = self._checked("rx", rx) if rx.size else None
        end = time.monotonic() + timeout_s
        send, receive = self._dma.sendchannel, self._dma.recvchannel
        try:
            if receiving is not None:  # first, so that the engine never waits for it
                receive.transfer(receiving, nbytes=rx.nbytes)
            send.transfer(sending, nbytes=tx.nbytes)
        except (RuntimeError, ValueError) as e:
            self.reset()
            raise FpgaError("exchange", "a DMA that takes a transfer", str(e)) from e
        self._wait(send, end, f"sending {tx.size} beats", timeout_s)
        if receiving is None:
            return 0
        self._wait(receive, end, f"receiving {rx.size} beats", timeout_s)
        return int(receive.transferred) // 8

    def _checked(self, name: str, buffer: Beats) -> Any:
        """The memory behind `buffer`; by identity, as a view or a sum looks like a buffer."""
        if self._given.get(id(buffer)) is not buffer:
            raise FpgaError(
                name, "a buffer as `alloc` gave it",
                f"{type(buffer).__name__} {buffer.shape}, strides {buffer.strides}",
                "copy into a buffer from `alloc`: the DMA knows no others",
            )  # fmt: skip
        if buffer.nbytes > self.max_transfer:
            limit = f"at most {self.max_transfer} bytes, the limit of this DMA"
            raise FpgaError(name, limit, f"{buffer.nbytes} bytes", "send several packets")
        return self._arenas[id(buffer)]

    def _wait(self, channel: Any, end: float, what: str, timeout_s: float) -> None:
        while not channel.idle:
            failed = bool(channel.error)
            if self._use.closed:
                self.reset()
                raise FpgaError(what, "an open device", "one that was closed meanwhile")
            if failed or time.monotonic() > end:
                status = channel._mmio.read(channel._offset + STATUS)  # noqa: SLF001 - no other way
                self.reset()
                text = f"DMASR {_hex(status)}: {_decoded(status)}"
                if failed:
                    raise FpgaError(what, "a DMA without errors", text)
                raise FpgaTimeoutError(what, f"an answer within {timeout_s:g} s", text)
        channel.wait()  # idle: returns at once, and makes what was received visible

    def reset(self) -> None:
        """See `copal.fpga.device.FpgaDevice`."""
        self.write32(registers.CONTROL, 1)
        self._reset_dma()

    def _reset_dma(self) -> None:
        """What pynq's DMA lacks; its own `start` would wait without limit."""
        end = time.monotonic() + RESET_S
        channels = (self._dma.sendchannel, self._dma.recvchannel)
        registers_ = channels[0]._mmio  # noqa: SLF001 - no other way
        registers_.write(0, RESET)
        _until(lambda: not registers_.read(0) & RESET, end, "reset")
        for channel in channels:
            registers_.write(channel._offset, RUN)  # noqa: SLF001
            _until(lambda channel=channel: channel.running, end, "start")
            channel._first_transfer = True  # noqa: SLF001

    def close(self) -> None:
        """See `copal.fpga.device.FpgaDevice`; memory goes once no transfer is under way."""
        self._use.close()


def _until(reached: Any, end: float, what: str) -> None:
    while not reached():
        if time.monotonic() > end:
            raise FpgaTimeoutError(
                f"{what} of the DMA", f"done within {RESET_S:g} s", "still under way",
                "the design's clock or reset is missing; load the bitstream again",
            )  # fmt: skip


def _decoded(status: int) -> str:
    texts = [text for bit, text in _FAULTS.items() if status & bit]
    return "; ".join(texts) or "still busy: no end of the packet (TLAST) came"


def _hex(value: int | None) -> str:
    return "none" if value is None else f"{value:#x}"


def _free_text() -> str:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return "CmaFree unknown"
    return next((line for line in lines if line.startswith("CmaFree")), "CmaFree unknown")


def _clear_state() -> None:
    try:
        from pynq.pl_server.global_state import clear_global_state
    except ImportError:
        return
    clear_global_state()
