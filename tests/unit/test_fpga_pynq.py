# SPDX-License-Identifier: MIT
"""The engine on a board, with a stand-in for the pynq library: what is refused, and every fault."""

from __future__ import annotations

import gc
import hashlib
import json
import sys
import threading
from pathlib import Path
from typing import Any

import fake_pynq
import numpy as np
import pytest

from copal.errors import BackendUnavailableError, FpgaError, FpgaTimeoutError, UnknownNameError
from copal.fpga import boards, overlay, pynq_device
from copal.fpga.config import Depths, EngineConfig
from copal.fpga.pynq_device import PynqDevice


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> fake_pynq.Board:
    """A board that works."""
    board = fake_pynq.Board()
    monkeypatch.setitem(sys.modules, "pynq", fake_pynq.module(board))
    monkeypatch.setattr(pynq_device, "NUMPY_MAJOR", 1)
    monkeypatch.setattr(pynq_device, "_MANAGER", tmp_path / "no manager")
    monkeypatch.setattr(pynq_device, "RESET_S", 0.05)
    monkeypatch.setenv("BOARD", "ZCU104")
    return board


@pytest.fixture
def bit(tmp_path: Path) -> Path:
    """An overlay for that board."""
    return fake_pynq.write_design(tmp_path)


def test_config_is_what_the_engine_says(board: fake_pynq.Board, bit: Path) -> None:
    """Sizes, formats and depths come from the registers."""
    board.config = EngineConfig(
        16, 16, 18, 40, 8, 4, functions=False, depths=Depths(8, 9, 10, 11, 12, 13, 14, 15)
    )
    device = PynqDevice(bit)
    assert device.config == board.config
    assert device.max_transfer == (1 << 16) - 1
    assert device.name == "pynq"


def test_packet_goes_there_and_back(
    board: fake_pynq.Board, bit: Path, rng: np.random.Generator
) -> None:
    """Only as many bytes as the buffers have, although memory comes in larger pieces."""
    device = PynqDevice(bit)
    tx, rx = device.alloc(5), device.alloc(9)
    assert not rx.any()
    tx[:] = rng.integers(0, 2**63, 5, dtype=np.uint64)
    assert device.exchange(tx, rx, 1.0) == 5
    np.testing.assert_array_equal(rx[:5], ~tx)
    assert not rx[5:].any()
    assert device.exchange(tx, device.alloc(0), 1.0) == 0


@pytest.mark.parametrize("derive", ["strided", "slice", "sum", "plain", "freed"])
def test_buffers_of_other_origin_are_refused(
    board: fake_pynq.Board, bit: Path, derive: str
) -> None:
    """The DMA would send something else, silently."""
    device = PynqDevice(bit)
    tx, rx = device.alloc(8), device.alloc(8)
    other = {
        "strided": tx[::2],
        "slice": tx[:4],
        "sum": tx + np.uint64(1),
        "plain": np.zeros(8, np.uint64),
        "freed": tx[:],
    }[derive]
    if derive == "freed":
        del tx
        gc.collect()
    with pytest.raises(FpgaError, match="a buffer as `alloc` gave it"):
        device.exchange(other, rx, 1.0)
    good = device.alloc(3)
    assert device.exchange(good, rx, 1.0) == 3


def test_memory_goes_with_the_last_reference(board: fake_pynq.Board, bit: Path) -> None:
    """Contiguous memory is scarce."""
    device = PynqDevice(bit)
    kept = device.alloc(1)
    for _ in range(5):
        device.alloc(100)
    gc.collect()
    assert len(device._arenas) == 1
    assert kept.size == 1
    device.close()
    device.close()
    assert not device._arenas


def test_too_long_a_transfer_is_refused(board: fake_pynq.Board, bit: Path) -> None:
    """Beyond the DMA's length register it would hang."""
    device = PynqDevice(bit)
    with pytest.raises(FpgaError, match="at most 65535 bytes"):
        device.exchange(device.alloc(8192), device.alloc(1), 1.0)


def test_no_contiguous_memory_is_told(board: fake_pynq.Board, bit: Path) -> None:
    """How much was asked for."""
    device = PynqDevice(bit)
    board.fail_alloc = True
    with pytest.raises(FpgaError, match="80,000 bytes of contiguous memory"):
        device.alloc(10_000)


