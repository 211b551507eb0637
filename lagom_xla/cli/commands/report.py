# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""lagom-xla report: a plan's page, without compiling anything."""

from __future__ import annotations

import argparse
import pathlib

from lagom_xla.cli import options
from lagom_xla.cli import output

_EXAMPLES = """\
`lagom-xla tune` keeps report.json.gz beside a plan, and the page is made from
that: one file, which needs no network. What draws it is in lagom_xla[report].

examples:
  lagom-xla report plan                    # writes report.html
  lagom-xla report plan --out=before_after.html
  lagom-xla report plan --format=json      # what the page shows, as JSON"""


def add(commands) -> None:
  """Adds the command."""
  command = options.add_command(
    commands,
    "report",
    _run,
    "Writes a plan's page: the verdict, the step before and after, who slows"
    " whom, the settings, what was tried, and how to apply it.",
    _EXAMPLES,
  )
  command.add_argument("plan", metavar="PLAN", help="a plan's folder")
  command.add_argument(
    "--out",
    default="report.html",
    metavar="FILE",
    help="the page (default: %(default)s)",
  )
  options.add_format(command)


def _run(arguments: argparse.Namespace) -> None:
  from lagom_xla import validation
  from lagom_xla.report.page import kept
  from lagom_xla.report.page import rendering

  story = kept.read(pathlib.Path(arguments.plan))
  if arguments.format == "json":
    output.write_json(validation.write(story))
    return
  rendering.write(story, pathlib.Path(arguments.out))
  output.write_files([pathlib.Path(arguments.out)])
