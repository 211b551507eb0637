# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The cluster file that a calibration is written to.

It appears complete or not at all. Another cluster's file is replaced; anything
else that has its name is not.
"""

from __future__ import annotations

from collections.abc import Mapping
import json
import pathlib

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.validation import whole_files


def check(path: pathlib.Path) -> None:
  """Checks that a cluster may be written to a file, before any work is done.

  Raises:
    CalibrationError: it has no name that --cluster takes, is something else
      than a cluster, or cannot be written.
  """
  if path.suffix != ".json":
    raise errors.CalibrationError(
      f"--out={path} must end in .json, as --cluster tells files by it."
    )
  try:
    if path.exists():
      cluster_lib.parse(str(path))
    whole_files.check_can_make(path.resolve())
  except errors.ClusterError as error:
    raise errors.CalibrationError(
      f"{path} exists and holds something else than a cluster; name another"
      " file with --out, or remove it."
    ) from error
  except OSError as error:
    raise _cannot_write(path, error) from error


def _cannot_write(
  path: pathlib.Path, error: OSError
) -> errors.CalibrationError:
  return errors.CalibrationError(
    f"Cannot write {path}: {error.strerror or error}."
  )


def write(
  path: pathlib.Path,
  cluster: cluster_lib.Cluster,
  sources: Mapping[str, str],
) -> None:
  """Writes a cluster's file, replacing an older one there.

  Its name is left out: a cluster that is read from a file has the file's.

  Raises:
    CalibrationError: the file holds something else, or cannot be written.
  """
  check(path)
  raw = {**cluster.to_dict(), "sources": dict(sources)}
  del raw["name"]
  try:
    whole_files.write(path, (json.dumps(raw, indent=2) + "\n").encode())
  except OSError as error:
    raise _cannot_write(path, error) from error
