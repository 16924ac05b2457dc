# SPDX-License-Identifier: MIT
"""What the GPU backend's kernels do, counted: `python -m copal.bench.gpu_counts`.

Prints a Markdown table for the algorithms and sizes of docs/gpu.md. Nothing runs on a GPU.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from copal.bench.learner_build import build
from copal.gpu.counts import H100, count
from copal.gpu.plan import plan

_HEAD = (
    "| algorithm | hidden | batch | kernels | blocks, each phase | shared memory, KiB "
    "| MFLOP | L2 traffic, MB | at least, us |"
)


def rows(algos: Sequence[str], hidden: Sequence[int], batch_sizes: Sequence[int]) -> Iterator[str]:
    """Lines of the table.

    Args:
        algos: Names of algorithms.
        hidden: Width of two hidden layers.
        batch_sizes: Rows of a batch.
    """
    yield _HEAD
    yield "|" + " --- |" * _HEAD.count("| ")
    for algo in algos:
        for width in hidden:
            update = build(algo, (width, width)).update
            for batch_size in batch_sizes:
                phases = count(plan(update, batch_size))
                shared = ", ".join(f"{p.shared_bytes / 1024:.0f}" for p in phases)
                traffic = sum(p.gradient_bytes + p.reduce_bytes for p in phases)
                yield (
                    f"| {algo} | {width}-{width} | {batch_size} "
                    f"| {sum(p.kernels for p in phases)} | {phases[0].blocks} | {shared} "
                    f"| {sum(p.flops for p in phases) / 1e6:.0f} | {traffic / 1e6:.1f} "
                    f"| {1e6 * sum(p.floor_s(H100) for p in phases):.1f} |"
                )


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table.

    Args:
        arguments: Of the command line; None: this process's.
    """
    parser = argparse.ArgumentParser(prog="python -m copal.bench.gpu_counts")
    parser.add_argument("--algos", nargs="+", default=["dqn", "double-dqn", "ddpg", "td3", "sac"])
    parser.add_argument("--hidden", nargs="+", type=int, default=[256])
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[256])
    given = parser.parse_args(arguments)
    sys.stdout.writelines(f"{row}\n" for row in rows(given.algos, given.hidden, given.batch_sizes))


if __name__ == "__main__":
    main()
