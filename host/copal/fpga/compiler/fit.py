# SPDX-License-Identifier: MIT
"""Whether an Update fits an engine, in how large blocks, and how large an engine has to be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace

from copal.errors import ConfigError
from copal.fpga.compiler.compile import compile_block
from copal.fpga.compiler.plan import Plan
from copal.fpga.config import MOST_SUM_BITS, Depths, EngineConfig
from copal.program import Update

_MOST_TILES = 255
"""Batch tiles of a block: `c_i` of a product that goes to V."""
_MOST_SUMMED = 31
"""Bits of a bias gradient: its rows times the largest integer have to fit."""
_NOT_BY_ROWS = ("code", "parameters", "bias", "range")
"""Memories that smaller blocks do not make smaller."""


def compile_update(
    update: Update, config: EngineConfig, batch_size: int, block_rows: int | None = None
) -> Plan:
    """Compiles an Update for an engine, in the largest row blocks that its memories hold.

    Args:
        update: What to run.
        config: Of the engine.
        batch_size: Rows of a batch.
        block_rows: Rows of a block; None: as many as fit.

    Raises:
        ProgramError: The engine lacks an operation, or the Update does not fit its scheme; see
            `copal.fpga.parameters.layout`.
        ConfigError: It does not fit the engine; names the memory and by how much.
    """
    _check_sums(update, config, batch_size)
    if block_rows is not None:
        most = _most_rows(config)
        if not 1 <= block_rows <= most:
            raise ConfigError("block_rows", f"1 to {most}", str(block_rows))
    sizes = _sizes(config, batch_size) if block_rows is None else iter([block_rows])
    plan = None
    for rows in sizes:
        plan = compile_block(update, config, batch_size, min(rows, batch_size))
        if not _excess(plan):
            return plan
        if all(name in _NOT_BY_ROWS for name in _excess(plan)):
            break
    assert plan is not None
    raise _too_large(plan)


def fit(update: Update, config: EngineConfig, batch_size: int) -> int:
    """The rows of a block in which an Update runs; raises as `compile_update` does."""
    return compile_update(update, config, batch_size).block_rows


def smallest_depths(
    update: Update, config: EngineConfig, batch_size: int, block_rows: int | None = None
) -> Depths:
    """The memories that an Update needs, in powers of two.

    Args:
        update: What to run.
        config: Of the engine, but for its depths.
        batch_size: Rows of a batch.
        block_rows: Rows of a block; None: the whole batch, if the engine can sum so many.

    Raises:
        ProgramError: As `compile_update`.
        ConfigError: No depth is large enough.
    """
    _check_sums(update, config, batch_size)
    largest = replace(config, depths=Depths(range=255))
    rows = min(block_rows or batch_size, batch_size, _most_rows(config))
    words = compile_block(update, largest, batch_size, rows).words
    rounded = {name: 1 << max(n - 1, 0).bit_length() for name, n in words.items()}
    rounded["range"] = min(rounded["range"], 255)
    return Depths(**rounded)


def _most_rows(config: EngineConfig) -> int:
    return min(_MOST_TILES * config.array_size, _longest_sum(config))


def _longest_sum(config: EngineConfig) -> int:
    """Products of the largest operands that a sum holds."""
    return 1 << config.sum_bits - 1 - (config.a_bits - 1) - (config.b_bits - 1)


def _check_sums(update: Update, config: EngineConfig, batch_size: int) -> None:
    most = 1 << _MOST_SUMMED - (config.a_bits - 1)
    if not 1 <= batch_size <= most:
        raise ConfigError(
            "batch_size", f"1 to {most}", str(batch_size), "a bias gradient sums no more rows"
        )
    longest = _longest_sum(config)
    for phase in update.phases:
        for op in phase.program.ops:
            if op.kind in ("dense", "dense_grad_input"):
                summed = op.attrs["fan_in" if op.kind == "dense" else "fan_out"]
                if summed > longest:
                    remedy = f"use layers of at most {longest} inputs, or `--backend cpu`"
                    if config.sum_bits < MOST_SUM_BITS:
                        remedy = f"build the engine with more `sum_bits`, or {remedy}"
                    raise ConfigError(
                        "sum_bits", f"sums of {summed} products in `{phase.program.name}`",
                        f"{config.sum_bits} bits, enough for {longest}",
                        remedy,
                    )  # fmt: skip


def _sizes(config: EngineConfig, batch_size: int) -> Iterator[int]:
    """Rows of a block to try, from large to small: an even share of the batch in whole tiles."""
    p, most, last = config.array_size, _most_rows(config), 0
    for blocks in range(1, batch_size + 1):
        rows = -(-batch_size // blocks)
        rows = -(-rows // p) * p
        if rows != last and (rows <= most or rows == p):
            yield rows
        last = rows
        if rows == p:
            return


def _excess(plan: Plan) -> dict[str, int]:
    """Memories that are too small, and the words that they lack."""
    depths = asdict(plan.config.depths)
    return {n: words - depths[n] for n, words in plan.words.items() if words > depths[n]}


def _too_large(plan: Plan) -> ConfigError:
    excess, depths = _excess(plan), asdict(plan.config.depths)
    name = max(excess, key=lambda n: plan.words[n] / depths[n])
    others = [n for n in excess if n != name]
    remedy = f"build the engine with depths.{name} of {plan.words[name]} or more"
    if others:
        remedy += f" (and larger {', '.join(others)})"
    remedy += ", or make the networks smaller"
    if name not in _NOT_BY_ROWS and plan.block_rows > plan.config.array_size:
        remedy = f"use blocks of fewer rows than {plan.block_rows}, or {remedy}"
    return ConfigError(
        f"depths.{name}",
        f"at least {plan.words[name]} words for `{plan.update.name}` in blocks of "
        f"{plan.block_rows} rows",
        f"{depths[name]}, {excess[name]} too few",
        remedy,
    )
