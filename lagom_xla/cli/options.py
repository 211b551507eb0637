# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Shared options of commands, and functions that load and write with them.

Compiles run in worker processes and use the user's cache. Workers start first,
because they import JAX while the command lowers its target.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
import contextlib
import dataclasses
import os
import pathlib
import re
import shlex
import textwrap
from typing import TYPE_CHECKING, NamedTuple

from lagom_xla import errors
from lagom_xla.cli import output

if TYPE_CHECKING:
  from lagom_xla import cluster as cluster_lib
  from lagom_xla.cli import progress
  from lagom_xla.compile import pool as pool_lib
  from lagom_xla.compile import target as target_lib
  from lagom_xla.costs import step as step_lib
  from lagom_xla.explain import explanation as explanation_lib
  from lagom_xla.profiling import costing as costing_lib
  from lagom_xla.profiling import profile as profile_lib

TARGET_HELP = """\
what to look at:
  step.hlo.xz           an HLO module, as text or proto, also .xz or .gz; a
                        scheduled module is read, others are compiled
  train.py:train_step   a function that takes the cluster's `devices` and
                        returns (jitted step, tuple of its arguments)
  train.py:step         a jitted step, with a function step_args(devices)
                        beside it that returns its arguments
Arguments are arrays or jax.ShapeDtypeStructs, sharded over those devices."""

_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600}


def add_command(
  commands,
  name: str,
  function: Callable[[argparse.Namespace], None],
  text: str,
  examples: str,
) -> argparse.ArgumentParser:
  """Adds a command and returns its parser.

  `text` is its help in one sentence. `examples` follow the options.
  """
  command = commands.add_parser(
    name,
    help=text,
    description=textwrap.fill(text),
    epilog=examples,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    # Overrides absl's own -v.
    conflict_handler="resolve",
  )
  command.add_argument(
    "--debug",
    action="store_true",
    help="also print the traceback of an error",
  )
  loudness = command.add_mutually_exclusive_group()
  loudness.add_argument(
    "-q",
    "--quiet",
    action="store_true",
    help="print only errors, the names of written files, and requested results",
  )
  loudness.add_argument(
    "-v", "--verbose", action="store_true", help="show every table"
  )
  command.set_defaults(function=function, usage_error=command.error)
  return command


def add_target(command: argparse.ArgumentParser) -> None:
  """Adds TARGET, --cluster and --arg, for `load_target`."""
  command.add_argument("target", metavar="TARGET", help="see below")
  add_cluster(command)
  add_processes(command)
  add_arg(command)


def add_arg(command: argparse.ArgumentParser) -> None:
  """Adds --arg, for `keywords`."""
  command.add_argument(
    "--arg",
    action="append",
    default=[],
    metavar="NAME=VALUE",
    help="a keyword argument for TARGET's function; may be repeated",
  )


def add_cluster(command: argparse.ArgumentParser) -> None:
  """Adds --cluster."""
  command.add_argument(
    "--cluster",
    required=True,
    metavar="CLUSTER",
    help="NODESxGPUSxGPU such as 16x8xh100, NODESxMACHINE such as"
    " 2xp5.48xlarge, a name, or a JSON file; `lagom-xla clusters` lists them",
  )


def add_processes(command: argparse.ArgumentParser) -> None:
  """Adds --processes-per-node."""
  command.add_argument(
    "--processes-per-node",
    type=_num_processes,
    metavar="N",
    help="processes per node of your job, each with an equal share of its GPUs"
    " (default: the cluster file's, or 1); XLA's own kernels may not work"
    " across processes",
  )


def _num_processes(text: str) -> int:
  if not (text.isdecimal() and int(text)):
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of processes")
  return int(text)


def add_format(command: argparse.ArgumentParser) -> None:
  """Adds --format=text|json."""
  command.add_argument(
    "--format",
    choices=("text", "json"),
    default="text",
    help="tables, or one JSON object (default: %(default)s)",
  )


