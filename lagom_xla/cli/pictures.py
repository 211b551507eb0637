# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""--report=FILE and --trace=FILE of commands: what they found, in pictures."""

from __future__ import annotations

import argparse
import pathlib
import tempfile
from typing import TYPE_CHECKING

from lagom_xla import errors
from lagom_xla.cli import options

if TYPE_CHECKING:
  from lagom_xla.costs import step as step_lib
  from lagom_xla.profiling import profile as profile_lib
  from lagom_xla.report import trace as trace_lib
  from lagom_xla.report.page import report
  from lagom_xla.tuner import tuning as tuning_lib


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
    _check_can_be_written(name)


def _check_can_be_written(name: str) -> None:
  file = pathlib.Path(name).resolve()
  if not file.parent.is_dir():
    raise errors.OutputError(
      f"{name} cannot be written: there is no folder {file.parent}."
    )
  if file.is_dir():
    raise errors.OutputError(f"{name} cannot be written: it is a folder.")
  if not file.exists():
    try:
      with tempfile.TemporaryFile(dir=file.parent):
        pass
    except OSError as error:
      raise errors.OutputError(
        f"{name} cannot be written: {error.strerror}."
      ) from error


def of_inspection(
  arguments: argparse.Namespace, step: step_lib.Step
) -> list[pathlib.Path]:
  """Writes the pictures of a step that are asked for, and returns them."""
  if not (arguments.report or arguments.trace):
    return []
  from lagom_xla.report import trace as trace_lib
  from lagom_xla.report.page import contents

  profile = _profile(arguments, step)
  files = []
  if arguments.report:
    story = contents.of_inspection(step, measured_us=_step_us(profile))
    files.append(_write_page(arguments, story))
  if arguments.trace:
    predicted = trace_lib.predicted(1, "step", step, step.default)
    files.append(_write_trace(arguments, [predicted], profile))
  return files


def of_tuning(
  arguments: argparse.Namespace, tuning: tuning_lib.Tuning, folder: pathlib.Path
) -> list[pathlib.Path]:
  """Writes what `lagom-xla report` needs, and the pictures that are asked for.

  Args:
    arguments: of the command.
    tuning: what was found.
    folder: the plan's.

  Returns:
    The files.
  """
  from lagom_xla.report import trace as trace_lib
  from lagom_xla.report.page import contents
  from lagom_xla.report.page import report

  before, best = tuning.before, tuning.kept
  profile = _profile(arguments, before)
  story = contents.of_tuning(
    tuning, folder=str(folder), measured_us=_step_us(profile)
  )
  files = [report.write(story, folder)]
  if arguments.report:
    files.append(_write_page(arguments, story))
  if arguments.trace:
    predicted = [
      trace_lib.predicted(1, "before", before, before.default),
      trace_lib.predicted(2, "after", best.runs, best.settings),
    ]
    files.append(_write_trace(arguments, predicted, profile))
  return files


def of_profile(
  arguments: argparse.Namespace, profile: profile_lib.Profile
) -> list[pathlib.Path]:
  """Writes the trace of a profile, if it is asked for."""
  return [_write_trace(arguments, [], profile)] if arguments.trace else []


def _write_page(
  arguments: argparse.Namespace, story: report.Story
) -> pathlib.Path:
  from lagom_xla.report.page import rendering

  path = pathlib.Path(arguments.report)
  rendering.write(story, path)
  return path


def _write_trace(
  arguments: argparse.Namespace,
  predicted: list[trace_lib.Process],
  profile: profile_lib.Profile | None,
) -> pathlib.Path:
  """Writes what was predicted and, if there is a profile, what was measured."""
  from lagom_xla.report import trace as trace_lib

  processes = list(predicted)
  if profile is not None:
    processes += trace_lib.measured(len(predicted) + 1, profile)
  path = pathlib.Path(arguments.trace)
  trace_lib.write(path, processes)
  return path


def _profile(
  arguments: argparse.Namespace, step: step_lib.Step
) -> profile_lib.Profile | None:
  if arguments.profile is None:
    return None
  return options.read_profile(arguments.profile, lambda: step.analysis.module)


def _step_us(profile: profile_lib.Profile | None) -> float | None:
  if profile is None or not profile.whole_steps:
    return None
  return profile.step_time_us
