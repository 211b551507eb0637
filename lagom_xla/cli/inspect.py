# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""lagom-xla inspect: which collectives overlap which kernels."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from lagom_xla.cli import command as command_lib
from lagom_xla.cli import compiling
from lagom_xla.cli import output

if TYPE_CHECKING:
  from lagom_xla.costs import step as step_lib

_EXAMPLES = f"""\
{command_lib.TARGET_HELP}

examples:
  lagom-xla inspect train.py:train_step --cluster=1x8xh100
  lagom-xla inspect train.py:train_step --cluster=2x8xa100_80 --arg=model=8b
  lagom-xla inspect step.hlo.xz --cluster=2x8xh100 --format=json"""


def add(commands) -> None:
  """Adds the command."""
  command = command_lib.add(
    commands,
    "inspect",
    _run,
    "Shows which collectives overlap which kernels, and who waits for whom.",
    _EXAMPLES,
  )
  command_lib.add_target(command)
  command_lib.add_format(command)
  compiling.add(command)


def _run(arguments: argparse.Namespace) -> None:
  from lagom_xla.report import as_json
  from lagom_xla.report import terminal

  step = _inspect(arguments)
  if arguments.format == "json":
    output.write_json(as_json.inspection(step))
  else:
    terminal.show_inspection(output.console(), step)


def _inspect(arguments: argparse.Namespace) -> step_lib.Step:
  from lagom_xla.cli import progress

  with (
    progress.Bar(lines=False) as bar,
    compiling.workers(arguments) as workers,
  ):
    from lagom_xla import tuner

    bar.say("lowering")
    target = command_lib.load_target(arguments, workers)
    bar.say("compiling")
    step = tuner.inspect(target)
  command_lib.warn_of_repeated_work(target, step)
  return step
