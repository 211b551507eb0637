# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""lagom-xla explain: why collectives are exposed, and what to do about it."""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

from lagom_xla.cli import options
from lagom_xla.cli import output

_EXAMPLES = f"""\
`lagom-xla tune` keeps explain.json.gz beside a plan, so PLAN compiles nothing.
With --cluster it is a TARGET, which is compiled as it runs today.

{options.TARGET_HELP}

examples:
  lagom-xla explain plan                         # all that are exposed
  lagom-xla explain plan reduce-scatter-start.4  # all about one of them
  lagom-xla explain train.py:train_step --cluster=1x8xh100
  lagom-xla explain plan --format=json"""


def add(commands) -> None:
  """Adds the command."""
  command = options.add_command(
    commands,
    "explain",
    _run,
    "Says why each collective is exposed, which kernels it slows, what a plan"
    " does about it, and what could be changed in the program.",
    _EXAMPLES,
  )
  command.add_argument(
    "target",
    metavar="PLAN|TARGET",
    help="a plan's folder, or with --cluster what to compile: see below",
  )
  command.add_argument(
    "collective",
    metavar="COLLECTIVE",
    nargs="?",
    help="the name of one, as tables and traces have it (default: all)",
  )
  command.add_argument(
    "--cluster", metavar="CLUSTER", help="of a TARGET: what it is compiled for"
  )
  options.add_arg(command)
  options.add_format(command)
  options.add_profile(command)
  options.add_compiling(command)
  parse = command.parse_known_args

  def parse_known_args(
    args: Any = None, namespace: Any = None
  ) -> tuple[Any, list[str]]:
    """Takes COLLECTIVE after options, too, where argparse leaves it over."""
    found, extras = parse(args, namespace)
    if extras and found.collective is None and not extras[0].startswith("-"):
      found.collective = extras.pop(0)
    return found, extras

  command.parse_known_args = parse_known_args


def _run(arguments: argparse.Namespace) -> None:
  asked = [arguments.target]
  if arguments.cluster is None:
    for given in ("arg", "profile"):
      if getattr(arguments, given):
        arguments.usage_error(f"--{given} is of a TARGET, with its --cluster")
    from lagom_xla.explain import explanation as explanation_lib

    explanation = explanation_lib.read(pathlib.Path(arguments.target))
  else:
    asked.append(f"--cluster={arguments.cluster}")
    asked += [f"--arg={keyword}" for keyword in arguments.arg]
    options.check_target(arguments)
    with options.at_work(arguments) as (bar, workers):
      from lagom_xla.explain import explaining
      from lagom_xla.explain import explanation as explanation_lib

      _, step, _ = options.inspected(arguments, bar, workers)
      bar.say("explaining what is exposed")
      explanation = explaining.of_step(step)
  from lagom_xla.report import explanations
  from lagom_xla.report import layout
  from lagom_xla.report import notes

  name = arguments.collective
  if arguments.format == "json":
    if name is not None:
      explanation = explanation_lib.only(explanation, name)
    output.write_json(explanation)
  elif name is not None:
    told = explanations.of_collective(explanation, name)
    layout.say(output.console(), *told)
  else:
    command = f"{notes.program_name()} explain {' '.join(asked)}"
    told = explanations.of_step(explanation, command)
    layout.say(output.console(), *told)
