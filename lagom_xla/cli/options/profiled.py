# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""--profile=DIR of commands: costs as a run measured them.

with profiled.pricing(arguments, target) as costed:
  tuning = tuner.tune(target)
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
import contextlib
import pathlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from lagom_xla.cli.console import progress
  from lagom_xla.compile import target as target_lib
  from lagom_xla.costs import step as step_lib
  from lagom_xla.profiling import costing as costing_lib


def add(command: argparse.ArgumentParser) -> None:
  """Adds --profile."""
  command.add_argument(
    "--profile",
    metavar="DIR",
    help="what jax.profiler.trace wrote of a run of this step: costs are"
    " measured where it has them, and scaled by what it shows elsewhere",
  )


@contextlib.contextmanager
def pricing(
  arguments: argparse.Namespace, target: target_lib.Target
) -> Iterator[costing_lib.Costing | None]:
  """Prices what is inside by the profile that the arguments of `add` name.

  Args:
    arguments: the arguments.
    target: what is priced; its schedule is the module that ran, if the trace
      does not hold that. It ran under the cap on channels of XLA_FLAGS.

  Yields:
    What the profile says of costs; None without a profile.

  Raises:
    TraceError: there is no trace, or it is of another step.
    CompileError: the target's schedule is needed and cannot be had.
  """
  if arguments.profile is None:
    yield None
    return
  from lagom_xla.costs import measured
  from lagom_xla.flags import nccl_channels
  from lagom_xla.profiling import costing as costing_lib
  from lagom_xla.profiling import profile as profile_lib
  from lagom_xla.profiling import xspace

  trace = xspace.read(pathlib.Path(arguments.profile))
  has_module = any(process.modules for process in trace.processes)
  module = None if has_module else target.schedule()
  profile = profile_lib.of_trace(trace, module)
  costed = costing_lib.of_profile(
    profile, target.cluster, max_channels=nccl_channels.most({})
  )
  with measured.pricing(costed.measured):
    yield costed


def inspected(
  arguments: argparse.Namespace, target: target_lib.Target, bar: progress.Bar
) -> tuple[step_lib.Step, costing_lib.Costing | None]:
  """The step as it runs today, and what the profile says of its costs.

  Args:
    arguments: those of `add`.
    target: what is inspected.
    bar: which says what goes on.

  Raises:
    TraceError: there is no trace, or it is of another step.
    CompileError: XLA refuses the target.
  """
  from lagom_xla.cli.console import naming
  from lagom_xla.tuner import tuner

  bar.say("reading the profile" if arguments.profile else "costing the step")
  with (
    bar.told_of_compiles(naming.of_today()),
    pricing(arguments, target) as costed,
  ):
    step = tuner.inspect(target)
    check(arguments, step)
    return step, costed


def check(arguments: argparse.Namespace, step: step_lib.Step) -> None:
  """Checks that the profile, if there is one, has something of a step.

  Args:
    arguments: those of `add`.
    step: as it runs today, priced by the profile.

  Raises:
    TraceError: it has nothing: it is another program's.
  """
  from lagom_xla import errors
  from lagom_xla.costs import coverage

  if arguments.profile is None:
    return
  shares = coverage.measured_shares(step)
  if shares and not any(shares.values()):
    raise errors.TraceError(
      f"The trace in {arguments.profile} is of another step than"
      f" {step.analysis.module.name}: it has none of its kernels or"
      " collectives, nor kernels of equal work. Trace this step, or leave out"
      " --profile."
    )
