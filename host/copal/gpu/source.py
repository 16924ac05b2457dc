# SPDX-License-Identifier: MIT
"""The CUDA translation unit of an Update: the device functions of `kernels/`, and its kernels."""

from __future__ import annotations

from collections.abc import Iterator

from copal import builds
from copal.gpu.blockcode import BlockCode
from copal.gpu.device import Unit
from copal.gpu.names import double, literal, network_identifiers
from copal.gpu.plan import REDUCE_THREADS, GpuPlan, PhasePlan
from copal.gpu.sequence import fusable

HEADERS = (
    "base.cuh",
    "dense.cuh",
    "gradient.cuh",
    "rows.cuh",
    "noise.cuh",
    "reduce.cuh",
)
"""Files of `kernels/` in the order in which they are needed."""


def unit(plan: GpuPlan) -> Unit:
    """The kernels of `plan`.

    Raises:
        BackendUnavailableError: The folder `kernels` is missing.
    """
    folder = builds.root("kernels", HEADERS[0]) / "kernels"
    parts = [(folder / name).read_text() for name in HEADERS]
    kernels: list[str] = []
    for phase in plan.phases:
        n = phase.number
        parts += [_gradient(plan, phase), _sum(plan, phase), _reduce(plan, phase)]
        kernels += [f"gradient_{n}", f"sum_{n}", f"reduce_{n}"]
    for n in range(len(plan.update.targets)):
        parts.append(_average(plan, n))
        kernels.append(f"average_{n}")
    name = "".join(c if c.isalnum() else "-" for c in plan.update.name)
    return Unit(name, "\n".join(parts), tuple(kernels))


def _kernel(name: str, bounds: str, parameters: list[str], body: list[str]) -> str:
    lines = ",\n    ".join(parameters)
    head = f'extern "C" __global__ void __launch_bounds__({bounds}) {name}(\n    {lines}) {{'
    return "\n".join([head, *(f"  {line}" for line in body), "}", ""])


_STATUS = ["const int* __restrict__ launch", "int* words", "int slot"]
_CHECK = [
    "const copal::Status status{words, *launch, slot};",
    "if (status.stopped()) return;",
    "const int agent = blockIdx.y;",
]


def _gradient(plan: GpuPlan, phase: PhasePlan) -> str:
    code = BlockCode(plan, phase)
    networks = network_identifiers(phase.program)
    parameters = [
        *_STATUS,
        "const float* __restrict__ batch",
        "int given",
        "float* td",
        "int td_stride",
        "float* outputs",
        "float* shares",
        "float* workspace",
        "const unsigned* __restrict__ seed",
        "int counts",
        "const unsigned* __restrict__ update",
        "unsigned* next_update",
        "const double* powers",
        "double* next_powers",
        *(f"const float* __restrict__ {name}" for name in networks.values()),
    ]
    size = plan.layouts[phase.network].padded
    block = f"(agent * {plan.shares.count} + blockIdx.x)"
    body = [
        "COPAL_SHARED(memory);",
        *_CHECK,
        f"batch += agent * {plan.batch_floats};",
        "td += agent * td_stride;",
        f"outputs += agent * {plan.output_floats};",
        "seed += 2 * agent;",
        *(
            f"{name} += agent * {plan.layouts[network].padded};"
            for network, name in networks.items()
        ),
        f"float* const share = shares + (long long){block} * {size};",
        f"workspace += (long long){block} * {phase.placement.workspace_floats};",
        *_counters(phase),
        "const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;",
        f"const int begin = blockIdx.x * {plan.shares.each};",
        f"const int end = begin + {plan.shares.each} < {plan.batch_size}",
        f"                    ? begin + {plan.shares.each} : {plan.batch_size};",
        *code.pointers(),
        *code.untouched(),
        f"for (int first = begin; first < end; first += {plan.shares.rows}) {{",
        f"  const int rows = end - first < {plan.shares.rows} ? end - first : {plan.shares.rows};",
        "  const bool add = first > begin;",
        *(f"  {line}" for line in code.loop()),
        "}",
    ]
    # One block a multiprocessor: it may have all registers.
    return _kernel(f"gradient_{phase.number}", f"{plan.threads}, 1", parameters, body)


