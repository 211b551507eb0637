# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""lagom-xla report, verify and plugin: show, check and load a plan."""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import sys

from lagom_xla import errors
from lagom_xla.cli import options
from lagom_xla.cli import output

_REPORT_EXAMPLES = """\
The page is one file that needs no network. It is drawn from report.json.gz,
which `lagom-xla tune` keeps in the plan's folder. It needs the extra `report`.

examples:
  lagom-xla report plan                    # writes report.html
  lagom-xla report plan --out=before_after.html
  lagom-xla report plan --format=json      # what the page shows, as JSON"""


def add_report(commands) -> None:
  """Adds the command."""
  command = options.add_command(
    commands,
    "report",
    _run_report,
    "Writes a plan's HTML page: the verdict, the step before and after,"
    " slowdowns, the settings, all candidates, and how to apply the plan.",
    _REPORT_EXAMPLES,
  )
  command.add_argument("plan", metavar="PLAN", help="a plan's folder")
  command.add_argument(
    "--out",
    default="report.html",
    metavar="FILE",
    help="the page (default: %(default)s)",
  )
  options.add_format(command)


def _run_report(arguments: argparse.Namespace) -> None:
  from lagom_xla.report.page import report as report_lib

  data = report_lib.read(pathlib.Path(arguments.plan))
  if arguments.format == "json":
    output.write_json(data)
    return
  report_lib.draw(data, pathlib.Path(arguments.out))
  output.write(f"Wrote {arguments.out}")


_VERIFY_EXAMPLES = f"""\
{options.TARGET_HELP}

A plan for another module, cluster or JAX version is refused, and so is a plan
with the wrong NCCL table. The exit status is 1 if a part of the plan has no
effect, if the step is longer with the plan or does not fit in memory, or if
env.sh beside the plan sets something else.

examples:
  lagom-xla verify plan train.py:train_step --cluster=16x8xh100
  lagom-xla verify plan step.hlo.xz --cluster=2x8xh100 --format=json"""


def add_verify(commands) -> None:
  """Adds the command."""
  command = options.add_command(
    commands,
    "verify",
    _run_verify,
    "Compiles TARGET with and without a plan, and shows the effect of each part"
    " of the plan, if any.",
    _VERIFY_EXAMPLES,
  )
  command.add_argument("plan", metavar="PLAN", help="a plan's folder or JSON")
  options.add_target(command)
  options.add_format(command)
  options.add_compiling(command)


def _run_verify(arguments: argparse.Namespace) -> None:
  _leave_out_sourced_flags()
  with options.at_work(arguments) as (bar, workers):
    from lagom_xla.apply import checked
    from lagom_xla.apply import files
    from lagom_xla.cli import naming
    from lagom_xla.verify import verification as verification_lib

    plan = checked.load(arguments.plan)
    target = options.load_target(arguments, bar, workers)
    bar.expect(len(verification_lib.configs(plan)))
    names = naming.Names([(plan.xla, "the plan")])
    with bar.told_of_compiles(names, are_steps=True):
      verification = verification_lib.verify(plan, target)
  differs = files.differs_in_env(plan, arguments.plan)
  verification = dataclasses.replace(verification, differs_in_env=differs)
  from lagom_xla.report import results
  from lagom_xla.report import terminal

  output.write_result(
    arguments,
    lambda: results.verification(verification),
    lambda console: terminal.show_verification(
      console, verification, is_verbose=arguments.verbose
    ),
  )
  sys.exit(0 if verification.is_good else 1)


def _leave_out_sourced_flags() -> None:
  """Removes env.sh's part of XLA_FLAGS: the plan is compared with the rest."""
  flags = os.environ.get("XLA_FLAGS", "")
  if (sourced := os.environ.pop("LAGOM_XLA_FLAGS", "")) and sourced in flags:
    os.environ["XLA_FLAGS"] = flags.replace(sourced, "", 1).strip()


_PLUGIN_EXAMPLES = """\
If the installation has no plugin, it is built on first use, with a C compiler.
With PLAN, the output is shell lines that load the plugin with the plan's table.
If the plugin cannot be built, they set the closest NCCL variables.

examples:
  lagom-xla plugin
  source <(lagom-xla plugin plan)   # in the script that starts each process"""

