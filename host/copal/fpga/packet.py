# SPDX-License-Identifier: MIT
"""Packets of the stream: commands put together once, sent again and again with new data.

A `Script` collects commands. `Script.ready` lays them out in buffers of the device, in as many
packets as its transfers need; loads and dumps that are too long are cut at words.

    tx: | LOAD K | data | LOAD V | data | RUN | DUMP STATUS | DUMP V | ... | DUMP STATUS, last |
    rx:                                       | 4 beats     | data   | ... | 4 beats           |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.errors import FpgaError, FpgaTimeoutError
from copal.fpga.config import EngineConfig
from copal.fpga.device import Beats, FpgaDevice
from copal.fpga.isa import STATUS_BEATS, Command, ErrorCode, Memory, beats_a_word, header

_MARGIN_BEATS = 2 + STATUS_BEATS
"""Of a packet beside a load or a dump: its header, the final status."""


@dataclass(frozen=True)
class Status:
    """What the engine says about its last RUN."""

    code: ErrorCode
    """Why it ended early."""
    pc: int
    """Instruction of the error."""
    cycles: int
    """Cycles of the RUN."""
    slots: int
    """Slots in which the array multiplied."""
    runs: int
    """RUNs since the reset."""

    @classmethod
    def of(cls, beats: Beats) -> Status:
        """Reads the four beats of STATUS."""
        word, cycles, slots, runs = (int(x) for x in beats)
        return cls(ErrorCode(word & 255), word >> 16 & 0xFFFF, cycles, slots, runs)


@dataclass(eq=False)
class Field:
    """Data of one command, in one or several packets."""

    pieces: list[Beats] = field(default_factory=list)
    """Views into the buffers, in order."""

    def put(self, data: NDArray[Any]) -> None:
        """Writes what the next exchange loads, whose bytes are `data`."""
        beats = data.reshape(-1).view(np.uint64)
        if len(self.pieces) == 1:
            self.pieces[0][:] = beats
            return
        start = 0
        for piece in self.pieces:
            piece[:] = beats[start : start + piece.size]
            start += piece.size

    def take(self) -> Beats:
        """What the last exchange dumped; a copy."""
        return np.concatenate(self.pieces) if len(self.pieces) != 1 else self.pieces[0].copy()


@dataclass
class _Item:
    """One command before it is laid out."""

    command: Command
    memory: Memory
    address: int
    words: int
    place: Field


class Script:
    """Commands of one exchange, in order.

    Args:
        config: Of the engine.
    """

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._items: list[_Item] = []

    def load(self, memory: Memory, address: int, words: int) -> Field:
        """Loads `words` words; the data are put into the field."""
        return self._add(Command.LOAD, memory, address, words)

    def dump(self, memory: Memory, address: int, words: int) -> Field:
        """Dumps `words` words."""
        return self._add(Command.DUMP, memory, address, words)

    def run(self, pc: int, *, accumulate: bool = False) -> Field:
        """Runs the microcode at `pc`; the field has its status."""
        self._add(Command.RUN, Memory.CODE, pc, int(accumulate))
        return self._add(Command.DUMP, Memory.STATUS, 0, 1)

    def _add(self, command: Command, memory: Memory, address: int, words: int) -> Field:
        place = Field()
        self._items.append(_Item(command, memory, address, words, place))
        return place

    def ready(self, device: FpgaDevice) -> Exchange:
        """Lays the commands out in buffers of `device`.

        Raises:
            FpgaError: There is no memory for them.
        """
        limit = device.max_transfer // 8
        packets, packet = [], _Packet(limit)
        for item in self._items:
            for part in self._parts(item, limit):
                if not packet.fits(part, self._beats(part)):
                    packets.append(packet)
                    packet = _Packet(limit)
                packet.add(part, self._beats(part))
        packets.append(packet)
        return Exchange(device, [p.lay_out(device) for p in packets])

    def _beats(self, item: _Item) -> int:
        if item.command == Command.RUN:
            return 0
        return item.words * beats_a_word(item.memory, self._config.array_size)

    def _parts(self, item: _Item, limit: int) -> list[_Item]:
        size = beats_a_word(item.memory, self._config.array_size)
        most = (limit - _MARGIN_BEATS) // size
        if item.command == Command.RUN or item.words <= most:
            return [item]
        return [
            _Item(item.command, item.memory, item.address + start,
                  min(most, item.words - start), item.place)
            for start in range(0, item.words, most)
        ]  # fmt: skip


class _Packet:
    """One packet before its buffers are there."""

    def __init__(self, limit: int) -> None:
        self._limit, self._sent, self._answered = limit, 1, STATUS_BEATS
        self._items: list[tuple[_Item, int]] = []

    def fits(self, item: _Item, beats: int) -> bool:
        """Whether there is room for one more command, whose data take `beats`."""
        sent = 1 + (beats if item.command == Command.LOAD else 0)
        answered = beats if item.command == Command.DUMP else 0
        return self._sent + sent <= self._limit and self._answered + answered <= self._limit

    def add(self, item: _Item, beats: int) -> None:
        """Appends a command."""
        self._sent += 1 + (beats if item.command == Command.LOAD else 0)
        self._answered += beats if item.command == Command.DUMP else 0
        self._items.append((item, beats))

    def lay_out(self, device: FpgaDevice) -> _Laid:
        """Writes the headers into a buffer of the device."""
        tx, rx = device.alloc(self._sent), device.alloc(self._answered)
        at = answered = 0
        for item, beats in self._items:
            tx[at] = header(item.command, item.memory, item.address, item.words)
            at += 1
            if item.command == Command.LOAD:
                item.place.pieces.append(tx[at : at + beats])
                at += beats
            elif item.command == Command.DUMP:
                item.place.pieces.append(rx[answered : answered + beats])
                answered += beats
        tx[at] = header(Command.DUMP, Memory.STATUS, 0, 1, last=True)
        return _Laid(tx, rx)


@dataclass
class _Laid:
    """A packet in its buffers."""

    tx: Beats
    rx: Beats


class Exchange:
    """A script in the buffers of a device, ready to be sent any number of times.

    Attributes:
        bytes_sent: Of one exchange.
        bytes_received: Of one exchange.
    """

    def __init__(self, device: FpgaDevice, packets: list[_Laid]) -> None:
        self._device, self._packets = device, packets
        self.bytes_sent = sum(p.tx.nbytes for p in packets)
        self.bytes_received = sum(p.rx.nbytes for p in packets)

    def send(self, what: str, timeout_s: float) -> Status:
        """Sends the packets, up to the first one with an error.

        Args:
            what: Names the exchange in errors.
            timeout_s: Limit for each packet.

        Returns:
            The status after the last packet that was sent.

        Raises:
            FpgaError: The answer has another length.
            FpgaTimeoutError: The device stopped answering; it has been reset.
        """
        for i, packet in enumerate(self._packets):
            name = what if len(self._packets) == 1 else f"{what}, packet {i + 1}"
            received = self._exchange(packet, name, timeout_s)
            if received != packet.rx.size:
                raise FpgaError(name, f"an answer of {packet.rx.size} beats", str(received))
            status = Status.of(packet.rx[-STATUS_BEATS:])
            if status.code != ErrorCode.NONE:
                break
        return status

    def _exchange(self, packet: _Laid, name: str, timeout_s: float) -> int:
        try:
            return self._device.exchange(packet.tx, packet.rx, timeout_s)
        except FpgaTimeoutError as e:
            expected = f"an answer of {packet.rx.size} beats within {timeout_s:g} s"
            raise FpgaTimeoutError(
                f"transfer `{name}`", expected, f"{e.field}: {e.got}",
                "the engine has been reset; check clock, power and bitstream",
            ) from e  # fmt: skip
