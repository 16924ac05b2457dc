# SPDX-License-Identifier: MIT
"""Gives tensors their addresses: those that are never needed at once share words.

First fit in the order of first use (Poletto and Sarkar 1999, linear scan). Instructions issue in
order and write after they read, so the words of a tensor are free behind its last reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from copal.fpga.compiler.draft import Draft, Tensor

SPACES = ("V", "A", "B", "MASK")
"""Memories that tensors are placed in."""


@dataclass
class Space:
    """One memory."""

    start: int = 0
    """First word that may be given."""
    taken: list[tuple[int, int, Tensor]] = field(default_factory=list)
    """Word ranges in use, first and behind the last, in order."""
    peak: int = 0
    """Words used, counted from word 0."""


def allocate(
    drafts: Sequence[Draft], kept: Iterable[Tensor], starts: Mapping[str, int]
) -> dict[str, int]:
    """Sets the address of every tensor that has none.

    Args:
        drafts: In the order in which they issue.
        kept: Tensors that are needed behind the last instruction.
        starts: First free word of each of `SPACES`.

    Returns:
        Words used of each memory.
    """
    spaces = {name: Space(starts.get(name, 0), peak=starts.get(name, 0)) for name in SPACES}
    last = _last_uses(drafts)
    forever = {id(t) for t in kept}
    live: list[Tensor] = []
    for i, draft in enumerate(drafts):
        for span in (*draft.writes, *draft.reads):
            tensor = span.tensor
            if tensor.address is None and tensor.spaces <= set(SPACES):
                _place(tensor, [spaces[s] for s in sorted(tensor.spaces)])
                live.append(tensor)
        ended = [t for t in live if last[id(t)] <= i and id(t) not in forever]
        for tensor in ended:
            live.remove(tensor)
            for name in tensor.spaces:
                spaces[name].taken = [x for x in spaces[name].taken if x[2] is not tensor]
    return {name: space.peak for name, space in spaces.items()}


def _last_uses(drafts: Sequence[Draft]) -> dict[int, int]:
    last: dict[int, int] = {}
    for i, draft in enumerate(drafts):
        for span in (*draft.writes, *draft.reads):
            last[id(span.tensor)] = i
    return last


def _place(tensor: Tensor, spaces: Sequence[Space]) -> None:
    """The lowest address that is free in all memories of the tensor."""
    starts = {s.start for s in spaces}
    ends = {end for s in spaces for _, end, _ in s.taken}
    least = max(starts)
    for address in sorted({least} | {e for e in ends if e >= least}):
        stop = address + tensor.words
        if all(stop <= a or b <= address for s in spaces for a, b, _ in s.taken):
            tensor.address = address
            break
    for s in spaces:
        assert tensor.address is not None
        s.taken.append((tensor.address, tensor.address + tensor.words, tensor))
        s.peak = max(s.peak, tensor.address + tensor.words)
