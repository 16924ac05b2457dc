# SPDX-License-Identifier: MIT
"""A bitstream and its metadata, looked at before anything is written to a board.

No tool between here and the board compares them: a bitstream for another part, or metadata of
another design, would be loaded, and the first access to an address that is not there stops the
whole system on a chip.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from copal.errors import FpgaError

ENGINE = "copal_engine"
"""Name of the engine's top module, as the metadata has it."""
DMA = "axi_dma"
MANIFEST = "manifest.json"
DEFAULT_LENGTH_BITS = 14
"""Bits of the length of a transfer where the metadata does not tell: the DMA's own default."""


@dataclass(frozen=True)
class Overlay:
    """What the files of one overlay say."""

    bit: Path
    """The bitstream; its metadata lies beside it, with the suffix `.hwh`."""
    bit_part: str
    """Part in the bitstream's header, `xczu7ev-ffvc1156-2-e` for instance."""
    device: str
    """Device in the metadata, `xczu7ev` for instance."""
    engine: str
    """Path of the engine in the design, `engine` for instance."""
    dma: str
    """Path of its DMA."""
    addresses: dict[str, int]
    """Instance name to base address of its registers."""
    length_bits: int
    """Bits of the DMA's length register: a transfer has fewer than 2^length_bits bytes."""


def inspect(bit: Path) -> Overlay:
    """Reads both files of an overlay and checks that they go together.

    Raises:
        FpgaError: A file is missing or malformed, the design has no engine or no DMA in simple
            mode, or the two files are for different parts.
    """
    hwh = bit.with_suffix(".hwh")
    for path in (bit, hwh):
        if not path.is_file():
            raise FpgaError(
                path.name,
                f"both `{bit.name}` and `{hwh.name}` in `{bit.parent}`",
                "no such file",
                "copy the pair that Vivado wrote, under one name",
            )
    part = bit_part(bit)
    try:
        root = ET.parse(hwh).getroot()
    except ET.ParseError as e:
        raise FpgaError(hwh.name, "XML as Vivado writes it", str(e)) from e
    system = root.find("SYSTEMINFO")
    device = "" if system is None else system.get("DEVICE", "")
    if not _same(part, device):
        raise FpgaError(
            hwh.name, f"metadata of part `{part}`, as in `{bit.name}`", f"`{device}`",
            "the two files are of different designs: copy them together",
        )  # fmt: skip
    dma = _module(root, DMA, hwh.name)
    parameters = {p.get("NAME", "").lower(): p.get("VALUE", "") for p in dma.iter("PARAMETER")}
    if parameters.get("c_include_sg", "0") != "0":
        raise FpgaError(DMA, "simple mode (`c_include_sg` 0)", "scatter-gather mode")
    return Overlay(
        bit=bit,
        bit_part=part,
        device=device,
        engine=_path(_module(root, ENGINE, hwh.name)),
        dma=_path(dma),
        addresses={
            m.get("INSTANCE", ""): int(m.get("BASEVALUE", "0"), 0) for m in root.iter("MEMRANGE")
        },
        length_bits=int(parameters.get("c_sg_length_width", DEFAULT_LENGTH_BITS)),
    )


def bit_part(bit: Path) -> str:
    """The part in the header of a bitstream, in the format that Vivado has kept since ISE.

    Raises:
        FpgaError: The header is another one.
    """
    with bit.open("rb") as file:
        data = file.read(4096)
    try:
        at = 2 + struct.unpack_from(">H", data)[0] + 2
        while True:
            key, size = struct.unpack_from(">cH", data, at)
            at += 3
            if key not in (b"a", b"b", b"c", b"d"):
                break
            if key == b"b":
                return data[at : at + size].rstrip(b"\0").decode("ascii")
            at += size
    except (struct.error, UnicodeDecodeError):
        pass
    raise FpgaError(bit.name, "a bitstream with a header", "another file")


def check_part(overlay: Overlay, device: str, board: str) -> None:
    """Refuses a bitstream of another board.

    Args:
        overlay: The files.
        device: Device of the board, `xczu7ev` for instance.
        board: Its name.

    Raises:
        FpgaError: It is for another part.
    """
    if not _same(overlay.bit_part, device):
        raise FpgaError(
            overlay.bit.name,
            f"a bitstream for `{device}`, the device of board {board}",
            f"one for `{overlay.bit_part}`",
            f"`copal build --board {board} --stage bitstream` makes one",
        )


def check_manifest(overlay: Overlay, manifest: Path | None = None) -> dict[str, Any] | None:
    """Compares the files with what was recorded when they were built.

    Args:
        overlay: The files.
        manifest: The record; None: `manifest.json` beside the bitstream or one folder above.

    Returns:
        The bitstream's entry; None if there is no manifest or it does not list the bitstream.

    Raises:
        FpgaError: A file is not the one that was recorded.
    """
    folder = overlay.bit.parent
    places = [folder / MANIFEST, folder.parent / MANIFEST] if manifest is None else [manifest]
    path = next((p for p in places if p.is_file()), None)
    if path is None:
        return None
    entries = json.loads(path.read_text()).get("bitstreams", [])
    for entry in entries:
        files = {Path(name).name: digest for name, digest in entry.get("files", {}).items()}
        if overlay.bit.name not in files:
            continue
        for file in (overlay.bit, overlay.bit.with_suffix(".hwh")):
            found = hashlib.sha256(file.read_bytes()).hexdigest()
            if files.get(file.name) != found:
                raise FpgaError(
                    file.name,
                    f"SHA-256 {files.get(file.name)}, as in `{path}`",
                    found,
                    "the file was changed or copied badly: copy it again, or build it again",
                )
        return dict(entry)
    return None


def _module(root: ET.Element, kind: str, where: str) -> ET.Element:
    found = [m for m in root.iter("MODULE") if m.get("MODTYPE") == kind]
    if len(found) != 1:
        raise FpgaError(
            where, f"one `{kind}` in the design", str(len(found)),
            "use a design that `copal build --stage project` made",
        )  # fmt: skip
    return found[0]


def _path(module: ET.Element) -> str:
    return module.get("FULLNAME", module.get("INSTANCE", "")).strip("/")


def _same(part: str, device: str) -> bool:
    """Whether `part` is a variant of `device`; only some tools write the leading `xc`."""
    plain = device.lower().removeprefix("xc")
    return bool(plain) and part.lower().removeprefix("xc").startswith(plain)