def add_compiling(command: argparse.ArgumentParser) -> None:
  """Adds --workers and --no-cache."""
  command.add_argument(
    "--workers",
    type=_num_workers,
    metavar="N",
    default=os.environ.get("LAGOM_XLA_WORKERS"),
    help="number of compile processes (default: $LAGOM_XLA_WORKERS, or one per"
    " core); with 0 the command compiles itself, and an abort in XLA ends it",
  )
  command.add_argument(
    "--no-cache",
    action="store_true",
    help="do not use the cache of compiles, which is in"
    " $XDG_CACHE_HOME/lagom_xla unless LAGOM_XLA_CACHE is set (to a folder, or"
    " off)",
  )


def _num_workers(text: str) -> int:
  if not text.isdecimal():
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of processes")
  return int(text)


def add_profile(command: argparse.ArgumentParser) -> None:
  """Adds --profile."""
  command.add_argument(
    "--profile",
    metavar="DIR",
    help="a trace of this step from jax.profiler.trace: measured costs replace"
    " predictions, and scale the predictions for the rest",
  )


def add_pictures(command: argparse.ArgumentParser) -> None:
  """Adds --report and --trace."""
  command.add_argument(
    "--report",
    metavar="FILE",
    help="write an HTML page: the verdict, timelines, and slowdowns",
  )
  add_trace(command)


def add_trace(command: argparse.ArgumentParser) -> None:
  """Adds --trace."""
  command.add_argument(
    "--trace",
    metavar="FILE",
    help="write the timelines for ui.perfetto.dev, to a file such as"
    " trace.json.gz",
  )


def add_time_budget(command: argparse.ArgumentParser) -> None:
  """Adds --time-budget."""
  command.add_argument(
    "--time-budget",
    type=_seconds,
    metavar="TIME",
    help="stop after this time, such as 120s, 5m or 1h, and keep the best"
    " result so far; Ctrl-C and SIGTERM do the same",
  )


def _seconds(text: str) -> float:
  found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
  if found is None or float(found[1]) == 0:
    raise argparse.ArgumentTypeError(
      f"{text!r} is not a time such as 120s, 5m or 1h"
    )
  return float(found[1]) * _UNITS_S[found[2]]


def check_target(arguments: argparse.Namespace) -> None:
  """Checks the arguments of `add_target` as far as possible without JAX."""
  from lagom_xla.compile import source

  keywords(arguments)
  cluster_of(arguments)
  source.check(arguments.target)


def cluster_of(arguments: argparse.Namespace) -> cluster_lib.Cluster:
  """The cluster of --cluster, with --processes-per-node.

  Raises:
    ClusterError: it is unknown, or the processes cannot share its GPUs equally.
  """
  from lagom_xla import cluster as cluster_lib

  cluster = cluster_lib.parse(arguments.cluster)
  if arguments.processes_per_node is None:
    return cluster
  return dataclasses.replace(
    cluster, processes_per_node=arguments.processes_per_node
  )


def keywords(arguments: argparse.Namespace) -> dict[str, str]:
  """The keyword arguments of --arg."""
  found = {}
  for text in arguments.arg:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
      raise errors.TargetError(
        f"--arg={text} is not NAME=VALUE, such as --arg=batch_size=16."
      )
    found[name] = value
  return found


@contextlib.contextmanager
def at_work(
  arguments: argparse.Namespace, *, lines: bool = False, num_early: int = 1
) -> Iterator[tuple[progress.Bar, pool_lib.Pool | None]]:
  """A command's progress bar, with or without lines, and its workers."""
  from lagom_xla.cli import progress

  with (
    progress.Bar(
      time_budget_s=getattr(arguments, "time_budget", None),
      lines=lines,
      is_quiet=arguments.quiet,
    ) as bar,
    workers(arguments, num_early=num_early) as pool,
  ):
    yield bar, pool


