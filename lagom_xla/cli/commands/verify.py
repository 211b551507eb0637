# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""lagom-xla verify: what each knob of a plan did, if anything."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from lagom_xla.cli import options
from lagom_xla.cli import output

if TYPE_CHECKING:
  from lagom_xla.verify import verification as verification_lib

_EXAMPLES = f"""\
{options.TARGET_HELP}

A plan for another module, cluster or version of JAX is refused, and so is one
whose NCCL table no longer says what the plan does. The exit status is 1 when a
knob of the plan has no effect.

examples:
  lagom-xla verify plan train.py:train_step --cluster=16x8xh100
  lagom-xla verify plan step.hlo.xz --cluster=2x8xh100 --format=json"""


def add(commands) -> None:
  """Adds the command."""
  command = options.add_command(
    commands,
    "verify",
    _run,
    "Compiles TARGET with and without a plan, and shows for each knob what it"
    " did, or that it did nothing.",
    _EXAMPLES,
  )
  command.add_argument("plan", metavar="PLAN", help="a plan's folder or JSON")
  options.add_target(command)
  options.add_format(command)
  options.add_compiling(command)


def _run(arguments: argparse.Namespace) -> None:
  verification = _verify(arguments)
  from lagom_xla.report.printed import as_json
  from lagom_xla.report.terminal import terminal

  if arguments.format == "json":
    output.write_json(as_json.verification(verification))
  elif not arguments.quiet:
    terminal.show_verification(
      output.console(), verification, is_verbose=arguments.verbose
    )
  sys.exit(0 if verification.all_acted else 1)


def _verify(arguments: argparse.Namespace) -> verification_lib.Verification:
  from lagom_xla.cli import progress

  with (
    progress.Bar(lines=False, is_quiet=arguments.quiet) as bar,
    options.workers(arguments) as workers,
  ):
    from lagom_xla.apply import checked
    from lagom_xla.cli import naming
    from lagom_xla.verify import verification as verification_lib

    plan = checked.load(arguments.plan)
    bar.say(f"lowering {arguments.target}")
    target = options.load_target(arguments, workers)
    bar.expect(len(verification_lib.configs(plan)))
    names = naming.Names()
    names.add(plan.xla, "the plan")
    with bar.told_of_compiles(naming.of_today(names), are_steps=True):
      return verification_lib.verify(plan, target)
