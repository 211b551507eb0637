# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""lagom-xla flags and knobs: XLA options to set, and the options to try.

`flags` prints a plan as shell lines, merges it with XLA_FLAGS, or checks an
XLA_FLAGS.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import os
import sys
from typing import TYPE_CHECKING

from lagom_xla.cli import options
from lagom_xla.cli import output

if TYPE_CHECKING:
  from lagom_xla.flags import check

_EXAMPLES = """\
The lines for PLAN append to XLA_FLAGS and set the cap on NCCL's channels. They
do not load the tuner plugin; env.sh and `lagom-xla plugin` do.

--check asks the installed jaxlib. It reports unknown flags (a single one ends
your process), flags that have no effect, occur twice, contradict others or
repeat the default, and words that XLA misreads or skips. It says what to write
instead. The exit status is 1 if XLA ends your process or does not read a flag.

examples:
  lagom-xla flags plan
  source <(lagom-xla flags plan)   # in the script that starts each process
  source <(lagom-xla flags plan --merge)   # one flag for each option
  lagom-xla flags --check "$XLA_FLAGS\""""


def add(commands) -> None:
  """Adds the command."""
  command = options.add_command(
    commands,
    "flags",
    _run,
    "Prints a plan's XLA_FLAGS and NCCL variables as shell lines for a"
    " launcher, or checks an XLA_FLAGS.",
    _EXAMPLES,
  )
  what = command.add_mutually_exclusive_group(required=True)
  what.add_argument(
    "plan", metavar="PLAN", nargs="?", help="a plan's folder or JSON"
  )
  what.add_argument(
    "--check", metavar="FLAGS", help="the value of an XLA_FLAGS to check"
  )
  command.add_argument(
    "--merge",
    action="store_true",
    help="merge with your current XLA_FLAGS, and show where each flag comes"
    " from",
  )
  options.add_format(command)


_KNOBS_EXAMPLES = """\
Names and defaults are those of the installed jaxlib. docs/knobs.md lists what
else a plan can set, and what it never changes.

examples:
  lagom-xla knobs
  lagom-xla knobs --format=json"""


def add_knobs(commands) -> None:
  """Adds the command."""
  command = options.add_command(
    commands,
    "knobs",
    _run_knobs,
    "Lists the XLA options that a search tries: what each does, when it is"
    " tried, and when it hurts.",
    _KNOBS_EXAMPLES,
  )
  options.add_format(command)


def _run_knobs(arguments: argparse.Namespace) -> None:
  from lagom_xla.report import knobs

  known = knobs.known()
  if arguments.format == "json":
    output.write_json(known)
  else:
    output.write("\n".join(knobs.lines(known)))


def join_check(arguments: Sequence[str]) -> list[str]:
  """Command line arguments with `--check VALUE` joined to `--check=VALUE`.

  Otherwise argparse takes the value for options of this program.
  """
  joined = list(arguments)
  if joined[:1] == ["flags"] and "--check" in joined[:-1]:
    at = joined.index("--check")
    # argparse would drop a lone "--".
    value = f"{joined[at + 1]} " if joined[at + 1] == "--" else joined[at + 1]
    joined[at : at + 2] = [f"--check={value}"]
  return joined


def _run(arguments: argparse.Namespace) -> None:
  if arguments.check is None:
    _print_plan(arguments)
  elif arguments.merge:
    arguments.usage_error("--merge works with PLAN, not with --check")
  else:
    _check(arguments)


def _print_plan(arguments: argparse.Namespace) -> None:
  from lagom_xla.apply import checked
  from lagom_xla.apply import env as env_lib
  from lagom_xla.apply import shell_flags
  from lagom_xla.flags import check
  from lagom_xla.flags import options as xla_options

  plan = checked.load(arguments.plan)
  options, nccl_env = plan.xla.options, plan.nccl_env
  result: check.Printed
  if arguments.merge:
    environment = os.environ.get("XLA_FLAGS", "")
    result = merged = check.merge(environment, options, nccl_env)
    lines = []
    for entry in merged.entries:
      line = f"{entry.flag}  from the {entry.source}"
      for flag, source in entry.replaces:
        line += f", in place of {flag} from the {source}"
      lines.append(line)
    lines = [shell_flags.comment(line) for line in (*lines, *merged.messages)]
    lines.append(env_lib.exports({"XLA_FLAGS": merged.xla_flags}))
    lines += shell_flags.beside(options)
  else:
    flags, messages = xla_options.flags(options)
    result = check.Planned(
      xla_flags=" ".join(map(str, flags)), messages=messages, nccl_env=nccl_env
    )
    lines = [env_lib.flag_lines(options)]
  if arguments.format == "json":
    output.write_json(result)
  else:
    output.write("\n".join((*lines, env_lib.cap_lines(plan))))


def _check(arguments: argparse.Namespace) -> None:
  from lagom_xla.flags import check

  report = check.check(arguments.check)
  if arguments.format == "json":
    output.write_json(report)
  else:
    output.write("\n".join(_report_lines(report, arguments.check)))
  if report.is_fatal or report.num_unread:
    sys.exit(1)


def _report_lines(report: check.Checked, text: str) -> list[str]:
  from lagom_xla.apply import env as env_lib

  version = f"jaxlib {report.jaxlib_version}"
  if not report.num_flags and not report.findings:
    return ["There are no flags."]
  if not report.findings:
    return [f"Each of these flags has an effect in {version}."]
  lines = []
  for finding in report.findings:
    lines += [f"{finding.kind}: {finding.flag}", f"  {finding.text}"]
    if finding.instead:
      lines.append(f"  Write {finding.instead}")
  num_fatal = sum(finding.is_fatal for finding in report.findings)
  if not report.is_fatal:
    end = "starts with these flags"
    if report.num_unread:
      end += f", but reads only {report.num_flags} of them"
    end += "."
  elif num_fatal:
    end = f"aborts with these flags, because of {num_fatal} of them."
  else:
    end = "aborts with these flags."
  lines += ["", f"XLA in {version} {end}"]
  is_better = report.suggestion.split() != text.split()
  if is_better and (report.suggestion or report.variables):
    meant = {"XLA_FLAGS": report.suggestion, **report.variables}
    lines.append(
      "Shorter, with the same effect:"
      if report.is_void
      else "You probably meant:"
    )
    lines += [f"  {it}" for it in env_lib.exports(meant).splitlines()]
  return lines