def test_silence_is_a_timeout_and_the_device_works_again(board: fake_pynq.Board, bit: Path) -> None:
    """The transfer is named, its status decoded, engine and DMA are reset."""
    device = PynqDevice(bit)
    tx, rx = device.alloc(2), device.alloc(2)
    board.answers = False
    with pytest.raises(FpgaTimeoutError, match=r"sending 2 beats.*within 0.02 s.*DMASR 0x0"):
        device.exchange(tx, rx, 0.02)
    assert (0x40, 1) in device._engine.written
    assert board.resets == 2
    board.answers = True
    assert device.exchange(tx, rx, 1.0) == 2


def test_closing_stops_the_transfer_before_its_memory_goes(
    board: fake_pynq.Board, bit: Path
) -> None:
    """Another thread's: the DMA is reset, then the buffers are freed."""
    device = PynqDevice(bit)
    tx, rx = device.alloc(2), device.alloc(2)
    board.answers = False
    told: list[str] = []

    def exchange() -> None:
        try:
            device.exchange(tx, rx, 60.0)
        except FpgaError as error:
            told.append(f"{error}, {board.resets} resets, {len(device._arenas)} buffers")

    thread = threading.Thread(target=exchange, daemon=True)
    thread.start()
    registers = device._dma.sendchannel._mmio
    while thread.is_alive() and not registers.pending:
        pass
    device.close()
    thread.join(60.0)
    (text,) = told
    assert "one that was closed meanwhile, 2 resets" in text.replace("`", "")
    assert not device._arenas
    with pytest.raises(FpgaError, match="one that was closed"):
        device.alloc(1)
    with pytest.raises(FpgaError, match="one that was closed"):
        device.exchange(tx, rx, 1.0)


