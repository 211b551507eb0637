# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The file of an explanation, kept beside a plan.

kept.write(explanation, folder)  # folder/explain.json.gz
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
from lagom_xla.explain import explanation as explanation_lib

NAME: Final = "explain.json.gz"


def write(
  explanation: explanation_lib.Explanation, folder: pathlib.Path
) -> pathlib.Path:
  """Writes an explanation into a plan's folder, and returns its file.

  Raises:
    OutputError: it cannot be written.
  """
  path = folder / NAME
  data = json.dumps(validation.write(explanation), separators=(",", ":"))
  try:
    path.write_bytes(gzip.compress(data.encode(), compresslevel=6, mtime=0))
  except OSError as error:
    raise errors.OutputError(
      f"{path} cannot be written: {error.strerror}."
    ) from error
  return path


def read(folder: pathlib.Path) -> explanation_lib.Explanation:
  """Reads the explanation in a plan's folder, or beside its plan.json.

  Raises:
    PlanError: there is none, or one of another format version.
  """
  path = (folder.parent if folder.name == "plan.json" else folder) / NAME
  try:
    data = path.read_bytes()
  except OSError as error:
    raise errors.PlanError(
      f"{path} cannot be read ({error.strerror or error}); `lagom-xla tune`"
      " writes it beside a plan. Make the plan again, or give --cluster to"
      " explain a target."
    ) from error
  try:
    raw = json.loads(gzip.decompress(data))
  except (OSError, EOFError, ValueError, zlib.error) as error:
    raise errors.PlanError(
      f"{path} is damaged: {error}. Make the plan again."
    ) from error
  version = raw.get("format_version") if isinstance(raw, dict) else None
  if version != explanation_lib.FORMAT_VERSION:
    raise errors.PlanError(
      f"{path} is not an explanation of format version"
      f" {explanation_lib.FORMAT_VERSION}, which this lagom_xla reads. Make the"
      " plan again."
    )
  try:
    return validation.read(explanation_lib.Explanation, raw)
  except validation.InvalidError as error:
    raise errors.PlanError(
      f"{path} is not a usable explanation: {error}. Make the plan again."
    ) from error
