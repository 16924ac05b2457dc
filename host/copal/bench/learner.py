# SPDX-License-Identifier: MIT
"""Times one learner update, and acting, beside PyTorch and NumPy in the same run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from copal.algorithms.base import Built
from copal.backends.base import LearnerState
from copal.backends.cpu import CpuLearner
from copal.bench import learner_numpy, learner_torch
from copal.bench.learner_build import build, random_batch, update_flops
from copal.native import native

__all__ = ["build", "interleaved", "policy_rows", "rows"]

_BLOCK_S = 0.03
# Threads of PyTorch and of NumPy's library spin for a while after their work, on a core that the
# next implementation needs.
_IDLE_S = 0.3

Row = dict[str, Any]
Call = Callable[[], object]


def rows(
    built: Built,
    batch_size: int = 64,
    threads: int = 1,
    rounds: int = 7,
    *,
    compiled: bool = True,
) -> list[Row]:
    """Times one update of each implementation, in turn, `rounds` times.

    `torch-eager-fused` and `torch-compile` run the algorithm's own losses; they start from tensors
    and clip nothing. `cleanrl-style` is SAC as a user writes it by hand, with fewer forward passes.
    `numpy` interprets the captured Program in float32; `gemm-bound` is the sum of the update's
    bare dense products, the fastest of own kernels, Eigen and NumPy for each, divided by
    `threads`. Every one of them draws its noise anew in each update.

    Args:
        built: The algorithm.
        batch_size: Rows of a batch.
        threads: Learner threads of copal, and threads of PyTorch.
        rounds: Measurements of each; figures are medians and minima over them.
        compiled: Measure torch.compile, which takes a minute to compile.

    Returns:
        For each `name`: `us` and `us_min` microseconds an update, `gflops` billions of
        floating-point operations a second in dense products; or `absent` with the reason.
    """
    batch = random_batch(built, batch_size)
    state = LearnerState.initial(built.update, built.parameters)
    cpu = CpuLearner(built.update, state, batch_size=batch_size, learners=threads)
    calls: dict[str, Call] = {"copal-cpu": lambda: cpu.step(batch)}
    absent: list[Row] = []
    with learner_torch.threads(threads):
        calls["torch-eager-fused"] = learner_torch.Updater(built, batch)
        if built.update.name == "sac":
            calls["cleanrl-style"] = learner_torch.sac_by_hand(built, batch)
        if compiled:
            try:
                calls["torch-compile"] = learner_torch.compiled_updater(built, batch)
            except Exception as error:  # noqa: BLE001  a broken tool chain is a row, not a crash
                reason = str(error).strip().splitlines() or [type(error).__name__]
                absent.append({"name": "torch-compile", "absent": reason[0][:200]})
        calls["numpy"] = learner_numpy.Updater(built, batch)
        measured = interleaved(calls, rounds, pause_s=_IDLE_S if threads > 1 else 0.0)
    bound = learner_numpy.bound_us(built.update, batch_size, rounds)
    measured["gemm-bound"] = [us / threads for us in bound]
    flops = update_flops(built, batch_size)
    return [_row(name, us, flops) for name, us in measured.items()] + absent


def policy_rows(
    built: Built, batch_sizes: Sequence[int] = (1, 8, 64), rounds: int = 7
) -> list[Row]:
    """Times acting with the newest weights: observations in, actions out.

    Greedy actions, or random ones where the policy draws them (SAC), as an actor does.

    Returns:
        For each `name` (`copal-policy`, `torch-policy`) and `n` observations a call: `us`,
        `us_min` and `gflops` as in `rows`.
    """
    forward = built.update.policy
    policy = native.Policy(forward.to_dict())
    store = native.WeightStore(policy.size)
    store.publish(np.concatenate([built.parameters[n.name] for n in forward.networks]), 0)
    width = next(b.width for b in forward.inputs if b.name == "obs")
    result = []
    with learner_torch.threads(1):
        for n in batch_sizes:
            obs = np.random.default_rng(n).standard_normal((n, width)).astype(np.float32)
            calls = {
                "copal-policy": _act(built, policy, store, obs),
                "torch-policy": learner_torch.actor(built, obs),
            }
            flops = forward.flops_per_row() * n
            measured = interleaved(calls, rounds)
            result += [{**_row(name, us, flops), "n": n} for name, us in measured.items()]
    return result


def _act(built: Built, policy: Any, store: Any, obs: Any) -> Call:
    shape, dtype = built.columns["action"]
    actions = np.zeros((len(obs), *shape), dtype)
    noise = next((b for b in built.update.policy.inputs if b.name == "noise"), None)
    if noise is None:
        return lambda: policy.act_into(store, obs, actions)
    rng, size = np.random.default_rng(0), (len(obs), noise.width)

    def act() -> None:
        drawn = rng.standard_normal(size, np.float32)
        policy.act_into(store, obs, actions, role="sample", noise=drawn)

    return act


def interleaved(
    calls: dict[str, Call], rounds: int, pause_s: float = 0.0
) -> dict[str, list[float]]:
    """Microseconds a call, `rounds` figures for each, measured in turn so that noise is shared.

    Args:
        calls: What to time, by name.
        rounds: Figures of each.
        pause_s: Seconds between two figures.
    """
    repeats = {}
    for name, call in calls.items():
        call()
        started = time.perf_counter()
        call()
        repeats[name] = max(1, int(_BLOCK_S / max(time.perf_counter() - started, 1e-7)))
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            time.sleep(pause_s)
            for _ in range(repeats[name]):  # until the scheduler has spread the threads
                call()
            started = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            found[name].append((time.perf_counter() - started) / repeats[name] * 1e6)
    return found


def _row(name: str, us: Sequence[float], flops: float) -> Row:
    median = statistics.median(us)
    return {"name": name, "us": median, "us_min": min(us), "gflops": flops / median * 1e-3}