def _counters(phase: PhasePlan) -> Iterator[str]:
    """Adam's powers of beta, and the number of the update, go on by one."""
    adam = phase.phase.optimiser
    yield "if (blockIdx.x == 0 && threadIdx.x == 0) {"
    betas = f"{double(adam.beta1)}, {double(adam.beta2)}"
    yield f"  copal::count_step(powers + 4 * agent, next_powers + 4 * agent, {betas});"
    yield "  if (agent == 0 && counts) {"
    yield "    next_update[0] = update[0] + 1u;"
    yield "    next_update[1] = update[1] + (update[0] == 0xffffffffu ? 1u : 0u);"
    yield "  }"
    yield "}"


def _sum(plan: GpuPlan, phase: PhasePlan) -> str:
    size, count = plan.layouts[phase.network].padded, plan.shares.count
    parameters = [
        *_STATUS,
        "const float* __restrict__ shares",
        "float* __restrict__ mean",
        "double* __restrict__ norms",
    ]
    body = [
        *_CHECK,
        f"copal::sum_shares<{size}, {count}, {REDUCE_THREADS}>(",
        f"    shares + (long long)agent * {size * count}, mean + agent * {size},",
        f"    norms + agent * {plan.reduce_blocks(phase.network)},",
        f"    {literal(1.0 / plan.batch_size)}, status);",
    ]
    return _kernel(f"sum_{phase.number}", str(REDUCE_THREADS), parameters, body)


def _reduce(plan: GpuPlan, phase: PhasePlan) -> str:
    size, adam = plan.layouts[phase.network].padded, phase.phase.optimiser
    clip = phase.phase.max_grad_norm
    count = plan.shares.count if clip is None else 1
    blocks = plan.reduce_blocks(phase.network)
    settings = len(plan.phases) + len(plan.update.targets)
    targets = fusable(plan.update, phase.number)
    parameters = [
        *_STATUS,
        "const float* __restrict__ shares",
        "const double* __restrict__ norms",
        "const double* __restrict__ powers",
        "const float* __restrict__ settings",
        "const float* parameters",
        "float* next_parameters",
        "const float* first",
        "float* next_first",
        "const float* second",
        "float* next_second",
        "int averaged",
        *(p for t in targets for p in (f"const float* target{t}", f"float* next_target{t}")),
    ]
    scale = f"const float scale = {literal(1.0 / plan.batch_size)};"
    if clip is not None:
        scale = (
            f"const float scale = copal::clip_factor<{blocks}>(norms + agent * {blocks}, "
            f"{literal(clip)});"
        )
    body = [
        *_CHECK,
        scale,
        f"const int at = 4 * (blockIdx.x * {REDUCE_THREADS} + threadIdx.x);",
        f"if (at >= {size}) return;",
        f"const int i = agent * {size} + at;",
        f"shares += (long long)agent * {size * count};",
        f"const float4 sum = copal::sum_of_shares<{size}, {count}>(shares, at);",
        "const float4 g = copal::scaled(sum, scale);",
        "if (!copal::finite4(g)) status.fail();",
        "const copal::Adam adam{",
        f"    {literal(1.0 - adam.beta1)}, {literal(1.0 - adam.beta2)},",
        "    (float)powers[4 * agent + 2], (float)powers[4 * agent + 3],",
        f"    settings[{settings} * agent + {phase.number}], {literal(adam.eps)}}};",
        "float4 m = copal::load4(first + i), v = copal::load4(second + i);",
        "const float4 p = copal::adam_step4(adam, g, copal::load4(parameters + i), m, v);",
        "copal::store4(next_parameters + i, p);",
        "copal::store4(next_first + i, m);",
        "copal::store4(next_second + i, v);",
    ]
    for t in targets:
        tau = f"settings[{settings} * agent + {len(plan.phases) + t}]"
        body += [
            f"if (averaged >> {t} & 1)",
            f"  copal::store4(next_target{t} + i,",
            f"                copal::toward(copal::load4(target{t} + i), p, {tau}));",
        ]
    return _kernel(f"reduce_{phase.number}", str(REDUCE_THREADS), parameters, body)


def _average(plan: GpuPlan, number: int) -> str:
    target = plan.update.targets[number]
    size = plan.layouts[target.source].padded
    settings = len(plan.phases) + len(plan.update.targets)
    parameters = [
        *_STATUS,
        "const float* __restrict__ settings",
        "const float* __restrict__ source",
        "const float* from",
        "float* to",
    ]
    body = [
        *_CHECK,
        f"copal::average<{size}, {REDUCE_THREADS}>(",
        f"    source + agent * {size}, from + agent * {size}, to + agent * {size},",
        f"    settings[{settings} * agent + {len(plan.phases) + number}]);",
    ]
    return _kernel(f"average_{number}", str(REDUCE_THREADS), parameters, body)
