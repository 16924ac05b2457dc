# SPDX-License-Identifier: MIT
"""Runs an Update on a GPU device: batches in, TD errors out, one graph a launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copal.errors import ConfigError, LearnerFailedError
from copal.gpu import memory
from copal.gpu.device import GpuDevice, GpuEvent, GpuGraph, Pointer
from copal.gpu.diagnose import diagnose, unexplained
from copal.gpu.memory import StateIO
from copal.gpu.plan import FLOAT_BYTES, GpuPlan
from copal.gpu.sequence import HEAD_BYTES, Sequencer, active_phases, due_targets
from copal.gpu.sequence import Sequence as Kernels
from copal.gpu.source import unit
from copal.gpu.staging import BatchWriter, Slot

Array = NDArray[Any]
Batch = Mapping[str, Array]
_SLOTS = 2
"""Host buffers: one is filled while the other one's update runs."""


@dataclass(frozen=True)
class Submitted:
    """Updates that have been started."""

    kernels: Kernels
    """What runs."""
    slot: Slot
    """Its host buffers."""
    given: int
    """Noise streams that the batches have."""
    number: int
    """Of the launch."""
    event: GpuEvent
    """Its end."""


class GpuLearner:
    """An Update on a device, for one or more agents, one or more updates a launch.

    Not for several threads at once.

    Args:
        device: Runs the kernels; closed with this object.
        plan: What runs.
        updates: Most updates of one launch.
        seeds: Keys of the agents' noise; None: the Update's own for each.

    Attributes:
        plan: What runs.
        updates: Updates done.
        optimiser_steps: Trained network to Adam steps taken.

    Raises:
        BackendUnavailableError: There is no compiler.
        GpuCompileError: The kernels do not compile.
        GpuMemoryError: The device has not enough memory.
    """

    def __init__(
        self,
        device: GpuDevice,
        plan: GpuPlan,
        *,
        updates: int = 1,
        seeds: Sequence[int] | None = None,
    ) -> None:
        if updates < 1:
            raise ConfigError("updates", "at least 1", str(updates))
        self._device, self.plan, self._most = device, plan, updates
        device.load(unit(plan))
        self._buffers = memory.buffers(device, plan, updates)
        self._state = memory.versions(device, plan)
        self._io = StateIO(device, plan, self._state)
        self._writer = BatchWriter(plan)
        self._words = memory.words(plan, updates)
        self._sequencer = Sequencer(plan, self._buffers, self._words)
        td = self._words + updates * plan.agents * plan.batch_size
        self._slots = [
            Slot(device.pinned(self._buffers.batch.nbytes), device.pinned(FLOAT_BYTES * td))
            for _ in range(_SLOTS)
        ]
        self._graphs: dict[tuple[Any, ...], tuple[GpuGraph, Kernels]] = {}
        self._running: Submitted | None = None
        self._done: Submitted | None = None
        self._number = 0
        self.updates = 0
        self.optimiser_steps = dict.fromkeys(plan.update.trained(), 0)
        self._set(seeds if seeds is not None else (plan.update.seed,) * plan.agents)

    def _set(self, seeds: Sequence[int]) -> None:
        if len(seeds) != self.plan.agents:
            raise ConfigError("seeds", f"{self.plan.agents}, one an agent", str(len(seeds)))
        keys = np.array([(s & 0xFFFFFFFF, s >> 32) for s in seeds], np.uint32)
        update = self.plan.update
        rates = [p.optimiser.learning_rate for p in update.phases]
        rates += [t.tau for t in update.targets]
        values = np.array([rates] * self.plan.agents, np.float32)
        self._device.upload(Pointer(self._buffers.seeds), keys)
        self._device.upload(Pointer(self._buffers.settings), values)
        self._device.mark().wait()

    # State

    def load(
        self,
        agent: int,
        parameters: Mapping[str, Array],
        first: Mapping[str, Array],
        second: Mapping[str, Array],
        optimiser_steps: Mapping[str, int],
        updates: int,
    ) -> None:
        """Puts an agent's state on the device; all agents count the same updates.

        Args:
            agent: Whose.
            parameters: Network to flat vector, targets included.
            first: First moments of trained networks.
            second: Second moments.
            optimiser_steps: Adam steps taken of each.
            updates: Updates done.

        Raises:
            SchemaError: A vector is missing or has the wrong size; nothing is changed.
        """
        self._finish()
        trained = self.plan.update.trained()
        groups = (
            ("parameters", parameters, tuple(self.plan.layouts)),
            ("first", first, trained),
            ("second", second, trained),
        )
        for what, vectors, names in groups:
            self._io.check(what, vectors, names)
        for what, vectors, names in groups:
            for name in names:
                self._io.write(what, name, agent, vectors[name])
        for name in trained:
            self._io.write_powers(name, agent, optimiser_steps[name])
            self.optimiser_steps[name] = optimiser_steps[name]
        self._io.write_updates(updates)
        self.updates = updates

    def begin(self, parameters: Mapping[str, Array], agent: int = 0) -> None:
        """Puts an agent at its first update, with zero moments.

        Args:
            parameters: Network to flat vector, targets included.
            agent: Whose.

        Raises:
            SchemaError: A vector is missing or has the wrong size; nothing is changed.
        """
        trained = self.plan.update.trained()
        zeros = {n: np.zeros(self.plan.layouts[n].size, np.float32) for n in trained}
        self.load(agent, parameters, zeros, zeros, dict.fromkeys(trained, 0), 0)

    def vector(self, what: str, network: str, agent: int = 0) -> NDArray[np.float32]:
        """A copy of a flat vector.

        Args:
            what: `parameters`, `first` or `second`.
            network: Its name.
            agent: Whose.
        """
        self._finish()
        return self._io.read(what, network, agent)

    # Updates

    def run(self, batches: Sequence[Sequence[Batch]]) -> NDArray[np.float32]:
        """Runs updates in one launch.

        Args:
            batches: A batch for each update and agent, [update][agent].

        Returns:
            TD errors of the first phase, float32 [updates, agents, B].

        Raises:
            SchemaError: A column is missing or has another shape; nothing is changed.
            LearnerFailedError: A value became NaN or infinite; the state is that before its update.
            GpuError: The device failed.
        """
        self.submit(batches)
        return self.collect()

    def submit(self, batches: Sequence[Sequence[Batch]]) -> None:
        """Starts updates; the batches are copied while those submitted before still run.

        Args:
            batches: As `run` takes them.

        Raises:
            As `run`, also for what was submitted before.
        """
        if not 1 <= len(batches) <= self._most:
            raise ConfigError("batches", f"1 to {self._most} updates", str(len(batches)))
        slot = self._slots[(self._number + 1) % _SLOTS]
        given = self._fill(slot, batches)
        self._finish()
        used = HEAD_BYTES + FLOAT_BYTES * memory.batch_floats(self.plan, len(batches))
        self._start(slot, len(batches), given, lambda k: self._enqueue(slot, k, used))

    def collect(self) -> NDArray[np.float32]:
        """TD errors of the newest launch, float32 [updates, agents, B].

        Raises:
            As `run`.
        """
        self._finish()
        return self.finished()

    def finished(self) -> NDArray[np.float32]:
        """TD errors of the newest launch that has been waited for, float32 [updates, agents, B]."""
        assert self._done is not None, "nothing was submitted"
        shape = (len(self._done.kernels.newest), self.plan.agents, self.plan.batch_size)
        td = self._done.slot.download.view(np.float32)[self._words :]
        return td[: shape[0] * shape[1] * shape[2]].reshape(shape).copy()

    def gradient(
        self, batches: Sequence[Batch], phase: int = 0
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """What one phase would see; changes nothing.

        Args:
            batches: One an agent.
            phase: Its position.

        Returns:
            Gradients of the mean loss, float32 [agents, size]; TD errors and losses, float32
            [agents, B].

        Raises:
            SchemaError: A column is missing or has another shape.
            LearnerFailedError: A value is NaN or infinite.
        """
        self._finish()
        slot = self._slots[(self._number + 1) % _SLOTS]
        given = self._fill(slot, [batches])
        self._number += 1
        slot.start(self._number)
        kernels = self._sequencer.gradient(self._state, phase, given)
        self._enqueue(slot, kernels, slot.upload.nbytes)
        plan, planned = self.plan, self.plan.phases[phase]
        layout = plan.layouts[planned.network]
        mean = np.empty((plan.agents, layout.padded), np.float32)
        self._device.download(mean, Pointer(self._buffers.mean))
        outputs = self._outputs(0)
        if self._failed(slot, kernels, self._number) is not None:
            launch = Submitted(kernels, slot, given, self._number, self._device.mark())
            raise self._failure(launch, 0, phase)
        td = slot.download.view(np.float32)[self._words :][: plan.agents * plan.batch_size]
        at = planned.outputs["loss"]
        losses = outputs[:, at : at + plan.batch_size].copy()
        return mean[:, layout.index], td.reshape(plan.agents, -1).copy(), losses

    def outputs(self, agent: int = 0) -> dict[tuple[int, str], NDArray[np.float32]]:
        """Outputs of the newest update but TD errors, float32 [B, width] by phase and role.

        Of an update that is running, too: this waits for it, but it says nothing of a failure.
        """
        launch = self._running or self._done
        if launch is None:
            return {}
        count = len(launch.kernels.newest)
        flat = self._outputs(count - 1)[agent]
        found: dict[tuple[int, str], NDArray[np.float32]] = {}
        newest = self.updates - 1 + (count if self._running else 0)
        for number in active_phases(self.plan.update, newest):
            planned = self.plan.phases[number]
            widths = {b.name: b.width for b in planned.program.buffers()}
            for role, at in planned.outputs.items():
                if role != "td_error":
                    shape = (self.plan.batch_size, widths[planned.program.outputs[role]])
                    found[number, role] = flat[at : at + shape[0] * shape[1]].reshape(shape)
        return found

    def close(self) -> None:
        """Frees the device. More calls are harmless."""
        self._device.close()

    # Launches

    def _fill(self, slot: Slot, batches: Sequence[Sequence[Batch]]) -> int:
        """Writes batches into a slot; returns which noise they have."""
        agents = self.plan.agents
        given = {self._writer.given(batch) for of_update in batches for batch in of_update}
        if any(len(of_update) != agents for of_update in batches) or len(given) != 1:
            raise ConfigError("batches", f"{agents} an update, all with the same columns", "others")
        for k, of_update in enumerate(batches):
            for agent, batch in enumerate(of_update):
                to = slot.batch(k * agents + agent, self.plan.batch_floats)
                self._writer.write(batch, to)
        return given.pop()

    def _start(
        self, slot: Slot, count: int, given: int, record: Callable[[Kernels], None], kind: str = ""
    ) -> None:
        """Starts a launch by its graph, which is captured the first time.

        Args:
            slot: Its host buffers.
            count: Updates.
            given: Noise streams that the batches have.
            record: Enqueues everything around and with the kernels.
            kind: Tells graphs of another `record` apart.
        """
        self._number += 1
        slot.start(self._number)
        update, numbers = self.plan.update, range(self.updates, self.updates + count)
        patterns = tuple((active_phases(update, n), due_targets(update, n)) for n in numbers)
        newest = tuple(self._state.newest.values())
        key = (kind, self._slots.index(slot), given, patterns, newest)
        if key not in self._graphs:
            kernels = self._sequencer.updates(self._state, self.updates, count, given)
            self._graphs[key] = (self._device.capture(lambda: record(kernels)), kernels)
        graph, kernels = self._graphs[key]
        graph.replay()
        self._running = Submitted(kernels, slot, given, self._number, self._device.mark())

    def _enqueue(self, slot: Slot, kernels: Kernels, nbytes: int) -> None:
        self._device.upload(Pointer(self._buffers.batch), slot.upload[:nbytes])
        self._device.launch(kernels.launches)
        self._device.download(slot.download, Pointer(self._buffers.results))

    def _outputs(self, k: int) -> NDArray[np.float32]:
        """Outputs of the k-th update of the newest launch, float32 [agents, output_floats]."""
        outputs = np.empty((self.plan.agents, self.plan.output_floats), np.float32)
        self._device.download(outputs, Pointer(self._buffers.outputs, k * outputs.nbytes))
        self._device.mark().wait()
        return outputs

    def _finish(self) -> None:
        """Waits for what runs and takes its state for the newest one.

        Raises:
            LearnerFailedError: It has failed; updates before the failed one count.
        """
        launch, self._running = self._running, None
        if launch is None:
            return
        launch.event.wait()
        failed = self._failed(launch.slot, launch.kernels, launch.number)
        good = len(launch.kernels.newest) if failed is None else failed[0]
        for k in range(good):
            for number in active_phases(self.plan.update, self.updates):
                self.optimiser_steps[self.plan.phases[number].network] += 1
            self._state.newest.update(launch.kernels.newest[k])
            self.updates += 1
        if failed is not None:
            raise self._failure(launch, *failed)
        self._done = launch

    def _failed(self, slot: Slot, kernels: Kernels, number: int) -> tuple[int, int] | None:
        """Update and phase of the first kernel that met a number that is not finite."""
        words = slot.download.view(np.int32)[1 : 1 + len(kernels.owners)]
        found = np.flatnonzero(words == number)
        return kernels.owners[found[0]] if found.size else None

    def _failure(self, launch: Submitted, k: int, phase: int) -> LearnerFailedError:
        """The error of the k-th update of a launch, whose state is still the newest."""
        update = self.plan.update
        for agent in range(self.plan.agents):
            part = launch.slot.batch(k * self.plan.agents + agent, self.plan.batch_floats)
            batch = self._writer.read(part, launch.given)
            read = {
                what: {n: self._io.read(what, n, agent) for n in names}
                for what, names in (
                    ("parameters", tuple(self.plan.layouts)),
                    ("first", update.trained()),
                    ("second", update.trained()),
                )
            }
            error = diagnose(
                update,
                self.updates,
                max(phase, 0),
                batch,
                read["parameters"],
                read["first"],
                read["second"],
                self.optimiser_steps,
            )
            if error is not None:
                return error
        return unexplained(update, self.updates, max(phase, 0))
