# SPDX-License-Identifier: MIT
"""Runs an Update on an engine: one exchange an update, exponents that follow the numbers.

Parameters, targets and moments live on the engine as float32. The exponents, and what they are
chosen from, are the only other state; `notes` has them, so that a resumed run makes the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.errors import FpgaError, LearnerFailedError, SchemaError
from copal.fpga import registers, selftest
from copal.fpga.compiler.exponents import ExponentFollower, calibrate
from copal.fpga.compiler.plan import Plan, Run
from copal.fpga.device import FpgaDevice
from copal.fpga.exchanges import Outcome, UpdateExchange
from copal.fpga.headroom import Headroom
from copal.fpga.isa import ErrorCode, Memory
from copal.fpga.memories import EngineMemories, Vectors
from copal.fpga.report import EngineReport
from copal.program import reference
from copal.program.diagnosis import Finding, failure, find
from copal.program.noise import with_noise

TIMEOUT_S = {"sim": 600.0, "model": 600.0, "pynq": 5.0}
"""Limit of a transfer by device; the simulator stops by its own count of cycles before."""
_LOW = np.uint64(0xFFFFFFFF)


class EngineDriver:
    """An engine with an Update on it.

    Args:
        device: The engine; it is checked, and tested with known vectors.
        plan: The Update, compiled for this engine.
        clock_mhz: Clock for the report.
        timeout_s: Limit of each transfer; None: that of the device.

    Attributes:
        plan: What runs.
        updates: Updates done.
        optimiser_steps: Trained network to Adam steps taken.
        losses: Mean of the newest `loss` by phase.
        report: Sums over all updates.
        timeout_s: Limit of each transfer.

    Raises:
        FpgaError: The device is no engine that this driver knows, is built otherwise than the plan
            expects, or computes wrongly.
        FpgaTimeoutError: The device does not answer.
    """

    def __init__(
        self,
        device: FpgaDevice,
        plan: Plan,
        *,
        clock_mhz: float,
        timeout_s: float | None = None,
    ) -> None:
        self._device, self.plan = device, plan
        self.timeout_s = TIMEOUT_S[device.name] if timeout_s is None else timeout_s
        registers.check_id(device)
        registers.check_config(device, plan.config)
        selftest.check(device)
        self._memories = EngineMemories(device, plan, self.timeout_s)
        self._exchanges: dict[tuple[Any, ...], tuple[UpdateExchange, NDArray[np.int64]]] = {}
        self._follower: ExponentFollower | None = None
        self._headroom = Headroom(plan)
        self._stale_code = self._stale_copies = True
        self.updates = 0
        self.optimiser_steps = dict.fromkeys(plan.update.trained(), 0)
        self.losses: dict[int, float] = {}
        self.report = EngineReport(
            [_people(name, plan) for name in plan.scales],
            lanes=plan.config.lanes,
            clock_mhz=clock_mhz,
            simulated=device.name != "pynq",
        )

    def load(
        self,
        parameters: Vectors,
        first_moment: Vectors,
        second_moment: Vectors,
        optimiser_steps: Mapping[str, int],
        updates: int,
        notes: Mapping[str, Any],
    ) -> None:
        """Puts a whole state on the engine.

        Args:
            parameters: Network to flat float32 vector, targets included.
            first_moment: The same of trained networks.
            second_moment: The same.
            optimiser_steps: Adam steps taken of each.
            updates: Updates done.
            notes: Of `notes`; others, or none, have the exponents chosen by the next batch.

        Raises:
            SchemaError: A vector is missing or has the wrong size; nothing is changed.
        """
        layout, trained = self.plan.layout, self.plan.update.trained()
        for field, vectors, names in (
            ("parameters", parameters, tuple(layout.sizes)),
            ("first_moment", first_moment, trained),
            ("second_moment", second_moment, trained),
        ):
            for name in names:
                shape = np.shape(vectors[name]) if name in vectors else None
                if shape != (layout.sizes[name],):
                    expected = f"float32 [{layout.sizes[name]}]"
                    got = "none" if shape is None else f"shape {shape}"
                    raise SchemaError(f"{field}[{name!r}]", expected, got)
        in_target = {n: v for n, v in parameters.items() if n in layout.sources}
        in_weights = {n: v for n, v in parameters.items() if n not in layout.sources}
        self._memories.load(Memory.W, {n: in_weights[n] for n in layout.sizes if n in in_weights})
        self._memories.load(Memory.T, {n: in_target[n] for n in layout.sizes if n in in_target})
        self._memories.load(Memory.M, {n: first_moment[n] for n in trained})
        self._memories.load(Memory.S, {n: second_moment[n] for n in trained})
        self.updates, self.optimiser_steps = updates, {n: optimiser_steps[n] for n in trained}
        self._follower = _restored(self.plan, notes)
        self._stale_code = self._stale_copies = True

    def parameters(self, networks: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """Flat vectors of networks, read back from the engine."""
        targets = [n for n in networks if self.plan.layout.in_target(n)]
        others = [n for n in networks if n not in targets]
        found = self._memories.dump(Memory.W, others) if others else {}
        return found | (self._memories.dump(Memory.T, targets) if targets else {})

    def moments(self) -> tuple[dict[str, NDArray[np.float32]], dict[str, NDArray[np.float32]]]:
        """First and second moments of the trained networks, read back from the engine."""
        trained = self.plan.update.trained()
        return self._memories.dump(Memory.M, trained), self._memories.dump(Memory.S, trained)

    def notes(self) -> dict[str, Any]:
        """What `load` needs to go on with the same bits, as JSON values."""
        if self._follower is None:
            return {}
        f = self._follower
        rows = zip(f.exponents, f.saturated, f.least_unused, f.seen, strict=True)
        kept = {
            name: [int(v) for v in row] for name, row in zip(self.plan.scales, rows, strict=True)
        }
        return {"bits": _bits(self.plan), "exponents": kept}

    def step(self, batch: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Runs one update.

        Args:
            batch: As a learner takes it: a column for each input, with B rows.

        Returns:
            TD errors of the first phase, float32 [B].

        Raises:
            SchemaError: A column is missing or has another shape; nothing is changed.
            LearnerFailedError: A value became NaN or infinite.
            FpgaError: The engine reports an error.
            FpgaTimeoutError: The device stopped answering; it has been reset.
        """
        batch = with_noise(self.plan.update, batch, self.updates)
        runs = self.plan.runs(self.updates)
        phases = tuple(dict.fromkeys(r.phase for r in runs if r.phase is not None))
        columns = _columns(self.plan, phases, batch)
        self._check_inputs(phases, columns)
        calibrated = self._follower is not None
        self._prepare(columns)
        exchange, values = self._exchange(runs, phases)
        scalars, steps = self._scalars(runs)
        outcome = exchange.run(columns, scalars, self.timeout_s)
        self.report.count_bytes(exchange.bytes_sent, exchange.bytes_received)
        if outcome.failed is not None:
            if not calibrated:
                self._follower = None
            raise self._error(runs, outcome, columns)
        self._count(outcome, values)
        self.updates, self.optimiser_steps = self.updates + 1, steps
        td_error = outcome.outputs[phases[0], "td_error"]
        if not np.isfinite(td_error).all():
            raise self._failure(phases[0], columns, 0, changed=True)
        return td_error

    def close(self) -> None:
        """Frees the device. More calls are harmless."""
        self._device.close()

    def _prepare(self, columns: Mapping[str, NDArray[np.float32]]) -> None:
        """Brings code and integer copies up to date with the exponents."""
        if self._follower is None:
            parameters = self.parameters(tuple(self.plan.layout.sizes))
            exponents = calibrate(self.plan, parameters, columns, self.updates)
            self._follower = ExponentFollower(self.plan, exponents)
        changed, stale = self._headroom.make(self._follower, columns)
        self._stale_code |= changed
        self._stale_copies |= stale
        sent, received = self._memories.bytes_sent, self._memories.bytes_received
        if self._stale_code:
            self._memories.load_code(self.plan.encode(self._follower.exponents))
            self._stale_code = False
        if self._stale_copies:
            self._memories.refresh()
            self._stale_copies = False
        self.report.count_bytes(
            self._memories.bytes_sent - sent, self._memories.bytes_received - received
        )

    def _exchange(
        self, runs: Sequence[Run], phases: Sequence[int]
    ) -> tuple[UpdateExchange, NDArray[np.int64]]:
        """The packets of these RUNs, and how many integers of each tensor they make."""
        key = tuple((run.entry.pc, run.accumulate) for run in runs)
        if key not in self._exchanges:
            exchange = UpdateExchange(self._device, self.plan, runs)
            self._exchanges[key] = (exchange, _values(self.plan, phases))
        return self._exchanges[key]

    def _scalars(
        self, runs: Sequence[Run]
    ) -> tuple[dict[int, NDArray[np.float32]], dict[str, int]]:
        """Scalars by set, and the optimiser steps after the update."""
        steps, scalars = dict(self.optimiser_steps), {}
        for run in runs:
            if run.scalars is None:
                continue
            if run.phase is not None:
                network = self.plan.phases[run.phase].network
                steps[network] += 1
                scalars[run.scalars] = self.plan.scalars(run.scalars, steps[network])
            elif run.scalars not in scalars:
                scalars[run.scalars] = self.plan.scalars(run.scalars, 1)
        return scalars, steps

    def _count(self, outcome: Outcome, values: NDArray[np.int64]) -> None:
        assert self._follower is not None
        changed, stale = self._follower.follow(outcome.ranges)
        self._stale_code |= changed
        self._stale_copies |= stale
        saturated = np.zeros(len(values), np.int64)
        for entries in outcome.ranges:
            saturated += (entries & _LOW).astype(np.int64)
        cycles, slots = (
            sum(getattr(s, name) for s in outcome.statuses) for name in ("cycles", "slots")
        )
        self.report.count_update(cycles, slots, values, saturated)
        for (phase, role), numbers in outcome.outputs.items():
            if role == "loss":
                self.losses[phase] = float(numbers.mean(dtype=np.float64))

    def _check_inputs(
        self, phases: Sequence[int], columns: Mapping[str, NDArray[np.float32]]
    ) -> None:
        """Fails before anything is sent if a bad number of the batch reaches a result."""
        if all(np.isfinite(column).all() for column in columns.values()):
            return
        parameters = self.parameters(tuple(self.plan.layout.sizes))
        for number in phases:
            program = self.plan.update.phases[number].program
            result = reference.run(program, parameters, columns, np.float32)
            bad = [v for v in result.outputs.values() if not np.isfinite(v).all()]
            assert result.gradient is not None
            if bad or not np.isfinite(result.gradient).all():
                raise self._failure(number, columns, 0)

    def _error(
        self,
        runs: Sequence[Run],
        outcome: Outcome,
        columns: Mapping[str, NDArray[np.float32]],
    ) -> LearnerFailedError | FpgaError:
        assert outcome.failed is not None
        run, status = runs[outcome.failed], outcome.statuses[outcome.failed]
        instructions = self.plan.instructions
        note = instructions[status.pc].note if status.pc < len(instructions) else ""
        if status.code == ErrorCode.NOT_FINITE and run.phase is not None:
            changed = any(r.scalars is not None for r in runs[: outcome.failed])
            return self._failure(run.phase, columns, status.pc, changed=changed)
        self._stale_code = True
        return FpgaError(
            f"instruction {status.pc} ({note or 'end'}) of {run.entry.name}",
            "no error", f"error {int(status.code)}, {status.code.name}",
            "the engine and this version of copal do not agree: run `copal simulate`",
        )  # fmt: skip

    def _failure(
        self,
        number: int,
        columns: Mapping[str, NDArray[np.float32]],
        pc: int,
        *,
        changed: bool = False,
    ) -> LearnerFailedError:
        """What went wrong in a phase, by running it here.

        Args:
            number: Of the phase.
            columns: The batch.
            pc: Instruction that met the number.
            changed: Whether the engine has already stepped in this update.
        """
        update = self.plan.update
        phase = update.phases[number]
        parameters = self.parameters(tuple(self.plan.layout.sizes))
        result = reference.run(phase.program, parameters, columns, np.float32)
        found = find(phase.program, parameters, result.buffers, result.gradient)
        here = [*result.outputs.values(), result.gradient]
        if all(np.isfinite(v).all() for v in here if v is not None):
            found = Finding(f"{self.plan.instructions[pc].note}, on the engine alone")
        error = failure(update, phase, self.updates, found)
        if not changed:
            return error
        hint = error.hint.replace("the parameters are as before", "steps were taken in")
        told = LearnerFailedError(error.field, error.expected, error.got, hint)
        told.rows = error.rows
        return told


