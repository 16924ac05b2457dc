# SPDX-License-Identifier: MIT
"""Orders instructions so that few of them wait, and sets fences where one has to.

A list schedule (Graham 1969): of the instructions whose predecessors are issued, take one that need
not wait, else the one with the longest way to the end; a fence lets everything in flight finish.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from copal.fpga.compiler.draft import Draft, Span
from copal.fpga.config import EngineConfig
from copal.fpga.isa import Instruction, Op
from copal.fpga.model.timing import slots


@dataclass(frozen=True)
class Step:
    """An instruction as the schedule sees it."""

    draft: Draft
    """What it reads and writes."""
    slots: int
    """Cycles in which it issues."""


@dataclass
class Clock:
    """The cycle at which instructions start, and what is still in flight."""

    config: EngineConfig
    """Of the engine."""
    now: int = 0
    """Cycle of the next slot."""
    flying: list[tuple[Step, int]] = field(default_factory=list)
    """Issued instructions, and the cycle from which their results can be read."""

    def start(self, step: Step) -> int:
        """First cycle at which nothing in flight is in the way of `step`."""
        times = [done for other, done in self.flying if _conflict(other.draft, step.draft)]
        return max(times, default=self.now)

    def wait(self) -> None:
        """A fence."""
        self.now = max([self.now, *(done for _, done in self.flying)])
        self.flying.clear()

    def issue(self, step: Step) -> None:
        """The slots; the cycle to fetch is not relied upon."""
        self.now += step.slots
        done = self.now + self.config.fence(step.draft.op.name)
        self.flying = [(s, t) for s, t in self.flying if t > self.now]
        self.flying.append((step, done))


def steps(
    drafts: Sequence[Draft], instructions: Sequence[Instruction], config: EngineConfig
) -> list[Step]:
    """Drafts with the slots of their instructions."""
    pairs = zip(drafts, instructions, strict=True)
    return [Step(draft, slots(ins, config)) for draft, ins in pairs]


def order(found: Sequence[Step], config: EngineConfig) -> list[int]:
    """The numbers of the instructions in the order to issue them.

    Cost: O(n^2) for n instructions at worst, those that are ready times those that are left.
    """
    before, after = _edges([s.draft for s in found])
    urgency = _urgency(found, after, config)
    clock, ordered = Clock(config), list[int]()
    missing = [len(b) for b in before]
    ready = [i for i, n in enumerate(missing) if n == 0]
    while ready:
        free = [i for i in ready if clock.start(found[i]) <= clock.now]
        if not free:
            clock.wait()
            continue
        chosen = max(free, key=lambda i: (urgency[i], -i))
        clock.issue(found[chosen])
        ready.remove(chosen)
        ordered.append(chosen)
        for i in after[chosen]:
            missing[i] -= 1
            if missing[i] == 0:
                ready.append(i)
    return ordered


def fences(found: Sequence[Step], config: EngineConfig) -> list[int]:
    """The fence of each instruction in this order."""
    clock, set_ = Clock(config), [0] * len(found)
    for i, step in enumerate(found):
        if clock.start(step) > clock.now:
            set_[i - 1] = 1
            clock.wait()
        clock.issue(step)
    if found:
        set_[-1] = 1
    return set_


def _conflict(earlier: Draft, later: Draft) -> bool:
    """Whether `later` has to wait for the results of `earlier`."""
    if earlier.op != later.op and _ports(earlier) & _ports(later):
        return True
    return any(w.overlaps(r) for w in earlier.writes for r in later.reads)


def _ports(draft: Draft) -> set[str]:
    """What writes through: two units must not use one at once."""
    ports = set()
    if draft.op in (Op.PRODUCT, Op.QUANT, Op.UPDATE):
        ports.add("post")
    if draft.op in (Op.VECTOR, Op.NORM, Op.BROADCAST) or draft.fields.get("to_v"):
        ports.add("V")
    return ports


def _edges(drafts: Sequence[Draft]) -> tuple[list[set[int]], list[set[int]]]:
    """Predecessors and successors of each: reads after writes, writes after both."""
    before: list[set[int]] = [set() for _ in drafts]
    reads: dict[int, list[tuple[int, Span]]] = defaultdict(list)
    writes: dict[int, list[tuple[int, Span]]] = defaultdict(list)
    for i, draft in enumerate(drafts):
        for span in draft.reads:
            before[i] |= _overlapping(writes[id(span.tensor)], span)
        for span in draft.writes:
            key = id(span.tensor)
            before[i] |= _overlapping(writes[key], span) | _overlapping(reads[key], span)
        for span in draft.reads:
            reads[id(span.tensor)].append((i, span))
        for span in draft.writes:
            writes[id(span.tensor)].append((i, span))
        before[i].discard(i)
    after: list[set[int]] = [set() for _ in drafts]
    for i, found in enumerate(before):
        for j in found:
            after[j].add(i)
    return before, after


def _overlapping(accesses: Iterable[tuple[int, Span]], span: Span) -> set[int]:
    return {i for i, other in accesses if other.overlaps(span)}


def _urgency(found: Sequence[Step], after: Sequence[set[int]], config: EngineConfig) -> list[int]:
    """Cycles from the start of each instruction to the end of the last one that needs it."""
    urgency = [0] * len(found)
    for i in reversed(range(len(found))):
        step = found[i]
        rest = max((urgency[j] for j in after[i]), default=0)
        urgency[i] = step.slots + config.fence(step.draft.op.name) + rest
    return urgency
