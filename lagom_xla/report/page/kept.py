# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The file of a story, kept beside a plan.

kept.write(story, folder)  # folder/report.json.gz
kept.read(folder)
"""

from __future__ import annotations

import gzip
import json
import pathlib
from typing import Final
import zlib

from lagom_xla import errors
from lagom_xla import validation
from lagom_xla.report.page import story as story_lib

NAME: Final = "report.json.gz"


def write(story: story_lib.Story, folder: pathlib.Path) -> pathlib.Path:
  """Writes a story into a plan's folder, and returns its file.

  Raises:
    OutputError: it cannot be written.
  """
  path = folder / NAME
  data = json.dumps(validation.write(story), separators=(",", ":")).encode()
  try:
    path.write_bytes(gzip.compress(data, compresslevel=6, mtime=0))
  except OSError as error:
    raise errors.OutputError(
      f"{path} cannot be written: {error.strerror}."
    ) from error
  return path


def read(folder: pathlib.Path) -> story_lib.Story:
  """Reads the story in a plan's folder.

  Raises:
    PlanError: there is none, or one of another format version.
  """
  path = folder / NAME
  try:
    data = path.read_bytes()
  except OSError as error:
    raise errors.PlanError(
      f"{path} cannot be read ({error.strerror or error}); `lagom-xla tune`"
      " writes it beside a plan. Make the plan again."
    ) from error
  try:
    raw = json.loads(gzip.decompress(data))
  except (OSError, EOFError, ValueError, zlib.error) as error:
    raise errors.PlanError(
      f"{path} is damaged: {error}. Make the plan again."
    ) from error
  if (
    not isinstance(raw, dict)
    or raw.get("format_version") != story_lib.FORMAT_VERSION
  ):
    raise errors.PlanError(
      f"{path} is not a report of format version {story_lib.FORMAT_VERSION},"
      " which this lagom_xla reads. Make the plan again."
    )
  try:
    return validation.read(story_lib.Story, raw)
  except validation.InvalidError as error:
    raise errors.PlanError(
      f"{path} is not a usable report: {error}. Make the plan again."
    ) from error
