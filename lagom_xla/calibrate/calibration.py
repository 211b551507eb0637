# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Calibrates a cluster by logs: the factors, their errors, and the file.

The file is written atomically. It replaces only another cluster's file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import json
import pathlib

import numpy as np

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.calibrate import fit as fit_lib
from lagom_xla.calibrate import log as log_lib
from lagom_xla.calibrate import samples as samples_lib
from lagom_xla.costs import in_words
from lagom_xla.costs import nccl
from lagom_xla.validation import whole_files


@dataclasses.dataclass(frozen=True, kw_only=True)
class Errors:
  """Sizes of the relative errors of predictions.

  Attributes:
    median: median of the absolute errors.
    p90: 90th percentile of the absolute errors.
  """

  median: float
  p90: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fit:
  """Errors of predictions for one kind of collective, on trusted rows.

  Attributes:
    kind: XLA's name of the collective.
    element_type: HLO type of the reduced elements, if they are unusual in
      training and have their own factor; else "".
    num_ranks: GPUs of the communicator.
    num_nodes: nodes of these GPUs, as NCCL counts them.
    num_rows: trusted rows.
    before: errors without calibration.
    after: errors with calibration.
    held_out: errors on each third of the sizes, by a fit to the others.
  """

  kind: str
  element_type: str
  num_ranks: int
  num_nodes: int
  num_rows: int
  before: Errors
  after: Errors
  held_out: Errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
  """The measurements of a cluster in logs.

  Attributes:
    runs: the usable runs.
    samples: their rows, with doubts.
    notes: notes on the runs, a line each.
    problems: unusable runs and rows, a line each.
  """

  runs: Sequence[log_lib.Run]
  samples: Sequence[samples_lib.Sample]
  notes: Sequence[str]
  problems: Sequence[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
  """Result of a calibration.

  Attributes:
    cluster: the calibrated cluster.
    fits: errors by kind and size of communicator.
    samples: all rows, with doubts.
    notes: notes on the logs for the user, a line each.
    sources: sources of the figures, for the cluster's file.
  """

  cluster: cluster_lib.Cluster
  fits: Sequence[Fit]
  samples: Sequence[samples_lib.Sample]
  notes: Sequence[str]
  sources: dict[str, str]

  @property
  def calibration(self) -> cluster_lib.Calibration:
    """The cluster's calibration."""
    assert self.cluster.calibration is not None
    return self.cluster.calibration


def read(
  cluster: cluster_lib.Cluster, logs: Sequence[pathlib.Path]
) -> Measured:
  """Reads logs of nccl-tests on a cluster; bad logs become problems."""
  runs: list[log_lib.Run] = []
  samples: list[samples_lib.Sample] = []
  notes: list[str] = []
  problems: list[str] = []
  for path in logs:
    found, wrong = log_lib.read(path)
    problems += wrong
    for run in found:
      try:
        of_run, note = _as_it_ran(run, cluster)
        samples += of_run
        notes += [note] if note else []
        runs.append(run)
      except errors.CalibrationError as error:
        problems.append(str(error))
  return Measured(
    runs=runs,
    samples=_of_types(samples),
    notes=notes,
    problems=problems,
  )


# A run used another algorithm than predicted if it has at least `_LEAST_ROWS`,
# their mean error is at least `_LEAST_OFF`, and the other algorithm brings it
# below `_CLOSER` of that.
_LEAST_ROWS = 4
_LEAST_OFF = 0.05
_CLOSER = 0.5
# Sets of algorithms to which an environment or a machine may limit NCCL.
_LEFT = (("ring", "tree", "pat"), ("ring",), ("tree",))
_NAMES = {"nvls": "NVLS", "nvlstree": "NVLS", "pat": "PAT"}


def _as_it_ran(
  run: log_lib.Run, cluster: cluster_lib.Cluster
) -> tuple[list[samples_lib.Sample], str]:
  """A run's samples under the algorithm that its rates show, and a note.

  A log may not mention that NCCL had fewer algorithms to choose from. Rates
  show it if an algorithm other than the predicted one explains them, and the
  predicted one does not fit as well under any factors on latency and rate.
  """
  foreseen = best = samples_lib.of_run(run, cluster)
  num_trusted = sum(not sample.doubt for sample in foreseen)
  kind = log_lib.KINDS[run.program]
  if run.choices or num_trusted < _LEAST_ROWS or kind in nccl.SEND_RECV:
    return foreseen, ""
  as_predicted, as_fitted = _off(foreseen)
  if as_predicted < _LEAST_OFF:
    return foreseen, ""
  least = _CLOSER * as_predicted
  for algorithms in _LEFT:
    if kind != "all-reduce" and "ring" not in algorithms:
      continue  # Only all-reduces have trees.
    found = samples_lib.of_run(run, cluster, algorithms)
    off, fitted = _off(found)
    if off < least and fitted <= as_fitted:
      best, least, as_fitted = found, off, fitted
  missed, ran = set(), set()
  for before, after in zip(foreseen, best, strict=True):
    if before.setting.algorithm != after.setting.algorithm:
      missed.add(_name(before.setting.algorithm))
      ran.add(_name(after.setting.algorithm))
  if not missed:
    return foreseen, ""
  return best, (
    f"{run.where}: the rates show {' and '.join(sorted(ran))} where NCCL would"
    f" choose {' and '.join(sorted(missed))}. The fit counts these rows as what"
    " ran; predictions still assume NCCL's choice"
  )


def _name(algorithm: str) -> str:
  return _NAMES.get(algorithm, f"{algorithm}s")


def _off(samples: Sequence[samples_lib.Sample]) -> tuple[float, float]:
  """Mean error of trusted rows, as predicted and as fitted."""
  trusted = [sample for sample in samples if not sample.doubt]
  found = (
    np.abs(np.log1p(fit_lib.errors_of(trusted, calibration))).mean()
    for calibration in (cluster_lib.Calibration(), fit_lib.fit(trusted))
  )
  as_predicted, as_fitted = map(float, found)
  return as_predicted, as_fitted


def _of_types(
  samples: Sequence[samples_lib.Sample],
) -> list[samples_lib.Sample]:
  """The samples, with `is_apart` set for unusual types where usual ones exist.

  NCCL reduces other types by other instructions, at other rates.
  """
  usual = {
    (s.key.kind, s.key.num_nodes > 1)
    for s in samples
    if not (s.key.reduced or s.doubt)
  }
  return [
    dataclasses.replace(
      s,
      is_apart=bool(s.key.reduced)
      and (s.key.kind, s.key.num_nodes > 1) in usual,
    )
    for s in samples
  ]


def calibrate(cluster: cluster_lib.Cluster, measured: Measured) -> Result:
  """Calibrates a cluster by measurements.

  Args:
    cluster: the cluster; any calibration of it is replaced.
    measured: its measurements, from `read`.

  Raises:
    CalibrationError: no row can be trusted.
  """
  samples = measured.samples
  if all(sample.doubt for sample in samples):
    if samples:
      raise errors.CalibrationError(
        f"The logs have no row that can be trusted: {samples[0].where}"
        f" {samples[0].doubt}."
      )
    raise errors.CalibrationError(
      "The logs have no row of 64 KiB or more on this cluster."
    )
  calibration = fit_lib.fit(samples)
  samples = fit_lib.with_outliers(samples, calibration)
  return Result(
    cluster=dataclasses.replace(cluster, calibration=calibration),
    fits=list(_fits(samples, calibration)),
    samples=samples,
    notes=[
      *measured.notes,
      *_notes(measured.runs, samples, cluster, calibration),
    ],
    sources={"calibration": _source(measured.runs, samples)},
  )


def _fits(
  samples: Sequence[samples_lib.Sample], calibration: cluster_lib.Calibration
) -> Iterator[Fit]:
  trusted = [sample for sample in samples if not sample.doubt]
  bare = fit_lib.errors_of(trusted, cluster_lib.Calibration())
  fitted = fit_lib.errors_of(trusted, calibration)
  unseen = fit_lib.held_out_errors(trusted)
  groups = [
    (
      s.key.num_nodes,
      s.key.num_ranks,
      s.key.kind,
      s.key.reduced * s.is_apart,
    )
    for s in trusted
  ]
  for group in sorted(set(groups)):
    chosen = np.array([other == group for other in groups])
    num_nodes, num_ranks, kind, element_type = group
    yield Fit(
      kind=kind,
      element_type=element_type,
      num_ranks=num_ranks,
      num_nodes=num_nodes,
      num_rows=int(chosen.sum()),
      before=_summary(bare[chosen]),
      after=_summary(fitted[chosen]),
      held_out=_summary(unseen[chosen]),
    )


def _summary(off: np.ndarray) -> Errors:
  sizes = np.abs(off)
  return Errors(
    median=float(np.median(sizes)), p90=float(np.quantile(sizes, 0.9))
  )


def _notes(
  runs: Sequence[log_lib.Run],
  samples: Sequence[samples_lib.Sample],
  cluster: cluster_lib.Cluster,
  calibration: cluster_lib.Calibration,
) -> Iterator[str]:
  gpus = sorted({gpu for run in runs for gpu in run.gpus})
  if gpus and gpus != [cluster.gpu.device_name]:
    yield (
      f"the logs are from {' and '.join(gpus)}, but the cluster has"
      f" {cluster.gpu.device_name}"
    )
  versions = {run.nccl_version for run in runs if run.nccl_version}
  if len(versions) > 1:
    named = ", ".join(sorted(versions))
    yield f"the logs are from different versions of NCCL: {named}"
  seen = {sample.key.num_nodes > 1 for sample in samples if not sample.doubt}
  for spans_nodes, reach, factors in (
    (False, "within a node", calibration.within_node),
    (True, "between nodes", calibration.between_nodes),
  ):
    if spans_nodes not in seen:
      if not spans_nodes or cluster.num_nodes > 1:
        yield f"no rows {reach}: those collectives are not calibrated"
    elif factors == cluster_lib.Factors():
      yield (
        f"no calibration predicts rows {reach} better than the model: those"
        " collectives are not calibrated"
      )


def _source(
  runs: Sequence[log_lib.Run], samples: Sequence[samples_lib.Sample]
) -> str:
  num_trusted = sum(not sample.doubt for sample in samples)
  rows = in_words.count(num_trusted, "row")
  names = sorted({pathlib.Path(run.source).name for run in runs})
  versions = sorted({run.nccl_version for run in runs if run.nccl_version})
  nccl = f", NCCL {' and '.join(versions)}" if versions else ""
  return (
    f"lagom-xla calibrate: {rows} of nccl-tests{nccl}, in {', '.join(names)}"
  )


def check(path: pathlib.Path) -> None:
  """Checks before any work that a cluster may be written to a file.

  Raises:
    CalibrationError: --cluster would not accept the file's name, the file
      exists and is not a cluster, or it cannot be written.
  """
  if path.suffix != ".json":
    raise errors.CalibrationError(
      f"--out={path} must end in .json, so that --cluster takes it for a file."
    )
  try:
    if path.exists():
      cluster_lib.parse(str(path))
    whole_files.check_can_make(path.resolve())
  except errors.ClusterError as error:
    raise errors.CalibrationError(
      f"{path} exists and is not a cluster; name another file with --out, or"
      " remove it."
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
  """Writes a cluster's file, or replaces it.

  Leaves out the name, because a cluster in a file is named after the file.

  Raises:
    CalibrationError: the file exists and is not a cluster, or it cannot be
      written.
  """
  check(path)
  raw = {**cluster.to_dict(), "sources": dict(sources)}
  del raw["name"]
  try:
    whole_files.write(path, (json.dumps(raw, indent=2) + "\n").encode())
  except OSError as error:
    raise _cannot_write(path, error) from error
