# SPDX-License-Identifier: MIT
"""Times one learner update, and acting, beside PyTorch and NumPy in the same run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from copal import algorithms
from copal.algorithms.base import Built
from copal.backends.base import LearnerState
from copal.backends.cpu import CpuLearner
from copal.bench import learner_torch
from copal.native import native
from copal.program import Op, Program, Update
from copal.program.reference import adam_step, run

OBSERVATIONS = 8
ACTIONS = 4
_BLOCK_S = 0.03
# Threads of PyTorch and of NumPy's library spin for a while after their work, on a core that the
# next implementation needs.
_IDLE_S = 0.3

Row = dict[str, Any]
Call = Callable[[], object]


def build(algo: str, hidden: Sequence[int], seed: int = 0) -> Built:
    """The algorithm on 8 observations and 4 actions (LunarLander's sizes), without clipping."""
    import gymnasium as gym

    algorithm = algorithms.get(algo)
    wanted = {"hidden": tuple(hidden), "max_grad_norm": None}
    known = {f.name for f in fields(algorithm.config)}
    config = algorithm.config(**{k: v for k, v in wanted.items() if k in known})
    observations = gym.spaces.Box(-1, 1, (OBSERVATIONS,))
    return algorithm.build(observations, gym.spaces.Discrete(ACTIONS), config, seed)


def random_batch(built: Built, batch_size: int, seed: int = 0) -> dict[str, Any]:
    """Random columns [batch_size, ...] for every input of the Update, in the replay's dtypes."""
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {
        "discount": np.full(batch_size, 0.99, np.float32),
        "weight": rng.random(batch_size).astype(np.float32),
    }
    for name, (shape, dtype) in built.columns.items():
        kind = np.dtype(dtype)
        if kind.kind == "b":
            columns[name] = rng.random((batch_size, *shape)) < 0.1
        elif kind.kind in "iu":
            columns[name] = rng.integers(0, ACTIONS, (batch_size, *shape)).astype(kind)
        else:
            columns[name] = rng.standard_normal((batch_size, *shape)).astype(kind)
    return columns


def rows(
    algo: str = "dqn",
    batch_size: int = 64,
    hidden: Sequence[int] = (256, 256),
    threads: int = 1,
    rounds: int = 7,
    *,
    compiled: bool = True,
) -> list[Row]:
    """Times one update of each implementation, in turn, `rounds` times.

    `torch-eager-fused` and `torch-compile` start from tensors and clip nothing; `numpy` interprets
    the captured Program in float32; `gemm-bound` is the sum of the update's bare dense products,
    the fastest of own kernels, Eigen and NumPy for each, divided by `threads`.

    Args:
        algo: Name of an algorithm.
        batch_size: Rows of a batch.
        hidden: Sizes of the hidden layers.
        threads: Learner threads of copal, and threads of PyTorch.
        rounds: Measurements of each; figures are medians and minima over them.
        compiled: Measure torch.compile, which takes a minute to compile.

    Returns:
        For each `name`: `us` and `us_min` microseconds an update, `gflops` billions of
        floating-point operations a second in dense products; or `absent` with the reason.
    """
    built = build(algo, hidden)
    batch = random_batch(built, batch_size)
    state = LearnerState.initial(built.update, built.parameters)
    cpu = CpuLearner(built.update, state, batch_size=batch_size, learners=threads)
    calls: dict[str, Call] = {"copal-cpu": lambda: cpu.step(batch)}
    absent: list[Row] = []
    with learner_torch.threads(threads):
        calls["torch-eager-fused"] = learner_torch.updater(built, batch)
        if compiled:
            try:
                calls["torch-compile"] = learner_torch.compiled_updater(built, batch)
            except Exception as error:  # noqa: BLE001  a broken tool chain is a row, not a crash
                reason = str(error).strip().splitlines() or [type(error).__name__]
                absent.append({"name": "torch-compile", "absent": reason[0][:200]})
        calls["numpy"] = _numpy_updater(built, batch)
        measured = interleaved(calls, rounds, pause_s=_IDLE_S if threads > 1 else 0.0)
    products = [_product_us(op, batch_size, rounds) for op in _dense_ops(built.update)]
    measured["gemm-bound"] = [sum(us) / threads for us in zip(*products, strict=True)]
    flops = cpu.native.flops
    return [_row(name, us, flops) for name, us in measured.items()] + absent


def policy_rows(
    algo: str = "dqn",
    hidden: Sequence[int] = (256, 256),
    batch_sizes: Sequence[int] = (1, 8, 64),
    rounds: int = 7,
) -> list[Row]:
    """Times acting with the newest weights: observations in, greedy actions out.

    Returns:
        For each `name` (`copal-policy`, `torch-policy`) and `n` observations a call: `us`,
        `us_min` and `gflops` as in `rows`.
    """
    built = build(algo, hidden)
    policy = native.Policy(built.update.policy.to_dict())
    store = native.WeightStore(policy.size)
    store.publish(built.parameters[policy.network], 0)
    result = []
    with learner_torch.threads(1):
        for n in batch_sizes:
            obs = np.random.default_rng(n).standard_normal((n, OBSERVATIONS)).astype(np.float32)
            calls = {
                "copal-policy": _act(policy, store, obs),
                "torch-policy": learner_torch.actor(built, policy.network, obs),
            }
            flops = built.update.policy.flops_per_row() * n
            measured = interleaved(calls, rounds)
            result += [{**_row(name, us, flops), "n": n} for name, us in measured.items()]
    return result


def _act(policy: Any, store: Any, obs: Any) -> Call:
    actions = np.zeros(len(obs), np.int64)
    return lambda: policy.act_into(store, obs, actions)


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


def _row(name: str, us: Sequence[float], flops: int) -> Row:
    median = statistics.median(us)
    return {"name": name, "us": median, "us_min": min(us), "gflops": flops / median * 1e-3}


def _dense_ops(update: Update) -> list[Op]:
    programs: list[Program] = [phase.program for phase in update.phases]
    return [op for program in programs for op in program.ops if op.kind.startswith("dense")]


def _product_us(op: Op, batch_size: int, rounds: int) -> list[float]:
    """Microseconds of one bare product, the fastest library's figure of each round."""
    fan_in, fan_out = int(op.attrs["fan_in"]), int(op.attrs["fan_out"])
    own = ["auto", "eigen"] if native.has_own_gemm else ["eigen"]
    numpy = _numpy_product(op.kind, batch_size, fan_in, fan_out)
    repeats = max(1, int(2e8 / (2 * batch_size * fan_in * fan_out)))
    found = []
    for _ in range(rounds):
        us = [
            native.product_seconds(op.kind, gemm, batch_size, fan_in, fan_out, repeats) * 1e6
            for gemm in own
        ]
        started = time.perf_counter()
        for _ in range(repeats):
            numpy()
        found.append(min(*us, (time.perf_counter() - started) / repeats * 1e6))
    return found


def _numpy_product(kind: str, batch_size: int, fan_in: int, fan_out: int) -> Call:
    w = np.full((fan_out, fan_in), 0.5, np.float32)
    x = np.full((batch_size, fan_in), 0.5, np.float32)
    d = np.full((batch_size, fan_out), 0.5, np.float32)
    if kind == "dense":
        return lambda: np.matmul(x, w.T, out=d)
    if kind == "dense_grad_input":
        return lambda: np.matmul(d, w, out=x)
    return lambda: np.matmul(d.T, x, out=w)


def _numpy_updater(built: Built, batch: dict[str, Any]) -> Call:
    """The Update in NumPy's float32: row program, Adam, averaging."""
    parameters = {name: v.copy() for name, v in built.parameters.items()}
    moments = {
        name: (np.zeros_like(parameters[name]), np.zeros_like(parameters[name]))
        for name in built.update.trained()
    }
    steps = dict.fromkeys(moments, 0)

    def update() -> None:
        for phase in built.update.phases:
            result = run(phase.program, parameters, batch, np.float32)
            name = str(phase.program.gradient)
            assert result.gradient is not None
            gradient = result.gradient / np.float32(len(batch["weight"]))
            steps[name] += 1
            adam_step(phase.optimiser, steps[name], gradient, parameters[name], *moments[name])
        for target in built.update.targets:
            follower = parameters[target.target]
            follower += np.float32(target.tau) * (parameters[target.source] - follower)

    return update