def _people(scale: str, plan: Plan) -> str:
    """An exponent's name for people: the tensor and the program that it is in."""
    phase, colon, name = scale.partition(":")
    if colon and phase.isdigit():
        return f"`{name}` in {plan.phases[int(phase)].name}"
    return f"`{scale}`"


def _columns(
    plan: Plan, phases: Sequence[int], batch: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[np.float32]]:
    """The columns that phases read, float32 [B, width]."""
    columns: dict[str, NDArray[np.float32]] = {}
    for column in (c for i in phases for c in plan.phases[i].inputs):
        if column.name in columns:
            continue
        if column.name not in batch:
            raise SchemaError(column.name, "a column of this name", ", ".join(batch))
        given = np.asarray(batch[column.name], np.float32)
        rows = given[:, None] if given.ndim == 1 else given
        if rows.shape != (plan.batch_size, column.width):
            expected = f"shape [{plan.batch_size}, {column.width}]"
            raise SchemaError(column.name, expected, f"shape {given.shape}")
        columns[column.name] = rows
    return columns


def _values(plan: Plan, phases: Sequence[int]) -> NDArray[np.int64]:
    """Integers of each exponent that an update with these phases makes, [scales]."""
    widths = {(i, b.name): b.width for i in phases for b in plan.update.phases[i].program.buffers()}
    trained = {plan.phases[i].network for i in phases}
    trained |= {t.target for t in plan.update.targets if t.source in trained}
    counts = []
    for info in plan.scales.values():
        count = 0
        for s in info.samples:
            if s.what == "buffer":
                count += widths.get((s.phase, s.name), 0) * plan.batch_size
            elif s.what == "parameters":
                count += s.size if s.name in trained else 0
            else:
                count += s.size if s.phase in phases else 0
        counts.append(count)
    return np.array(counts, np.int64)


def _bits(plan: Plan) -> list[int]:
    """Bits of the operands in A and B, which exponents go with."""
    return [plan.config.a_bits, plan.config.b_bits]


def _restored(plan: Plan, notes: Mapping[str, Any]) -> ExponentFollower | None:
    """The exponents of a state that was made with the same tensors, else None."""
    kept = notes.get("exponents", {})
    if notes.get("bits") != _bits(plan) or list(kept) != list(plan.scales):
        return None
    rows = np.array(list(kept.values()), np.int64).T
    follower = ExponentFollower(plan, rows[0])
    follower.saturated, follower.least_unused, follower.seen = (r.copy() for r in rows[1:])
    return follower