@contextlib.contextmanager
def workers(
  arguments: argparse.Namespace,
  *,
  generates_code: bool = False,
  num_early: int = 1,
) -> Iterator[pool_lib.Pool | None]:
  """The workers for `add_compiling`'s arguments; None without workers."""
  if arguments.workers == 0:
    yield None
    return
  from lagom_xla.compile import cache as cache_lib
  from lagom_xla.compile import pool as pool_lib

  with pool_lib.Pool(
    arguments.workers,
    cache=None if arguments.no_cache else cache_lib.of_user(),
    warn=output.say,
    generates_code=generates_code,
    num_early=num_early,
  ) as pool:
    yield pool


def command(name: str, arguments: argparse.Namespace) -> str:
  """Another command for the target of these arguments, to be pasted."""
  from lagom_xla.report import notes

  words = [name, arguments.target, f"--cluster={arguments.cluster}"]
  if arguments.processes_per_node is not None:
    words.append(f"--processes-per-node={arguments.processes_per_node}")
  words += [f"--arg={keyword}" for keyword in arguments.arg]
  if arguments.profile:
    words.append(f"--profile={arguments.profile}")
  return f"{notes.program_name()} {shlex.join(words)}"


def load_target(
  arguments: argparse.Namespace,
  bar: progress.Bar,
  workers: pool_lib.Pool | None,
) -> target_lib.Target:
  """The target for the arguments of `add_target`."""
  bar.say(f"lowering {arguments.target}")
  from lagom_xla.compile import load
  from lagom_xla.costs.nccl import environment as nccl_environment
  from lagom_xla.flags import environment

  environment.check()
  nccl_environment.check()
  target = watched(
    lambda: load.load(
      arguments.target,
      cluster_of(arguments),
      arguments=keywords(arguments),
    ),
    is_beaten=getattr(arguments, "in_process", False),
  )
  return target if workers is None else target.with_workers(workers)


def watched(
  load: Callable[[], target_lib.Target], *, is_beaten: bool = False
) -> target_lib.Target:
  """Loads a target, and records how its program changes the compile.

  `is_beaten`: whether a plan overrides these changes.
  """
  from lagom_xla.compile import source
  from lagom_xla.flags import environment
  from lagom_xla.flags import jit_options
  from lagom_xla.flags import own_flags
  from lagom_xla.search.xla import memory_pool

  # Checked first, because JAX loads no plugin with an invalid share.
  memory_pool.share()
  with own_flags.watched() as own:
    target = load()
  jit_options.check(target.jit_options, source.place_of)
  beside = environment.of_compile(target.handed, own)
  environment.note(dataclasses.replace(beside, is_beaten=is_beaten))
  return target


def inspected(
  arguments: argparse.Namespace,
  bar: progress.Bar,
  workers: pool_lib.Pool | None,
) -> tuple[target_lib.Target, step_lib.Step, Priced]:
  """The target, its step as it runs today, and its profile with costs."""
  target = load_target(arguments, bar, workers)
  from lagom_xla.cli import naming
  from lagom_xla.tuner import tuner

  bar.say("reading the profile" if arguments.profile else "costing the step")
  with (
    bar.told_of_compiles(naming.Names()),
    pricing(arguments.profile, target) as priced,
  ):
    step = tuner.inspect(target)
    check_profile(arguments, step)
  return target, step, priced


class Priced(NamedTuple):
  """A profile and its costs; None if all costs are predicted."""

  profile: profile_lib.Profile | None = None
  costs: costing_lib.Costing | None = None


