# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""lagom-xla doctor: what works on this machine, and what to install."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from lagom_xla.cli import command as command_lib
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


def add(commands) -> None:
  """Adds the command."""
  command = command_lib.add(
    commands,
    "doctor",
    _run,
    "Tries what lagom_xla uses on this machine, and says what to install.",
    _EXAMPLES,
  )
  command_lib.add_format(command)


def _run(arguments: argparse.Namespace) -> None:
  from lagom_xla import doctor
  from lagom_xla import validation

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
    output.write(f"  version  {version.package:<18} {version.version}")
  for finding in checkup.findings:
    text = f"  {finding.status:<8} {finding.name:<18} {finding.found}"
    if finding.advice:
      text = f"{text.rstrip('.')}. {finding.advice}"
    output.write(text)
