# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""--report=FILE and --trace=FILE of commands: what they found, in pictures."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
import pathlib
from typing import TYPE_CHECKING

from lagom_xla import errors

if TYPE_CHECKING:
  from lagom_xla.costs import step as step_lib
  from lagom_xla.profiling import profile as profile_lib
  from lagom_xla.report.page import report


def add(command: argparse.ArgumentParser) -> None:
  """Adds --report and --trace."""
  command.add_argument(
    "--report",
    metavar="FILE",
    help="write a page for a browser: the verdict, timelines, who slows whom",
  )
  add_trace(command)


def add_trace(command: argparse.ArgumentParser) -> None:
  """Adds --trace."""
  command.add_argument(
    "--trace",
    metavar="FILE",
    help="write the timelines for ui.perfetto.dev, such as trace.json.gz",
  )


def check(arguments: argparse.Namespace) -> None:
  """Checks that the pictures can be made and written, before any work is done.

  Raises:
    OutputError: they cannot.
  """
  page = getattr(arguments, "report", None)
  if page:
    from lagom_xla.report.page import rendering

    rendering.check_can_render()
  for name in filter(None, (page, getattr(arguments, "trace", None))):
    if reason := _obstacle(pathlib.Path(name).resolve()):
      raise errors.OutputError(f"{name} cannot be written: {reason}.")


def _obstacle(file: pathlib.Path) -> str:
  """Why a file cannot be written; "" where it can."""
  from lagom_xla.validation import whole_files

  if not file.parent.is_dir():
    return f"there is no folder {file.parent}"
  if file.is_dir():
    return "it is a folder"
  if not file.exists():
    try:
      whole_files.check_can_make(file)
    except OSError as error:
      return error.strerror or str(error)
  return ""


def write(
  arguments: argparse.Namespace,
  *,
  story: Callable[[], report.Story] | None = None,
  runs: Sequence[tuple[str, step_lib.Step, step_lib.Configuration]] = (),
  profile: profile_lib.Profile | None,
) -> list[pathlib.Path]:
  """Writes the pictures that are asked for, and returns their files.

  Args:
    arguments: of the command.
    story: what the page tells, made where it is asked for.
    runs: what the trace has that was predicted: a name, a step and settings.
    profile: what it has that was measured.
  """
  files = []
  if story is not None and arguments.report:
    from lagom_xla.report.page import rendering

    files.append(pathlib.Path(arguments.report))
    rendering.write(story(), files[-1])
  if arguments.trace:
    from lagom_xla.report import trace as trace_lib

    processes = [
      trace_lib.predicted(number, name, step, settings)
      for number, (name, step, settings) in enumerate(runs, 1)
    ]
    if profile is not None:
      processes += trace_lib.measured(len(runs) + 1, profile)
    files.append(pathlib.Path(arguments.trace))
    trace_lib.write(files[-1], processes)
  return files


def measured_us(profile: profile_lib.Profile | None) -> float | None:
  """A step's time as a profile has it; None where that has no whole step."""
  if profile is None or not profile.whole_steps:
    return None
  return profile.step_time_us