def test_interrupted_transfer_is_stopped(
    board: fake_pynq.Board, bit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After Ctrl-C the buffers go, so the DMA must not write any more."""
    device = PynqDevice(bit)
    tx, rx = device.alloc(2), device.alloc(2)
    board.answers = False

    def interrupted(_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fake_pynq.Channel, "idle", property(interrupted))
        with pytest.raises(KeyboardInterrupt):
            device.exchange(tx, rx, 60.0)
    assert board.resets == 2
    assert not device._dma.sendchannel._mmio.pending
    board.answers = True
    assert device.exchange(tx, rx, 1.0) == 2


def test_dma_error_is_decoded(board: fake_pynq.Board, bit: Path) -> None:
    """Bits of DMASR become words."""
    device = PynqDevice(bit)
    tx = device.alloc(2)
    board.answers, board.error = False, 0x40
    with pytest.raises(FpgaError, match="decode error: an address that is not there") as caught:
        device.exchange(tx, device.alloc(2), 1.0)
    assert not isinstance(caught.value, FpgaTimeoutError)


def test_dma_that_stays_in_reset_is_a_timeout(board: fake_pynq.Board, bit: Path) -> None:
    """Without a clock nothing answers."""
    board.stuck = True
    with pytest.raises(FpgaTimeoutError, match="reset of the DMA"):
        PynqDevice(bit)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"id": 0xA11C0001}, "0xa11c0001"),
        ({"abi": 2}, "ABI"),
        ({"address": 0xA0020000}, "another design"),
    ],
)
def test_another_engine_is_refused(
    board: fake_pynq.Board, bit: Path, change: dict[str, int], text: str
) -> None:
    """Before anything is written to it."""
    vars(board).update(change)
    with pytest.raises(FpgaError, match=text):
        PynqDevice(bit)


@pytest.mark.parametrize(
    ("design", "text"),
    [
        ({"part": "7z020clg400"}, "different designs"),
        ({"part": "7z020clg400", "device": "xc7z020"}, "a bitstream for `xczu7ev`"),
        ({"sg": 1}, "simple mode"),
        ({"engine": "adder"}, "one `copal_engine`"),
    ],
)
def test_files_that_do_not_fit_are_refused(
    board: fake_pynq.Board, tmp_path: Path, design: dict[str, Any], text: str
) -> None:
    """The library would load them and the system might hang."""
    with pytest.raises(FpgaError, match=text):
        PynqDevice(fake_pynq.write_design(tmp_path, **design))


@pytest.mark.parametrize("suffix", [".bit", ".hwh"])
def test_missing_file_is_named(board: fake_pynq.Board, bit: Path, suffix: str) -> None:
    """Both are needed."""
    bit.with_suffix(suffix).unlink()
    with pytest.raises(FpgaError, match=r"both `copal.bit` and `copal.hwh`"):
        PynqDevice(bit)


@pytest.mark.parametrize("content", [b"", b"\xff" * 200, b"\0\x09" + b"\0" * 9])
def test_file_that_is_no_bitstream_is_refused(
    board: fake_pynq.Board, bit: Path, content: bytes
) -> None:
    """Its header is looked for."""
    bit.write_bytes(content)
    with pytest.raises(FpgaError, match="a bitstream with a header"):
        PynqDevice(bit)


def test_metadata_that_are_no_xml_are_refused(board: fake_pynq.Board, bit: Path) -> None:
    """A cut copy for instance."""
    bit.with_suffix(".hwh").write_text("<a>")
    with pytest.raises(FpgaError, match="XML"):
        PynqDevice(bit)


def test_manifest_is_compared(board: fake_pynq.Board, bit: Path) -> None:
    """A file that was changed after its build is refused; without an entry nothing is compared."""
    manifest = bit.parent / "manifest.json"
    manifest.write_text(json.dumps({"bitstreams": []}))
    assert PynqDevice(bit).clock_mhz is None
    files = {
        f"boards/zcu104/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (bit, bit.with_suffix(".hwh"))
    }
    manifest.write_text(json.dumps({"bitstreams": [{"files": files, "clock_mhz": 150.0}]}))
    assert PynqDevice(bit).clock_mhz == 150.0
    bit.write_bytes(bit.read_bytes() + b"\0")
    with pytest.raises(FpgaError, match="SHA-256"):
        PynqDevice(bit)


def test_reasons_for_no_board(
    board: fake_pynq.Board, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each says what to do."""
    assert pynq_device.unavailable() is None
    board.devices.clear()
    assert "PYNQ_REMOTE_DEVICES" in str(pynq_device.unavailable())
    monkeypatch.setattr(pynq_device, "_MANAGER", tmp_path)
    monkeypatch.delenv("XILINX_XRT", raising=False)
    assert "export XILINX_XRT=/usr" in str(pynq_device.unavailable())
    monkeypatch.setenv("XILINX_XRT", "/usr")
    monkeypatch.setattr(pynq_device.os, "geteuid", lambda: 1000)
    assert "sudo -E" in str(pynq_device.unavailable())
    monkeypatch.setattr(pynq_device, "NUMPY_MAJOR", 2)
    assert "numpy<2" in str(pynq_device.unavailable())
    monkeypatch.delitem(sys.modules, "pynq")
    assert "not installed" in str(pynq_device.unavailable())
    with pytest.raises(BackendUnavailableError, match="not installed"):
        PynqDevice(tmp_path / "copal.bit")


def test_bitstream_is_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is shipped: without the variable the error tells how to build one."""
    monkeypatch.delenv(pynq_device.BITSTREAM, raising=False)
    with pytest.raises(BackendUnavailableError, match="copal build"):
        pynq_device.bitstream()
    monkeypatch.setenv(pynq_device.BITSTREAM, "/x/copal.bit")
    assert pynq_device.bitstream() == Path("/x/copal.bit")


def test_board_is_found_or_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name in pynq's spelling."""
    monkeypatch.setenv("BOARD", "Pynq-Z2")
    assert boards.present() == "pynq-z2"
    monkeypatch.setenv("BOARD", "AUP-ZU3")
    assert boards.present() is None
    with pytest.raises(UnknownNameError, match="zcu104"):
        boards.get("zcu102")


def test_length_width_defaults_to_that_of_the_dma(bit: Path) -> None:
    """Metadata may leave it out."""
    hwh = bit.with_suffix(".hwh")
    hwh.write_text(hwh.read_text().replace("c_sg_length_width", "c_other"))
    assert overlay.inspect(bit).length_bits == 14