@contextlib.contextmanager
def pricing(folder: str | None, target: target_lib.Target) -> Iterator[Priced]:
  """Prices steps inside the block by the profile in a folder, if given.

  Assumes that the profiled run had the XLA_FLAGS of this process.
  """
  if folder is None:
    yield Priced()
    return
  from lagom_xla.costs import measured
  from lagom_xla.flags import nccl_channels
  from lagom_xla.profiling import costing as costing_lib
  from lagom_xla.profiling import profile as profile_lib
  from lagom_xla.profiling import xspace
  from lagom_xla.search.xla import evaluation

  trace = xspace.read(pathlib.Path(folder))
  has_module = any(process.modules for process in trace.processes)
  profile = profile_lib.of_trace(
    trace, None if has_module else target.schedule()
  )
  costs = costing_lib.of_profile(
    profile,
    target.cluster,
    max_channels=nccl_channels.most({}),
    switches=evaluation.switches({}, target.cluster),
    asked=evaluation.asked({}),
  )
  with measured.pricing(costs.measured):
    yield Priced(profile, costs)


def check_profile(arguments: argparse.Namespace, step: step_lib.Step) -> None:
  """Checks that a profile covers at least a part of the step."""
  from lagom_xla.costs import step as step_lib

  if arguments.profile is None:
    return
  shares = step_lib.measured_shares(step)
  if shares and not any(shares.values()):
    raise errors.TraceError(
      f"The trace in {arguments.profile} is not of"
      f" {step.analysis.module.name}: it has none of its kernels or"
      " collectives, nor kernels of equal work. Trace this step, or omit"
      " --profile."
    )


def advised(
  target: target_lib.Target, step: step_lib.Step, bar: progress.Bar
) -> tuple[explanation_lib.Advice, ...]:
  """Advice on the program; each change is compiled."""
  from lagom_xla.cli import naming
  from lagom_xla.explain import advice

  bar.say("trying changes of the program")
  with bar.told_of_compiles(naming.Names()):
    return advice.of_step(step, target)


def warn_of_repeated_work(
  target: target_lib.Target, step: step_lib.Step
) -> None:
  """Warns of matrix products that GPUs repeat instead of sharing."""
  from lagom_xla.compile import repeated_work

  if warning := repeated_work.warning(target, step.analysis.gemm_flops):
    output.say(warning)


def check_pictures(arguments: argparse.Namespace) -> None:
  """Checks, before any work, that pictures can be drawn and written.

  Raises:
    OutputError: they cannot.
  """
  page = getattr(arguments, "report", None)
  if page:
    from lagom_xla.report.page import report

    report.check_can_render()
  for name in filter(None, (page, getattr(arguments, "trace", None))):
    if reason := _obstacle(pathlib.Path(name).resolve()):
      raise errors.OutputError(f"Cannot write {name}: {reason}.")


def _obstacle(file: pathlib.Path) -> str:
  """Why a file cannot be written; "" if it can."""
  from lagom_xla.validation import whole_files

  if not file.parent.is_dir():
    return f"the folder {file.parent} does not exist"
  if file.is_dir():
    return "it is a folder"
  if not file.exists():
    try:
      whole_files.check_can_make(file)
    except OSError as error:
      return error.strerror or str(error)
  return ""


def write_trace(
  arguments: argparse.Namespace,
  profile: profile_lib.Profile | None,
  runs: Sequence[tuple[str, step_lib.Step, step_lib.Configuration]] = (),
) -> list[pathlib.Path]:
  """Writes the trace for --trace, if given, and returns its file.

  The trace has the measured profile and the predicted `runs`. Each run is a
  name, a step and settings.
  """
  if not arguments.trace:
    return []
  from lagom_xla.report import trace as trace_lib

  traced = [
    trace_lib.predicted(number, name, step, settings)
    for number, (name, step, settings) in enumerate(runs, 1)
  ]
  if profile is not None:
    traced += trace_lib.measured(len(runs) + 1, profile)
  file = pathlib.Path(arguments.trace)
  trace_lib.write(file, traced)
  return [file]


def measured_us(profile: profile_lib.Profile | None) -> float | None:
  """A profile's step time; None if it has no complete step."""
  if profile is None or not profile.whole_steps:
    return None
  return profile.step_time_us
