# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Output of `lagom-xla calibrate --format=json`: figures and their fit."""

from __future__ import annotations

import dataclasses
import pathlib

from lagom_xla import cluster as cluster_lib
from lagom_xla import validation
from lagom_xla.calibrate import calibration as calibration_lib


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Distrusted:
  """A row of nccl-tests that the fit does not use.

  Attributes:
    row: the row's log and line.
    reason: why the row is not trusted.
  """

  row: str
  reason: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Calibrated:
  """The result of calibrating a cluster.

  Attributes:
    file: the cluster file that was written.
    calibration: the calibration in that file.
    fits: errors of the fit, by kind of collective and size of communicator.
    distrusted: rows that are not used.
    problems: unreadable parts of the logs, each with log and line.
    notes: further notes on the logs.
  """

  __pydantic_config__ = validation.STRICT

  file: str
  calibration: cluster_lib.Calibration
  fits: tuple[calibration_lib.Fit, ...]
  distrusted: tuple[Distrusted, ...]
  problems: tuple[str, ...]
  notes: tuple[str, ...]


def of_result(
  result: calibration_lib.Result,
  measured: calibration_lib.Measured,
  path: pathlib.Path,
) -> Calibrated:
  """The result of a calibration whose cluster file is at `path`."""
  return Calibrated(
    file=str(path),
    calibration=result.calibration,
    fits=tuple(result.fits),
    distrusted=tuple(
      Distrusted(row=sample.where, reason=sample.doubt)
      for sample in result.samples
      if sample.doubt
    ),
    problems=tuple(measured.problems),
    notes=tuple(result.notes),
  )