_FALLBACK = """\
Without the plugin, NCCL's own variables can apply part of a plan:
  lagom-xla plugin PLAN   one algorithm and protocol per function (NCCL_ALGO,
                          NCCL_PROTO), and the cap
  lagom-xla flags PLAN    the cap on the channels of all collectives
                          (NCCL_MAX_CTAS), and XLA_FLAGS"""


def add_plugin(commands) -> None:
  """Adds the command."""
  command = options.add_command(
    commands,
    "plugin",
    _run_plugin,
    "Shows the NCCL tuner plugin's path and interfaces, or prints the shell"
    " lines that load it with a plan.",
    _PLUGIN_EXAMPLES,
  )
  command.add_argument(
    "plan", metavar="PLAN", nargs="?", help="a plan's folder"
  )
  command.add_argument(
    "--path", action="store_true", help="print only the plugin's path"
  )
  command.add_argument(
    "--table",
    metavar="FILE",
    help="a plan's NCCL table; a damaged one is refused (status 2)",
  )
  command.add_argument(
    "--checksum", metavar="HEX", help="the checksum that --table must have"
  )


def _run_plugin(arguments: argparse.Namespace) -> None:
  from lagom_xla.apply.nccl import build

  if arguments.table is not None:
    _check_table(pathlib.Path(arguments.table), arguments.checksum)
  try:
    path = build.ensure()
    interfaces = build.interfaces(path)
  except build.BuildError as error:
    text = f"There is no NCCL tuner plugin. {error}"
    if arguments.plan is None or arguments.path:
      print(f"lagom-xla: {text}", file=sys.stderr)
      if not arguments.quiet:
        print(_FALLBACK, file=sys.stderr)
      sys.exit(1)
    output.say(text)
    _print_lines(arguments.plan, None)
    return
  if arguments.plan is not None and not arguments.path:
    _print_lines(arguments.plan, path)
    return
  output.write(str(path))
  if not arguments.path:
    for interface in interfaces:
      output.write(
        f"  ncclTunerPlugin_{interface}  for NCCL"
        f" {build.INTERFACES[interface]} and later"
      )


def _check_table(table: pathlib.Path, checksum: str | None) -> None:
  from lagom_xla.apply.nccl import table as table_lib

  read = table_lib.read(table)
  found = table_lib.checksum(read.rules, version=read.version)
  if checksum is not None and found != checksum:
    raise errors.TableError(
      f"{table} is not the table of its plan: its checksum is {found}, not"
      f" {checksum}. Copy the plan's whole folder, or make the plan again."
    )


def _print_lines(name: str, plugin: pathlib.Path | None) -> None:
  """Prints shell lines that load a plugin with a plan.

  Without a plugin, the lines set the closest NCCL variables.
  """
  from lagom_xla.apply import checked
  from lagom_xla.apply import env as env_lib
  from lagom_xla.apply.nccl import table as table_lib
  from lagom_xla.costs.nccl import environment

  if plugin is None:
    plan = checked.load(name)
    per_function = env_lib.per_function(table_lib.rules_of(plan.nccl_settings))
    output.write(env_lib.nccl_lines({**plan.nccl_env, **per_function}))
    return
  folder = pathlib.Path(name).absolute()
  plan = checked.load(folder)
  rules = table_lib.rules_of(plan.nccl_settings)
  table = folder / env_lib.TABLE
  if not table.is_file():
    raise errors.PlanError(
      f"{folder} has no {env_lib.TABLE}; pass the folder that lagom-xla tune"
      " wrote."
    )
  if not rules:
    output.write("# The plan keeps NCCL's own choices: no plugin is needed.")
    return
  values = {
    "NCCL_TUNER_PLUGIN": str(plugin),
    "LAGOM_XLA_NCCL_TABLE": str(table),
    "LAGOM_XLA_NCCL_CHECKSUM": table_lib.checksum(rules),
  }
  output.write(env_lib.exports(values))
  output.write(env_lib.UNSET_FOR_TABLE)
  if (here := environment.costed()) != plan.nccl_variables:
    output.say(
      f"NCCL's variables differ: {environment.in_words(here)} here, and"
      f" {environment.in_words(plan.nccl_variables)} where the plan was made."
      " Settings that conflict with a variable have no effect."
    )
