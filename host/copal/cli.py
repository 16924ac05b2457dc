# SPDX-License-Identifier: MIT
"""The `copal` command: one verb a job, flags derived from the configuration dataclasses.

Exit codes: 0 fine, 1 the job failed, 2 usage, 3 the requested backend is not available, 130 and 143
after SIGINT and SIGTERM, 141 when whatever read the output has gone.
Data goes to stdout, progress and messages to stderr.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import tyro

from copal.bounds import MOST_ROWS, MOST_WIDTH, at_most, check_count, check_hidden
from copal.errors import ConfigError, CopalError, UnknownNameError, reason

Config = TypeVar("Config")


_DISK = {
    errno.ENOSPC: "make room on that disk",
    errno.EDQUOT: "make room in your quota",
    errno.EFBIG: "raise the limit of file sizes: `ulimit -f`",
    errno.EROFS: "choose another folder",
    errno.EACCES: "choose another folder, or make this one yours",
}
"""What to do about what a disk refuses."""
_SMALLER = "choose a smaller --buffer-size, --batch-size or --hidden, or fewer environments"


@dataclasses.dataclass(frozen=True)
class EvalConfig:
    """Score a trained policy."""

    dir: tyro.conf.Positional[Path]
    """Folder of a run, as `copal train --out` wrote it."""
    episodes: int = 20
    """Episodes to play greedily."""
    seed: int = 10_000
    """Seed of the first episode."""
    algo: str | None = None
    """Algorithm that the policy has to be of; None: any."""
    env: str | None = None
    """Environment that the policy has to be for; None: any."""
    json: bool = False
    """Print one JSON object instead of text."""


@dataclasses.dataclass(frozen=True)
class DevicesConfig:
    """List the backends: available, or the reason why not."""

    json: bool = False
    """Print one JSON object instead of text."""


@dataclasses.dataclass(frozen=True)
class ShowConfig:
    """Print the Programs of an algorithm, or of a file: operations, shapes, bytes, FLOP."""

    algo: str = "dqn"
    """Algorithm, as `copal train` takes it."""
    env: str | None = None
    """Environment whose spaces to build for; None: a vector of `obs` numbers."""
    obs: int = 8
    """Numbers of an observation, without `env`."""
    actions: int = 2
    """Actions, or numbers of an action, without `env`."""
    hidden: tuple[int, ...] | None = None
    """Sizes of the hidden layers; None: the algorithm's own."""
    phase: str | None = None
    """Show this one only: the network that the phase trains, or `policy`."""
    batch_size: int = 256
    """Rows of a batch."""
    file: Path | None = None
    """Show this Update, Program or policy.json, or the policy of this run folder, instead."""
    json: bool = False
    """Print one JSON object instead of text."""


def train(args: Sequence[str]) -> int:
    """Train an agent."""
    from copal.codesign.config import PlannedTrain

    text = _defaults_by_algorithm() if {"-h", "--help"}.intersection(args) else None
    args, automatic = _automatic(args)
    config = _parse(PlannedTrain, "copal train", _spelt_out(args), text)
    named = _named(args) - {"plan", "force"}
    if config.plan is not None or automatic:
        return _train_planned(config, named, automatic)
    from copal.runtime import train as run

    result = run(config.training(), given=named)
    print(result.summary())
    return _status(result.stop_reason)


def _train_planned(config: Any, named: set[str], automatic: set[str]) -> int:
    """Trains by the plan that is given, or by one that is made first."""
    from copal.codesign import train as planned
    from copal.codesign.plan import Plan

    if config.plan is not None and automatic:
        name = min(automatic)
        raise ConfigError(name, "nothing where a plan says it", "`auto`", "leave out one of them")
    if config.plan is not None:
        plan = Plan.load(config.plan)
        done = planned.train(config.training(), plan, named=named, force=config.force)
    else:
        done = planned.train_auto(
            config.training(),
            actors="actors" in automatic,
            learners="learners" in automatic,
            named=named,
        )
    print(done.summary())
    return _status(done.result.stop_reason)


def profile(args: Sequence[str]) -> int:
    """Measure what actors and learners can do here."""
    from copal.codesign.config import ProfileConfig

    config = _parse(ProfileConfig, "copal profile", _spelt_out(args))
    from copal.codesign.verbs import run_profile

    return run_profile(config)


def allocate(args: Sequence[str]) -> int:
    """Decide how many cores act and how many learn, and on which backend."""
    from copal.codesign.config import AllocateConfig

    config = _parse(AllocateConfig, "copal allocate", args)
    from copal.codesign.verbs import run_allocate

    return run_allocate(config)


def evaluate(args: Sequence[str]) -> int:
    """Score a trained policy."""
    config = _parse(EvalConfig, "copal eval", args)
    from copal.runtime import evaluate as run

    score = run(
        config.dir,
        episodes=config.episodes,
        seed=config.seed,
        algo=config.algo,
        env=config.env,
    )
    if config.json:
        print(json.dumps(dataclasses.asdict(score)))
    else:
        print(f"mean return {score.mean:.1f} +- {score.std:.1f} over {config.episodes} episodes")
    return 0


