# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""lagom-xla inspect and profile: which collectives overlap which kernels."""

from __future__ import annotations

import argparse
import pathlib

from lagom_xla.cli import options
from lagom_xla.cli import output

_EXAMPLES = f"""\
{options.TARGET_HELP}

examples:
  lagom-xla inspect train.py:train_step --cluster=1x8xh100
  lagom-xla inspect train.py:train_step --cluster=2x8xa100_80 --arg=model=8b
  lagom-xla inspect train.py:train_step --cluster=1x8xh100 --profile=trace
  lagom-xla inspect step.hlo.xz --cluster=2x8xh100 --format=json"""


def add(commands) -> None:
  """Adds the command."""
  command = options.add_command(
    commands,
    "inspect",
    _run,
    "Shows which collectives overlap which kernels, and who waits for whom.",
    _EXAMPLES,
  )
  options.add_target(command)
  options.add_format(command)
  options.add_profile(command)
  options.add_pictures(command)
  options.add_compiling(command)


def _run(arguments: argparse.Namespace) -> None:
  options.check_pictures(arguments)
  options.check_target(arguments)
  with options.at_work(arguments) as (bar, workers):
    target, step, (profile, costs) = options.inspected(arguments, bar, workers)
    bar.say("writing what was asked for")
    files = []
    if arguments.report:
      from lagom_xla.report.page import contents
      from lagom_xla.report.page import report

      files.append(pathlib.Path(arguments.report))
      step_us = options.measured_us(profile)
      story = contents.of_inspection(step, measured_us=step_us)
      report.draw(story, files[-1])
    runs = [("step", step, step.default)]
    files += options.write_trace(arguments, profile, runs)
  options.warn_of_repeated_work(target, step)
  from lagom_xla.report import results
  from lagom_xla.report import terminal

  output.write_result(
    arguments,
    lambda: results.inspection(step, costs),
    lambda console: terminal.show_inspection(
      console, step, files, costed=costs, is_verbose=arguments.verbose
    ),
    files,
  )


_PROFILE_EXAMPLES = """\
what to trace: a few steps, in every process, after the first ones have run:
  with jax.profiler.trace("/shared/profile"):
    for _ in range(5):
      state, loss = train_step(state, batch)
    jax.block_until_ready(loss)
Copy the folders of all hosts into one. With command buffers XLA launches many
kernels as one: build the step with xla_gpu_enable_command_buffer="" for this.

examples:
  lagom-xla profile /shared/profile
  lagom-xla profile /shared/profile --module=step.hlo.pb --format=json"""


def add_profile(commands) -> None:
  """Adds the command."""
  command = options.add_command(
    commands,
    "profile",
    _run_profile,
    "Shows from jax.profiler's traces who waited for whom, who slowed whom, and"
    " which rank is late, as measured.",
    _PROFILE_EXAMPLES,
  )
  command.add_argument(
    "folder", metavar="DIR", help="what jax.profiler.trace wrote, or one XSpace"
  )
  command.add_argument(
    "--module",
    metavar="FILE",
    help="the step's scheduled HLO, where the trace does not hold it",
  )
  options.add_trace(command)
  options.add_format(command)


def _run_profile(arguments: argparse.Namespace) -> None:
  from lagom_xla.cli import progress

  options.check_pictures(arguments)
  with progress.Bar(lines=False, is_quiet=arguments.quiet) as bar:
    from lagom_xla import profiling
    from lagom_xla.passes import hlo
    from lagom_xla.report import results
    from lagom_xla.report import terminal

    bar.say(f"reading {arguments.folder}")
    module = hlo.load(arguments.module) if arguments.module else None
    profile = profiling.read(arguments.folder, module)
    files = options.write_trace(arguments, profile)
  output.write_result(
    arguments,
    lambda: results.profile(profile),
    lambda console: terminal.show_profile(
      console, profile, files, is_verbose=arguments.verbose
    ),
    files,
  )
