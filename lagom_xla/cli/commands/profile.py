# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""lagom-xla profile: the overlaps of a run as they were measured."""

from __future__ import annotations

import argparse

from lagom_xla.cli import options
from lagom_xla.cli import output
from lagom_xla.cli import pictures

_EXAMPLES = """\
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


def add(commands) -> None:
  """Adds the command."""
  command = options.add_command(
    commands,
    "profile",
    _run,
    "Shows from jax.profiler's traces who waited for whom, who slowed whom, and"
    " which rank is late, as measured.",
    _EXAMPLES,
  )
  command.add_argument(
    "folder", metavar="DIR", help="what jax.profiler.trace wrote, or one XSpace"
  )
  command.add_argument(
    "--module",
    metavar="FILE",
    help="the step's scheduled HLO, where the trace does not hold it",
  )
  pictures.add_trace(command)
  options.add_format(command)


def _run(arguments: argparse.Namespace) -> None:
  from lagom_xla.cli import progress

  pictures.check(arguments)
  with progress.Bar(lines=False, is_quiet=arguments.quiet) as bar:
    from lagom_xla import profiling
    from lagom_xla.passes import hlo
    from lagom_xla.report.printed import as_json
    from lagom_xla.report.terminal import profile_tables

    bar.say(f"reading {arguments.folder}")
    module = hlo.load(arguments.module) if arguments.module else None
    profile = profiling.read(arguments.folder, module)
    files = pictures.of_profile(arguments, profile)
  if arguments.format == "json":
    output.write_json(as_json.profile(profile))
  elif arguments.quiet:
    output.write_files(files)
  else:
    profile_tables.show(
      output.console(), profile, files, is_verbose=arguments.verbose
    )