def devices(args: Sequence[str]) -> int:
    """List the backends: available, or the reason why not."""
    config = _parse(DevicesConfig, "copal devices", args)
    from copal.backends import registry

    found = registry.devices()
    if config.json:
        print(json.dumps({name: reason or "available" for name, reason in found}))
    else:
        for name, reason in found:
            shown = f"  {name.partition(':')[2]}" if ":" in name else name
            print(f"{shown:10s} {'available' if reason is None else f'unavailable: {reason}'}")
    return 0


def program(args: Sequence[str]) -> int:
    """Show what an algorithm was captured to."""
    verb = _choose("copal program", args, {"show": (ShowConfig, "print operations and costs")})
    if verb is None:
        return 0
    config = _parse(ShowConfig, "copal program show", args[1:])
    from copal.program import show

    check_count("batch_size", config.batch_size, at_most(MOST_ROWS))
    if config.file is not None:
        try:
            text = show.file_of(config.file).read_text()
        except (OSError, UnicodeDecodeError) as error:
            hint = "give the folder of a run, its policy.json, or what `Update.to_json` wrote"
            raise ConfigError("file", "a readable JSON file", reason(error), hint) from error
        name, parts = str(config.file), show.parts_from_json(text)
    else:
        name, parts = config.algo, show.parts_of(_update(config))
    parts = show.chosen(parts, config.phase)
    if config.json:
        print(json.dumps(show.to_dict(name, parts, config.batch_size)))
    else:
        print(show.to_text(name, parts, config.batch_size))
    return 0


def _update(config: ShowConfig) -> Any:
    """The Update that `config` asks for, with continuous actions if the algorithm takes them."""
    from gymnasium.spaces import Box, Discrete

    from copal import algorithms, envs

    algorithm = algorithms.get(config.algo)
    if config.hidden is not None:
        check_hidden(config.hidden)
    hidden = {} if config.hidden is None else {"hidden": config.hidden}
    settings = algorithm.config(**hidden)
    if config.env is not None:
        environments = envs.make(config.env, 1, seed=0)
        observations, actions = environments.observation_space, environments.action_space
        environments.close()
        return algorithms.build(algorithm, observations, actions, settings).update
    for name in ("obs", "actions"):
        check_count(name, getattr(config, name), at_most(MOST_WIDTH))
    observations = Box(-1.0, 1.0, (config.obs,))
    spaces = [
        (observations, Box(-1.0, 1.0, (config.actions,))),
        (observations, Discrete(config.actions)),
    ]
    return algorithms.build_on_first(algorithm, spaces, settings).update


def bench(args: Sequence[str]) -> int:
    """Measure the replay buffer, one learner update, or training, beside the peers."""
    from copal.bench import BENCHES, Bench
    from copal.codesign import bench as codesign

    own = Bench(codesign.run, "predicted beside achieved throughput", codesign.CodesignBench)
    benches = {**BENCHES, "codesign": own}
    name = _choose("copal bench", args, {k: (v.run, v.help) for k, v in benches.items()})
    if name is None:
        return 0
    chosen = benches[name]
    return chosen.run(_parse(chosen.config, f"copal bench {name}", args[1:]))


def simulate(args: Sequence[str]) -> int:
    """Verify the FPGA engine's RTL in a simulator."""
    from copal.fpga import simulate as simulation

    return simulation.run(_parse(simulation.SimulateConfig, "copal simulate", args))


def build(args: Sequence[str]) -> int:
    """Build the FPGA engine for a board."""
    from copal.fpga import boards_build

    return boards_build.run(_parse(boards_build.BuildConfig, "copal build", args))


def report(args: Sequence[str]) -> int:
    """Write a page about runs."""
    from copal.codesign import report as reports

    return reports.run(_parse(reports.ReportConfig, "copal report", args))


