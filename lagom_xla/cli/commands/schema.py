# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""lagom-xla schema: the JSON schemas of the files that are read and written."""

from __future__ import annotations

import argparse
import importlib
from typing import Any

from lagom_xla.cli import options
from lagom_xla.cli import output

# What has a schema -> the module whose `schema()` makes it.
FILES = {
  "plan": "lagom_xla.plan",
  "cluster": "lagom_xla.cluster",
  "inspect": "lagom_xla.report.printed.inspection",
  "tune": "lagom_xla.report.printed.tuning",
  "verify": "lagom_xla.report.printed.verification",
  "profile": "lagom_xla.report.printed.profile",
  "report": "lagom_xla.report.page.story",
  "explain": "lagom_xla.explain.explanation",
  "whatif": "lagom_xla.whatif.comparison",
  "calibrate": "lagom_xla.report.printed.calibration",
  "clusters": "lagom_xla.report.printed.clusters",
  "doctor": "lagom_xla.doctor",
  "flags": "lagom_xla.report.printed.flags",
  "trials": "lagom_xla.live.history.trial_line",
}
# What is in another and has its tables elsewhere: a plan has its cluster in
# it, a tuning its plan.
_ELSEWHERE = {
  "plan": ("Cluster",),
  "tune": ("Plan", "MeasuredCosts"),
  "calibrate": ("Calibration",),
}
_EXAMPLES = """\
examples:
  lagom-xla schema plan > plan.schema.json
  lagom-xla schema cluster --format=markdown"""


def add(commands) -> None:
  """Adds the command."""
  command = options.add_command(
    commands,
    "schema",
    _run,
    "Prints the JSON schema of plan.json, of a file for --cluster, of what a"
    " command prints with --format=json, or of a line of the trials that"
    " lagom_xla.tune(log=FILE) adds to.",
    _EXAMPLES,
  )
  command.add_argument(
    "file",
    choices=tuple(FILES),
    metavar="FILE",
    help=", ".join(FILES),
  )
  command.add_argument(
    "--format",
    choices=("json", "markdown"),
    default="json",
    help="the schema, or tables of its fields (default: %(default)s)",
  )


def schema_of(file: str) -> dict[str, Any]:
  """The JSON schema of what has one."""
  return importlib.import_module(FILES[file]).schema()


def _run(arguments: argparse.Namespace) -> None:
  from lagom_xla.validation import json_schema

  schema = schema_of(arguments.file)
  if arguments.format == "json":
    output.write_json(schema)
  else:
    elsewhere = _ELSEWHERE.get(arguments.file, ())
    output.write(json_schema.markdown(schema, elsewhere=elsewhere).rstrip("\n"))
