# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""lagom-xla inspect, explain and profile: overlaps of a step, and reasons."""

from __future__ import annotations

import argparse
import pathlib
import shlex
from typing import Any

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
    advice = options.advised(target, step, bar)
    following = [
      (options.command("explain", arguments), "what would help"),
      (options.command("tune", arguments), "searches for a plan"),
    ]
    bar.say("writing files")
    files = []
    if arguments.report:
      from lagom_xla.report.page import contents
      from lagom_xla.report.page import report

      files.append(pathlib.Path(arguments.report))
      step_us = options.measured_us(profile)
      page = contents.of_inspection(
        step, measured_us=step_us, advice=advice, following=following
      )
      report.draw(page, files[-1])
    runs = [("step", step, step.default)]
    files += options.write_trace(arguments, profile, runs)
  options.warn_of_repeated_work(target, step)
  from lagom_xla.report import results
  from lagom_xla.report import terminal

  output.write_result(
    arguments,
    lambda: results.inspection(step, costs, advice),
    lambda console: terminal.show_inspection(
      console,
      step,
      files,
      advice=advice,
      costed=costs,
      following=following,
      is_verbose=arguments.verbose,
    ),
    files,
  )


_EXPLAIN_EXAMPLES = f"""\
PLAN needs no compile: `lagom-xla tune` keeps explain.json.gz in its folder.
TARGET needs --cluster, and is compiled as it runs today.

{options.TARGET_HELP}

examples:
  lagom-xla explain plan                         # all exposed collectives
  lagom-xla explain plan reduce-scatter-start.4  # details of one collective
  lagom-xla explain train.py:train_step --cluster=1x8xh100
  lagom-xla explain plan --format=json"""


def add_explain(commands) -> None:
  """Adds the command."""
  command = options.add_command(
    commands,
    "explain",
    _run_explain,
    "Explains why kernels wait for each collective, which kernels it slows, the"
    " effect of a plan, and what you could change in the program.",
    _EXPLAIN_EXAMPLES,
  )
  command.add_argument(
    "target",
    metavar="PLAN|TARGET",
    help="a plan's folder, or with --cluster a step to compile: see below",
  )
  command.add_argument(
    "collective",
    metavar="COLLECTIVE",
    nargs="?",
    help="name of a collective, as in tables and traces (default: all)",
  )
  command.add_argument(
    "--cluster", metavar="CLUSTER", help="the cluster to compile TARGET for"
  )
  options.add_processes(command)
  options.add_arg(command)
  options.add_format(command)
  options.add_profile(command)
  options.add_compiling(command)
  parse = command.parse_known_args

  def parse_known_args(
    args: Any = None, namespace: Any = None
  ) -> tuple[Any, list[str]]:
    """Also accepts COLLECTIVE after options, unlike argparse."""
    found, extras = parse(args, namespace)
    if extras and found.collective is None and not extras[0].startswith("-"):
      found.collective = extras.pop(0)
    return found, extras

  command.parse_known_args = parse_known_args


def _run_explain(arguments: argparse.Namespace) -> None:
  from lagom_xla.report import notes

  command = f"{notes.program_name()} explain {shlex.quote(arguments.target)}"
  if arguments.cluster is None:
    for option in ("arg", "profile"):
      if getattr(arguments, option):
        arguments.usage_error(f"--{option} needs a TARGET and --cluster")
    from lagom_xla.explain import explanation as explanation_lib

    explanation = explanation_lib.read(pathlib.Path(arguments.target))
  else:
    command = options.command("explain", arguments)
    options.check_target(arguments)
    with options.at_work(arguments) as (bar, workers):
      from lagom_xla.explain import explaining
      from lagom_xla.explain import explanation as explanation_lib
      from lagom_xla.explain import sentences

      target, step, _ = options.inspected(arguments, bar, workers)
      advice = options.advised(target, step, bar)
      bar.say("explaining the waits")
      tune = options.command("tune", arguments)
      commands = sentences.Commands(
        options=tune, in_process=f"{tune} --in-process"
      )
      explanation = explaining.of_step(step, advice, commands)
  from lagom_xla.report import explanations
  from lagom_xla.report import layout

  name = arguments.collective
  if arguments.format == "json":
    if name is not None:
      explanation = explanation_lib.only(explanation, name)
    output.write_json(explanation)
  elif name is not None:
    lines = explanations.of_collective(explanation, name)
    layout.say(output.console(), *lines)
  else:
    lines = explanations.of_step(explanation, command)
    layout.say(output.console(), *lines)


_PROFILE_EXAMPLES = """\
what to trace: a few steps in every process, after a warmup:
  with jax.profiler.trace("/shared/profile"):
    for _ in range(5):
      state, loss = train_step(state, batch)
    jax.block_until_ready(loss)
Copy the folders of all hosts into one. Command buffers launch many kernels at
once, so compile the traced step with xla_gpu_enable_command_buffer="".

examples:
  lagom-xla profile /shared/profile
  lagom-xla profile /shared/profile --module=step.hlo.pb --format=json"""


def add_profile(commands) -> None:
  """Adds the command."""
  command = options.add_command(
    commands,
    "profile",
    _run_profile,
    "Reads jax.profiler's traces, and shows which collectives made kernels wait"
    " or slowed them, and which rank is late.",
    _PROFILE_EXAMPLES,
  )
  command.add_argument(
    "folder",
    metavar="DIR",
    help="the folder that jax.profiler.trace wrote, or one XSpace",
  )
  command.add_argument(
    "--module",
    metavar="FILE",
    help="the step's scheduled HLO, if the trace does not contain it",
  )
  options.add_trace(command)
  options.add_format(command)


def _run_profile(arguments: argparse.Namespace) -> None:
  from lagom_xla.cli import progress

  options.check_pictures(arguments)
  with progress.Bar(lines=False, is_quiet=arguments.quiet) as bar:
    from lagom_xla import profiling
    from lagom_xla.passes import hlo
    from lagom_xla.report import profile_results
    from lagom_xla.report import terminal

    bar.say(f"reading {arguments.folder}")
    module = hlo.load(arguments.module) if arguments.module else None
    profile = profiling.read(arguments.folder, module)
    files = options.write_trace(arguments, profile)
  output.write_result(
    arguments,
    lambda: profile_results.profile(profile),
    lambda console: terminal.show_profile(
      console, profile, files, is_verbose=arguments.verbose
    ),
    files,
  )