VERBS: dict[str, tuple[Callable[[Sequence[str]], int], str]] = {
    "train": (train, "train an agent"),
    "eval": (evaluate, "score a trained policy"),
    "profile": (profile, "measure what actors and learners can do here, on each backend"),
    "allocate": (allocate, "decide how many cores act and learn, and on which backend"),
    "report": (report, "write one HTML page about runs: curves, throughput, stages, settings"),
    "program": (program, "show what an algorithm was captured to: operations, shapes, costs"),
    "devices": (devices, "list the backends: available, or the reason why not"),
    "bench": (bench, "measure the replay, one learner update, or training beside other frameworks"),
    "simulate": (simulate, "verify the FPGA engine's RTL: cocotb test benches, random stalls"),
    "build": (build, "build the FPGA engine for a board: Verilog, estimate, project, bitstream"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the `copal` command; returns its exit code."""
    if argv is None:
        try:
            return _piped(sys.argv[1:])
        finally:
            # The job is over: an interrupt would only make the libraries' farewell fail loudly.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    args = list(argv)
    if args == ["--version"]:
        from copal import __version__

        print(__version__)
        return 0
    try:
        verb = _choose("copal", args, VERBS)
        return 0 if verb is None else VERBS[verb][0](args[1:])
    except CopalError as error:
        if os.environ.get("COPAL_TRACEBACK"):
            traceback.print_exc()
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return _status(signal.SIGINT.name)
    except BrokenPipeError:
        raise
    except MemoryError as error:
        if os.environ.get("COPAL_TRACEBACK"):
            raise
        print(f"error: not enough memory: {error}".rstrip(": "), file=sys.stderr)
        print(f"hint: {_SMALLER}", file=sys.stderr)
        return 1
    except Exception as error:
        if os.environ.get("COPAL_TRACEBACK"):
            raise
        print(f"error: {type(error).__name__}: {error}", file=sys.stderr)
        disk = _DISK.get(error.errno or 0) if isinstance(error, OSError) else None
        hint = disk or "COPAL_TRACEBACK=1 shows where; please report it"
        print(f"hint: {hint}", file=sys.stderr)
        return 1


def _piped(args: Sequence[str]) -> int:
    """`main(args)`; quiet once nobody reads its output any more, `| head` for instance."""
    try:
        try:
            return main(args)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # What is still buffered would fail once more while the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _status(signal.SIGPIPE.name)


def _status(stop_reason: str) -> int:
    """The exit status of a job that ended for this reason: as a shell has it after a signal."""
    named = signal.Signals.__members__.get(stop_reason)
    return 0 if named is None else 128 + named


def _choose(prog: str, args: Sequence[str], verbs: dict[str, tuple[Any, str]]) -> str | None:
    """The verb that `args` starts with; None after printing the help that was asked for."""
    if not args or args[0] in ("-h", "--help"):
        lines = "\n".join(f"  {name:10s} {text}" for name, (_, text) in verbs.items())
        text = f"usage: {prog} <verb> [flags]\n\n{lines}\n\n`{prog} <verb> --help` lists its flags"
        print(text, file=sys.stdout if args else sys.stderr)
        if not args:
            raise SystemExit(2)
        return None
    if args[0] not in verbs:
        raise UnknownNameError.of("verb", args[0], verbs, f"`{prog} --help` lists them")
    return args[0]


def _named(args: Sequence[str]) -> set[str]:
    """Names of the settings that the flags in `args` set."""
    from copal.config import ALIASES

    flags = (a.split("=")[0][2:].removeprefix("no-") for a in args if a.startswith("--"))
    names = {flag.replace("-", "_") for flag in flags}
    return {ALIASES.get(name, name) for name in names}


def _automatic(args: Sequence[str]) -> tuple[list[str], set[str]]:
    """`args` without `--actors auto` and `--learners auto`, and which of the two were there."""
    kept: list[str] = []
    found: set[str] = set()
    at = 0
    while at < len(args):
        name, inline, value = args[at].partition("=")
        value = value if inline else "".join(args[at + 1 : at + 2])
        if name in ("--actors", "--learners") and value == "auto":
            found.add(name.removeprefix("--"))
            at += 1 if inline else 2
        else:
            kept.append(args[at])
            at += 1
    return kept, found


def _spelt_out(args: Sequence[str]) -> list[str]:
    """`--x` and `--no-x` with the value that a switch needs which is True, False or None."""
    from copal.config import OPTIONAL_SWITCHES

    known = {name.replace("_", "-") for name in OPTIONAL_SWITCHES}
    found: list[str] = []
    for i, arg in enumerate(args):
        name = arg.replace("_", "-").removeprefix("--")
        if arg.startswith("--no-") and name.removeprefix("no-") in known:
            found += [f"--{name.removeprefix('no-')}", "False"]
        elif arg.startswith("--") and name in known:
            valued = args[i + 1 : i + 2] in (["True"], ["False"], ["None"])
            found += [arg] if valued else [arg, "True"]
        else:
            found.append(arg)
    return found


def _defaults_by_algorithm() -> str:
    """What a setting that is None stands for, one line an algorithm."""
    from copal import algorithms

    lines = ["Train an agent. A setting that is None takes the value of the algorithm:", ""]
    for name in algorithms.names():
        values = algorithms.get(name).defaults.items()
        lines.append(f"{name}: " + ", ".join(f"{key} {_short(value)}" for key, value in values))
    return "\n\n".join(lines)


def _short(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _parse(
    config: type[Config], prog: str, args: Sequence[str], description: str | None = None
) -> Config:
    """Reads `config` from the command line; a usage error ends the process with status 2.

    Raises:
        CopalError: The class refused the values; tyro's own text would lack the hint.
    """
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(config, prog=prog, args=list(args), description=description)
    except SystemExit as end:
        refusal = _refusal(end)
        if refusal is not None:
            raise refusal from None
        sys.stderr.write(said.getvalue())
        raise


def _refusal(end: BaseException | None) -> CopalError | None:
    """The error of copal that led to this one, if one did."""
    while end is not None and not isinstance(end, CopalError):
        end = end.__cause__ or end.__context__
    return end


if __name__ == "__main__":
    raise SystemExit(main())
