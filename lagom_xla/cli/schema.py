# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""lagom-xla schema: the JSON schemas of the files that are read and written."""

from __future__ import annotations

import argparse

from lagom_xla.cli import command as command_lib
from lagom_xla.cli import output

_EXAMPLES = """\
examples:
  lagom-xla schema plan > plan.schema.json
  lagom-xla schema cluster --format=markdown"""


def add(commands) -> None:
  """Adds the command."""
  command = command_lib.add(
    commands,
    "schema",
    _run,
    "Prints the JSON schema of plan.json, of a file for --cluster, or of what"
    " `lagom-xla report` and `lagom-xla explain` print with --format=json.",
    _EXAMPLES,
  )
  command.add_argument(
    "file",
    choices=("plan", "cluster", "report", "explain"),
    metavar="FILE",
    help="plan, cluster, report or explain",
  )
  command.add_argument(
    "--format",
    choices=("json", "markdown"),
    default="json",
    help="the schema, or tables of its fields (default: %(default)s)",
  )


def _run(arguments: argparse.Namespace) -> None:
  from lagom_xla.validation import tables

  elsewhere = []
  if arguments.file == "plan":
    from lagom_xla import plan as plan_lib

    schema, elsewhere = plan_lib.schema(), ["Cluster"]
  elif arguments.file == "report":
    from lagom_xla.report.page import story

    schema = story.schema()
  elif arguments.file == "explain":
    from lagom_xla.explain import explanation

    schema = explanation.schema()
  else:
    from lagom_xla import cluster as cluster_lib

    schema = cluster_lib.schema()
  if arguments.format == "json":
    output.write_json(schema)
  else:
    output.write(tables.markdown(schema, elsewhere=elsewhere).rstrip("\n"))
