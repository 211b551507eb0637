# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""lagom-xla doctor: what works on this machine, and what to install."""

from __future__ import annotations

import argparse
import sys
import textwrap
from typing import TYPE_CHECKING

from lagom_xla.cli import options
from lagom_xla.cli import output

if TYPE_CHECKING:
  from lagom_xla import doctor

_EXAMPLES = """\
Everything is tried: a small step is compiled for GPUs that need not be here,
the NCCL tuner plugin is built in a temporary folder, a profiler session opened.
The exit status is 1 where something does not work that inspect and tune need.

examples:
  lagom-xla doctor
  lagom-xla doctor --format=json"""

_WIDTH = 80


def add(commands) -> None:
  """Adds the command."""
  command = options.add_command(
    commands,
    "doctor",
    _run,
    "Tries what lagom_xla uses on this machine, and says what to install.",
    _EXAMPLES,
  )
  options.add_format(command)


def _run(arguments: argparse.Namespace) -> None:
  from lagom_xla.cli import progress

  with progress.Bar(lines=False, is_quiet=arguments.quiet) as bar:
    from lagom_xla import doctor
    from lagom_xla import validation

    bar.say("trying what lagom_xla uses here")
    checkup = doctor.examine()
  if arguments.format == "json":
    output.write_json(validation.write(checkup))
  else:
    _show(checkup)
  if not checkup.works:
    output.flush()
    sys.exit(1)


def _show(checkup: doctor.Checkup) -> None:
  if checkup.works:
    output.write("inspect and tune work here.")
  else:
    broken = [
      finding.name
      for finding in checkup.findings
      if finding.is_essential and finding.status != "works"
    ]
    output.write(f"inspect and tune do not work here: {', '.join(broken)}.")
  for version in checkup.versions:
    output.write(_row("version", version.package, version.version))
  for finding in checkup.findings:
    text = finding.found
    if finding.advice:
      text = f"{text.rstrip('.')}. {finding.advice}"
    output.write(_row(finding.status, finding.name, text))


def _row(status: str, name: str, text: str) -> str:
  """A line, or as many as the text needs."""
  start = f"  {status:<8} {name:<17} "
  return textwrap.fill(
    text,
    _WIDTH,
    initial_indent=start,
    subsequent_indent=" " * len(start),
    # Paths and commands are there to be copied.
    break_long_words=False,
    break_on_hyphens=False,
  )
