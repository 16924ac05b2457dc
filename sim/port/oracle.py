# SPDX-License-Identifier: MIT
"""What the stream port does with a packet, in plain Python; and random packets, good and bad."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from copal.fpga.config import EngineConfig
from copal.fpga.isa import Command, ErrorCode, Memory, header

LOADED = (Memory.CODE, Memory.V, Memory.W, Memory.T, Memory.M, Memory.S, Memory.K)
Beat = tuple[Memory, int, int]


@dataclass
class Expected:
    """What one packet has to bring about."""

    loads: list[tuple[Beat, int]] = field(default_factory=list)
    """Beats that the core gets: memory, word, beat; data."""
    reads: list[Beat] = field(default_factory=list)
    """Beats that the core is asked for."""
    runs: list[tuple[int, int]] = field(default_factory=list)
    """pc and accumulate."""
    answer: list[Beat | str | int] = field(default_factory=list)
    """Beats of the answer: asked of the core, the name of a count, or a number."""
    lasts: list[int] = field(default_factory=list)
    """Positions in the answer that have TLAST."""
    error: int = 0
    """Error code at the end of the packet."""
    pc: int = 0
    """The pc that goes with it."""


class Oracle:
    """Reads packets as docs/hardware.md has it."""

    def __init__(self, config: EngineConfig) -> None:
        d, p = config.depths, config.array_size
        words, half = d.parameters, p // 2
        self.shape: dict[Memory, tuple[int, int]] = {
            Memory.CODE: (d.code, 5), Memory.V: (d.vector, half), Memory.W: (words, half),
            Memory.T: (words, half), Memory.M: (words, half), Memory.S: (words, half),
            Memory.G: (words, half), Memory.GB: (d.bias, half), Memory.K: (32, 1),
            Memory.RANGE: (d.range, 1), Memory.A: (d.a, half), Memory.B: (d.b, half),
            Memory.BIAS: (d.bias, p), Memory.STATUS: (1, 4),
        }  # fmt: skip
        self.code = d.code

    def read(self, beats: list[int], errors: dict[int, int]) -> Expected:
        """What the packet `beats` does; a RUN of pc in `errors` ends with that code."""
        out, at = Expected(), 0
        while at < len(beats):
            head, at = beats[at], at + 1
            command, memory = head & 255, head >> 8 & 127
            last, address, count = head >> 15 & 1, head >> 16 & 0xFFFFFF, head >> 40
            if command not in (1, 2, 3) or not self._reaches(command, memory):
                out.error = out.error or ErrorCode.COMMAND
                return out
            if command == Command.RUN:
                self._run(out, address, count & 1, errors)
                continue
            words, width = self.shape[Memory(memory)]
            beyond = address + count > words
            if beyond and not out.error:
                out.error = ErrorCode.ADDRESS
            places = [(Memory(memory), address + w, b) for w in range(count) for b in range(width)]
            if command == Command.DUMP:
                self._dump(out, places, beyond)
                if last and places:
                    out.lasts.append(len(out.answer) - 1)
                continue
            data = beats[at : at + len(places)]
            at += len(places)
            if not out.error and (data or not places):
                out.loads += zip(places, data, strict=False)
            if len(data) < len(places) and not out.error:
                out.error = ErrorCode.TRUNCATED
        return out

    def _reaches(self, command: int, memory: int) -> bool:
        if command == Command.RUN:
            return True
        if command == Command.LOAD:
            return memory in LOADED
        return memory in self.shape and memory != Memory.CODE

    def _run(self, out: Expected, pc: int, accumulate: int, errors: dict[int, int]) -> None:
        if out.error:
            return
        if pc >= self.code:
            out.error, out.pc = ErrorCode.ADDRESS, pc & 0xFFFF
            return
        out.runs.append((pc, accumulate))
        if errors.get(pc, 0):
            out.error, out.pc = errors[pc], pc + 1

    def _dump(self, out: Expected, places: list[Beat], beyond: bool) -> None:
        if beyond:
            out.answer += [0] * len(places)
        elif places and places[0][0] == Memory.STATUS:
            out.answer += [out.error | out.pc << 16, "cycles", "slots", "runs"]
        else:
            out.reads += places
            out.answer += places


def packet(oracle: Oracle, rng: random.Random, size: int, bad: float) -> list[int]:
    """Beats of a random packet of about `size` commands; with probability `bad` malformed."""
    beats: list[int] = []
    for _ in range(rng.randint(1, size)):
        command = rng.choice(list(Command))
        if command == Command.RUN:
            beats.append(
                header(command, address=rng.randrange(oracle.code), count=rng.getrandbits(1))
            )
            continue
        choices = LOADED if command == Command.LOAD else tuple(oracle.shape)[1:]
        memory = rng.choice(choices)
        words, width = oracle.shape[memory]
        count = rng.randint(0, min(words, rng.choice((1, 2, 40))))
        address = rng.randint(0, words - count)
        if rng.random() < bad / 4:
            address = words - count + rng.randint(1, 1 << 20)
        last = command == Command.DUMP and rng.random() < 0.5
        beats.append(header(command, memory, address, count, last=last))
        if command == Command.LOAD:
            beats += [rng.getrandbits(64) for _ in range(count * width)]
    if rng.random() < bad:
        spoil(beats, rng)
    return beats


def spoil(beats: list[int], rng: random.Random) -> None:
    """Damages a packet: random bits, a beat too few or too many."""
    kind, at = rng.randrange(3), rng.randrange(len(beats))
    if kind == 0:
        beats[at] ^= 1 << rng.randrange(40)
    elif kind == 1 and len(beats) > 1:
        del beats[at]
    else:
        beats.insert(at, rng.getrandbits(40))
