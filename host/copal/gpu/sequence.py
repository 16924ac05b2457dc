# SPDX-License-Identifier: MIT
"""Which kernels an update starts, in which order, with which of two copies of the state.

Everything that an update changes has two places. An update reads the newest copy and writes the
other one, so that one that fails has changed nothing: the old copy is still the newest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from copal.gpu.device import Argument, DeviceBuffer, Launch, Pointer
from copal.gpu.plan import FLOAT_BYTES, REDUCE_THREADS, GpuPlan, PhasePlan
from copal.program import Target, Update

Key = tuple[str, str]
"""What a pair of copies holds, and of which network."""
CLOCK: Key = ("updates", "")
"""The number of the update, two words."""
NORM_BYTES = 8 * REDUCE_THREADS // 32
"""Shared memory in which the warps of a block add up a norm."""


@dataclass
class Versions:
    """The copies of the state, and which of them is the newest."""

    pairs: Mapping[Key, tuple[DeviceBuffer, DeviceBuffer]]
    """Both copies."""
    newest: dict[Key, int]
    """Which is the newest: 0 or 1."""
    _changed: set[Key] = field(default_factory=set)

    def old(self, key: Key) -> Pointer:
        """The copy as it was before this update."""
        return Pointer(self.pairs[key][self.newest[key]])

    def now(self, key: Key) -> Pointer:
        """The copy as it is within this update."""
        return Pointer(self.pairs[key][self.newest[key] ^ (key in self._changed)])

    def next(self, key: Key) -> Pointer:
        """Where a change goes."""
        self._changed.add(key)
        return self.now(key)

    def end_update(self) -> None:
        """What has been changed is the newest."""
        for key in self._changed:
            self.newest[key] ^= 1
        self._changed.clear()

    def copy(self) -> Versions:
        """The same, to build a sequence with."""
        return Versions(self.pairs, dict(self.newest))


@dataclass(frozen=True)
class Buffers:
    """Memory beside the state."""

    batch: DeviceBuffer
    """The number of the launch in the first `HEAD_BYTES`, then batches."""
    results: DeviceBuffer
    """A word a kernel, then TD errors of each update."""
    outputs: DeviceBuffer
    """Of each update."""
    shares: DeviceBuffer
    """Of the phase that runs."""
    mean: DeviceBuffer
    """The gradient, where it is clipped."""
    norms: DeviceBuffer
    """Parts of its squared norm."""
    workspace: DeviceBuffer
    """Row buffers beyond shared memory."""
    seeds: DeviceBuffer
    """Two words an agent."""
    settings: DeviceBuffer
    """Learning rates, then averaging rates, of each agent."""


HEAD_BYTES = 256
"""Alignment of what follows."""


def fusable(update: Update, number: int) -> tuple[int, ...]:
    """Targets that the reduce step of phase `number` averages itself.

    Nothing later may read the target, train its source again, or follow either.
    """
    phases = update.phases
    return tuple(
        t
        for t, target in enumerate(update.targets)
        if target.source == phases[number].program.gradient
        and not any(_touches(update, later, target) for later in range(number + 1, len(phases)))
        and not any(p.program.gradient == target.target for p in phases)
        and not any(
            target.target in (o.source, o.target) for i, o in enumerate(update.targets) if i != t
        )
    )


def _touches(update: Update, phase: int, target: Target) -> bool:
    program = update.phases[phase].program
    reads = {n.name for n in program.networks}
    return target.target in reads or program.gradient == target.source


def active_phases(update: Update, number: int) -> tuple[int, ...]:
    """Phases that run in update `number`, from 0."""
    return tuple(i for i, p in enumerate(update.phases) if (number + 1) % p.every == 0)


def due_targets(update: Update, number: int) -> tuple[int, ...]:
    """Targets that are averaged in update `number`, from 0."""
    return tuple(i for i, t in enumerate(update.targets) if (number + 1) % t.every == 0)


@dataclass(frozen=True)
class Sequence:
    """Kernels of one or more updates."""

    launches: tuple[Launch, ...]
    """In order."""
    owners: tuple[tuple[int, int], ...]
    """Update, from 0, and phase of each kernel; phase -1: averaging."""
    newest: tuple[dict[Key, int], ...]
    """Newest copies of the state after each update."""


class Sequencer:
    """Builds sequences.

    Args:
        plan: The Update.
        buffers: Memory beside the state.
        words: Words in `results` before the TD errors.
    """

    def __init__(self, plan: GpuPlan, buffers: Buffers, words: int) -> None:
        self._plan, self._buffers, self._words = plan, buffers, words
        self._launches: list[Launch] = []
        self._owners: list[tuple[int, int]] = []

    def updates(self, versions: Versions, first: int, count: int, given: int) -> Sequence:
        """The kernels of `count` updates.

        Args:
            versions: The state; it is not changed.
            first: Number of the first update.
            count: How many.
            given: Bits of noise streams that the batch has.
        """
        self._launches, self._owners = [], []
        versions, newest = versions.copy(), []
        for k in range(count):
            self._update(versions, first + k, k, given)
            versions.end_update()
            newest.append(dict(versions.newest))
        return Sequence(tuple(self._launches), tuple(self._owners), tuple(newest))

    def gradient(self, versions: Versions, number: int, given: int) -> Sequence:
        """The kernels that leave the mean gradient of one phase in `mean`."""
        self._launches, self._owners = [], []
        phase = self._plan.phases[number]
        self._gradient(versions.copy(), phase, 0, given, first=True)
        self._sum(phase, 0)
        return Sequence(tuple(self._launches), tuple(self._owners), ())

    def _update(self, versions: Versions, number: int, k: int, given: int) -> None:
        active = [self._plan.phases[p] for p in active_phases(self._plan.update, number)]
        due = set(due_targets(self._plan.update, number))
        for phase in active:
            self._gradient(versions, phase, k, given, first=phase is active[0])
            if phase.phase.max_grad_norm is not None:
                self._sum(phase, k)
            due -= self._reduce(versions, phase, k, due)
        for t in sorted(due):
            self._average(versions, t, k)

    def _add(
        self,
        owner: tuple[int, int],
        kernel: str,
        blocks: int,
        threads: int,
        shared_bytes: int,
        arguments: Iterator[Argument],
    ) -> None:
        head = (
            Pointer(self._buffers.batch),
            Pointer(self._buffers.results),
            len(self._launches),
        )
        grid = (blocks, self._plan.agents)
        launch = Launch(kernel, grid, threads, shared_bytes, (*head, *arguments))
        self._launches.append(launch)
        self._owners.append(owner)

    def _gradient(
        self, versions: Versions, phase: PhasePlan, k: int, given: int, *, first: bool
    ) -> None:
        plan, b = self._plan, self._buffers
        outputs = k * plan.agents * plan.output_floats
        td = Pointer(b.outputs, FLOAT_BYTES * (outputs + phase.outputs["td_error"]))
        if first:
            td = Pointer(b.results, self.td_offset(k))

        def arguments() -> Iterator[Argument]:
            yield Pointer(b.batch, self.batch_offset(k))
            yield given
            yield td
            yield plan.batch_size if first else plan.output_floats
            yield Pointer(b.outputs, FLOAT_BYTES * outputs)
            yield Pointer(b.shares)
            yield Pointer(b.workspace)
            yield Pointer(b.seeds)
            yield int(first)
            yield versions.old(CLOCK)
            yield versions.next(CLOCK)
            yield versions.now(("powers", phase.network))
            yield versions.next(("powers", phase.network))
            for network in phase.program.networks:
                yield versions.now(("parameters", network.name))

        self._add(
            (k, phase.number),
            f"gradient_{phase.number}",
            plan.shares.count,
            plan.threads,
            FLOAT_BYTES * phase.placement.shared_floats,
            arguments(),
        )

    def _sum(self, phase: PhasePlan, k: int) -> None:
        b = self._buffers
        arguments = (Pointer(b.shares), Pointer(b.mean), Pointer(b.norms))
        blocks = self._plan.reduce_blocks(phase.network)
        name = f"sum_{phase.number}"
        self._add((k, phase.number), name, blocks, REDUCE_THREADS, NORM_BYTES, iter(arguments))

    def _reduce(self, versions: Versions, phase: PhasePlan, k: int, due: set[int]) -> set[int]:
        """Returns the targets that it averages."""
        b, network = self._buffers, phase.network
        targets = fusable(self._plan.update, phase.number)
        averaged = due & set(targets)

        def arguments() -> Iterator[Argument]:
            yield Pointer(b.shares if phase.phase.max_grad_norm is None else b.mean)
            yield Pointer(b.norms)
            yield versions.now(("powers", network))
            yield Pointer(b.settings)
            for what in ("parameters", "first", "second"):
                yield versions.now((what, network))
                yield versions.next((what, network))
            yield sum(1 << t for t in averaged)
            for t in targets:
                key = ("parameters", self._plan.update.targets[t].target)
                yield versions.now(key)
                yield versions.next(key) if t in averaged else versions.now(key)

        blocks = self._plan.reduce_blocks(network)
        name = f"reduce_{phase.number}"
        self._add((k, phase.number), name, blocks, REDUCE_THREADS, 0, arguments())
        return averaged

    def _average(self, versions: Versions, t: int, k: int) -> None:
        target = self._plan.update.targets[t]
        key = ("parameters", target.target)
        arguments = (
            Pointer(self._buffers.settings),
            versions.now(("parameters", target.source)),
            versions.now(key),
            versions.next(key),
        )
        blocks = self._plan.reduce_blocks(target.source)
        self._add((k, -1), f"average_{t}", blocks, REDUCE_THREADS, 0, iter(arguments))

    def batch_offset(self, k: int) -> int:
        """First byte of the batches of the k-th update."""
        return HEAD_BYTES + FLOAT_BYTES * k * self._plan.agents * self._plan.batch_floats

    def td_offset(self, k: int) -> int:
        """First byte of the TD errors of the k-th update."""
        return FLOAT_BYTES * (self._words + k * self._plan.agents * self._plan.batch_size)
