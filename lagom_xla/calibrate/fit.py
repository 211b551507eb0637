# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The fit of a cluster's calibration to what was measured there.

Three figures for collectives within a node, and three for those between nodes:
factors on latency and rate, and the exponent of the ramp (`wire.calibrated`);
and one for each kind's own rate, where several kinds were measured. They are
found in logarithms, of predicted over measured time, by least squares that
count large errors linearly, so that a few bad rows do not turn them. Each is
held to what it is without calibration, by about as much as the model itself is
known, so that a handful of rows moves only what it shows.

Figures that fit the rows they were found from need not foretell others: times
may scatter, or go up and down with sizes as no such figure does. So they are
kept only where fits that did not see a size foretell it better than the model
as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import math

import numpy as np
from scipy import optimize

from lagom_xla import cluster as cluster_lib
from lagom_xla.calibrate import samples as samples_lib
from lagom_xla.costs import wire

# What a row may be off for, beside the figures sought: nccl-tests repeats
# itself within a few percent.
_ROW_SIGMA = 0.05
# How far, as logarithms, figures lie from 1 by the model's own errors: in all
# latencies and rates by a factor of 2, in single kinds and the ramp by 1.3.
_SIGMA = 0.7
_SMALL_SIGMA = 0.25
# Of sizes, to judge fits by what they did not see.
_NUM_FOLDS = 3
# A trusted row that is off by more, and by more than so many times what rows
# are off by, is told to the user.
_LEAST_OUTLIER = 0.25
_OUTLIER_SIGMAS = 4.0
_MAD_SIGMA = 1.4826  # Of a normal distribution, over its median deviation.
_DIGITS = 4


def fit(samples: Sequence[samples_lib.Sample]) -> cluster_lib.Calibration:
  """The calibration that fits samples best; what none shows stays as it is."""
  trusted = [sample for sample in samples if not sample.doubt]
  return cluster_lib.Calibration(
    within_node=_kept([s for s in trusted if s.key.num_nodes == 1]),
    between_nodes=_kept([s for s in trusted if s.key.num_nodes > 1]),
  )


def predicted_us(
  sample: samples_lib.Sample, calibration: cluster_lib.Calibration
) -> float:
  """What a calibrated cluster is predicted to take for a sample."""
  return wire.calibrated_us(
    calibration.of(sample.key.num_nodes),
    sample.key.kind,
    sample.predicted_us,
    sample.latency_us,
  )


def errors_of(
  samples: Sequence[samples_lib.Sample], calibration: cluster_lib.Calibration
) -> np.ndarray:
  """Relative errors of calibrated predictions, signed."""
  return np.array(
    [predicted_us(s, calibration) / s.measured_us - 1 for s in samples]
  )


def held_out_errors(
  samples: Sequence[samples_lib.Sample],
) -> np.ndarray:
  """The same of fits that did not see the sample, nor its size."""
  found = np.zeros(len(samples))
  folds = np.array(fold_of(samples))
  for fold in range(_NUM_FOLDS):
    seen = [s for s, f in zip(samples, folds, strict=True) if f != fold]
    unseen = [s for s, f in zip(samples, folds, strict=True) if f == fold]
    found[folds == fold] = errors_of(unseen, fit(seen))
  return found


def fold_of(samples: Sequence[samples_lib.Sample]) -> list[int]:
  """A fold for each sample: every third size of its kind is in one fold."""
  sizes: dict[str, set[int]] = {}
  for sample in samples:
    sizes.setdefault(sample.key.kind, set()).add(sample.key.num_bytes)
  places = {kind: sorted(found) for kind, found in sizes.items()}
  return [
    places[sample.key.kind].index(sample.key.num_bytes) % _NUM_FOLDS
    for sample in samples
  ]


def with_outliers(
  samples: Sequence[samples_lib.Sample], calibration: cluster_lib.Calibration
) -> list[samples_lib.Sample]:
  """The samples, those that the calibration does not explain in doubt."""
  off = np.log1p(errors_of(samples, calibration))
  trusted = np.array([not sample.doubt for sample in samples])
  if not trusted.any():
    return list(samples)
  sigma = _MAD_SIGMA * float(np.median(np.abs(off[trusted])))
  most = max(_LEAST_OUTLIER, _OUTLIER_SIGMAS * sigma)
  return [
    dataclasses.replace(sample, doubt=_outlier(value))
    if not sample.doubt and abs(value) > most
    else sample
    for sample, value in zip(samples, off.tolist(), strict=True)
  ]


def _outlier(off: float) -> str:
  slower = "slower" if off < 0 else "faster"
  return f"is {math.exp(abs(off)):.2g} times {slower} than the others say"


def _kept(samples: Sequence[samples_lib.Sample]) -> cluster_lib.Factors:
  """The factors of one reach; none where they foretell nothing."""
  factors = _fit(samples)
  folds = fold_of(samples)
  if len(set(folds)) < 2:
    return factors
  bare, unseen = 0.0, 0.0
  for fold in set(folds):
    found = _fit([s for s, f in zip(samples, folds, strict=True) if f != fold])
    for sample, other in zip(samples, folds, strict=True):
      if other == fold:
        bare += _log_error(sample, cluster_lib.Factors())
        unseen += _log_error(sample, found)
  return factors if unseen < bare else cluster_lib.Factors()


def _log_error(
  sample: samples_lib.Sample, factors: cluster_lib.Factors
) -> float:
  us = wire.calibrated_us(
    factors, sample.key.kind, sample.predicted_us, sample.latency_us
  )
  return abs(math.log(us / sample.measured_us))


def _fit(samples: Sequence[samples_lib.Sample]) -> cluster_lib.Factors:
  if not samples:
    return cluster_lib.Factors()
  kinds = sorted({sample.key.kind for sample in samples})
  of_kinds = kinds if len(kinds) > 1 else []
  sigmas = np.array(
    [_SIGMA, _SIGMA, _SMALL_SIGMA] + [_SMALL_SIGMA] * len(of_kinds)
  )
  measured = np.array([s.measured_us for s in samples])
  latency = np.array([s.latency_us for s in samples])
  moving = np.array([s.predicted_us - s.latency_us for s in samples])
  kind_of = np.array(
    [[s.key.kind == kind for kind in of_kinds] for s in samples], dtype=float
  ).reshape(len(samples), len(of_kinds))

  def residuals(x: np.ndarray) -> np.ndarray:
    exponent = math.exp(x[2])
    parts = (
      math.exp(x[0]) * latency,
      moving * np.exp(-x[1] - kind_of @ x[3:]),
    )
    us = sum(part**exponent for part in parts) ** (1 / exponent)
    return np.concatenate([np.log(us / measured) / _ROW_SIGMA, x / sigmas])

  most = np.full(len(sigmas), math.log(100.0) / 2)
  least = -most
  least[2], most[2] = math.log(0.25), 1e-9
  found = optimize.least_squares(
    residuals, np.zeros(len(sigmas)), bounds=(least, most), loss="soft_l1"
  )
  values = [round(float(value), _DIGITS) for value in np.exp(found.x)]
  return cluster_lib.Factors(
    latency_factor=values[0],
    rate_factor=values[1],
    ramp_exponent=min(values[2], 1.0),
    rate_factors=dict(zip(of_kinds, values[3:], strict=True)),
  )
