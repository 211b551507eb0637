# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""lagom-xla doctor, schema and completion: the installation itself."""

from __future__ import annotations

import argparse
import importlib
import sys
import textwrap
from typing import TYPE_CHECKING, Any

from lagom_xla import errors
from lagom_xla.cli import options
from lagom_xla.cli import output

if TYPE_CHECKING:
  from lagom_xla import doctor

_DOCTOR_EXAMPLES = """\
The command compiles a small step for GPUs, builds the NCCL tuner plugin in a
temporary folder, and opens a profiler session. The exit status is 1 if inspect
and tune do not work.

examples:
  lagom-xla doctor
  lagom-xla doctor --format=json"""

_WIDTH = 80


def add_doctor(commands) -> None:
  """Adds the command."""
  command = options.add_command(
    commands,
    "doctor",
    _run_doctor,
    "Checks what works on this machine, and says what to install.",
    _DOCTOR_EXAMPLES,
  )
  options.add_format(command)


def _run_doctor(arguments: argparse.Namespace) -> None:
  from lagom_xla.cli import progress

  with progress.Bar(lines=False, is_quiet=arguments.quiet) as bar:
    from lagom_xla import doctor

    bar.say("checking what works here")
    checkup = doctor.examine()
  if arguments.format == "json":
    output.write_json(checkup)
  else:
    _show(checkup)
  if not checkup.works:
    output.flush()
    sys.exit(1)


def _show(checkup: doctor.Checkup) -> None:
  broken = [
    finding.name
    for finding in checkup.findings
    if finding.is_essential and finding.status != "works"
  ]
  if broken:
    output.write(f"inspect and tune do not work here: {', '.join(broken)}.")
  else:
    output.write("inspect and tune work here.")
  rows = [("version", it.package, it.version) for it in checkup.versions]
  for finding in checkup.findings:
    text = finding.found
    if finding.advice:
      text = f"{text.rstrip('.')}. {finding.advice}"
    rows.append((finding.status, finding.name, text))
  for status, name, text in rows:
    start = f"  {status:<8} {name:<17} "
    lines = textwrap.fill(
      text,
      _WIDTH,
      initial_indent=start,
      subsequent_indent=" " * len(start),
      # Keep paths and commands copyable.
      break_long_words=False,
      break_on_hyphens=False,
    )
    output.write(lines)


# Name -> the type of its schema, or the module with its schema().
FILES = {
  "plan": "lagom_xla.plan",
  "cluster": "lagom_xla.cluster",
  "inspect": "lagom_xla.report.results:Inspection",
  "tune": "lagom_xla.report.results:Tuning",
  "verify": "lagom_xla.report.results:Verification",
  "profile": "lagom_xla.report.profile_results:Profile",
  "report": "lagom_xla.report.page.report:Report",
  "explain": "lagom_xla.explain.explanation:Explanation",
  "whatif": "lagom_xla.whatif.comparison:Comparison",
  "calibrate": "lagom_xla.report.calibration:Calibrated",
  "clusters": "lagom_xla.report.clusters:Clusters",
  "doctor": "lagom_xla.doctor:Checkup",
  "flags": "lagom_xla.flags.check:Printed",
  "knobs": "lagom_xla.report.knobs:KnownKnobs",
  "trials": "lagom_xla.live.trial_line",
}
# Nested types with tables under another name: a plan contains a cluster, and a
# tuning contains a plan.
_ELSEWHERE = {
  "plan": ("Cluster",),
  "tune": ("Plan", "MeasuredCosts"),
  "calibrate": ("Calibration",),
}
_SCHEMA_EXAMPLES = """\
examples:
  lagom-xla schema plan > plan.schema.json
  lagom-xla schema cluster --format=markdown"""


def add_schema(commands) -> None:
  """Adds the command."""
  command = options.add_command(
    commands,
    "schema",
    _run_schema,
    "Prints a JSON schema: of plan.json, of a file for --cluster, of a"
    " command's --format=json, or of a line of lagom_xla.tune(log=FILE).",
    _SCHEMA_EXAMPLES,
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
  """The JSON schema of a name in FILES."""
  from lagom_xla import validation

  name, _, type_ = FILES[file].partition(":")
  module = importlib.import_module(name)
  return validation.schema(getattr(module, type_)) if type_ else module.schema()


def _run_schema(arguments: argparse.Namespace) -> None:
  from lagom_xla.validation import json_schema

  schema = schema_of(arguments.file)
  if arguments.format == "json":
    output.write_json(schema)
  else:
    elsewhere = _ELSEWHERE.get(arguments.file, ())
    output.write(json_schema.markdown(schema, elsewhere=elsewhere).rstrip("\n"))


_COMPLETION_EXAMPLES = """\
The script is self-contained. To write it, install the extra `completion`
(shtab).

examples:
  source <(lagom-xla completion bash)      # in ~/.bashrc
  lagom-xla completion zsh > ~/.zfunc/_lagom-xla   # a folder of $fpath"""

# Metavar of an argument -> shtab's kind of completion.
_COMPLETED = {
  **dict.fromkeys(("FILE", "TARGET"), "FILE"),
  **dict.fromkeys(("DIR", "PLAN"), "DIRECTORY"),
}


def add_completion(commands) -> None:
  """Adds the command."""
  command = options.add_command(
    commands,
    "completion",
    _run_completion,
    "Prints a completion script for bash or zsh.",
    _COMPLETION_EXAMPLES,
  )
  command.add_argument(
    "shell", choices=("bash", "zsh"), metavar="SHELL", help="bash or zsh"
  )


def _run_completion(arguments: argparse.Namespace) -> None:
  try:
    import shtab
  except ImportError as error:
    raise errors.OutputError(
      "Shell completion needs shtab, which is not installed: pip install"
      " '.[completion]' in a checkout of lagom_xla."
    ) from error
  parser = arguments.parser
  (commands,) = (
    action.choices
    for action in parser._actions
    if isinstance(action, argparse._SubParsersAction)
  )
  for command in commands.values():
    for action in command._actions:
      if action.choices is None and action.metavar in _COMPLETED:
        way = _COMPLETED[action.metavar]
        setattr(action, "complete", getattr(shtab, way))  # noqa: B010
  output.write(shtab.complete(parser, shell=arguments.shell).rstrip("\n"))
