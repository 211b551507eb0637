# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fits a cluster's calibration to measurements.

Latency and rate (`wire.timing`) have common factors within a node and between
nodes, and further ones for each path of `wire.path_name`. They are fitted to
logarithms of predicted over measured times by least squares. Large errors count
linearly, so a few bad rows do not matter. A prior keeps each factor near 1,
within about the model's own error, so a few rows change only the factors that
they determine. With even fewer rows only the rate is fitted.

Common factors are fitted first, then those of single paths. In a joint fit, a
path whose rows do not determine its rate would distort the common one.

Factors that fit their own rows may not predict others. So they are kept only if
Akaike's criterion holds: errors shrink by more than the number of free
parameters would achieve by chance. A parameter with a prior counts by the
freedom that the rows leave it (the trace of the fit's hat matrix). Rows of one
size count as one, because no parameter distinguishes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import dataclasses
import math

import numpy as np
from scipy import optimize

from lagom_xla import cluster as cluster_lib
from lagom_xla.calibrate import samples as samples_lib
from lagom_xla.costs import wire

# Noise of a row, as a logarithm: nccl-tests repeats within a few percent.
_ROW_SIGMA = 0.05
# Priors of logarithms, from the model's own errors: a factor of 2 for common
# latencies and rates; for single paths 1.4 on latencies and 1.3 on rates.
_SIGMA = 0.7
_LATENCY_SIGMA = 0.35
_RATE_SIGMA = 0.25
# With fewer rows, only the rate is fitted.
_LEAST_ROWS = 4
# Folds of sizes, for held-out errors.
_NUM_FOLDS = 3
# A trusted row is an outlier if its error exceeds both `_LEAST_OUTLIER` and
# `_OUTLIER_SIGMAS` standard deviations.
_LEAST_OUTLIER = 0.25
_OUTLIER_SIGMAS = 4.0
_MAD_SIGMA = 1.4826  # Normal distribution: sigma over median deviation.
_DIGITS = 4
# Bound on a logarithm: a common factor times a path's is at most 100.
_MOST = math.log(100.0) / 2
# The largest factor of a type, and the least logarithm of one that is kept.
_MOST_OF_TYPE = 100.0
_LEAST_OF_TYPE = 0.02
# The relative precision of printed times.
_LEAST_ERROR = 0.005


def fit(samples: Sequence[samples_lib.Sample]) -> cluster_lib.Calibration:
  """Fits a calibration to samples; factors without samples stay 1."""
  trusted = [sample for sample in samples if not sample.doubt]
  return cluster_lib.Calibration(
    within_node=_of_reach([s for s in trusted if s.key.num_nodes == 1]),
    between_nodes=_of_reach([s for s in trusted if s.key.num_nodes > 1]),
  )


def predicted_us(
  sample: samples_lib.Sample, calibration: cluster_lib.Calibration
) -> float:
  """Predicted time of a sample on a calibrated cluster, launches included."""
  return _us(sample, calibration.of(sample.key.num_nodes))


def _us(sample: samples_lib.Sample, factors: cluster_lib.Factors) -> float:
  us = wire.calibrated_us(
    factors,
    sample.path,
    sample.predicted_us,
    sample.latency_us,
    sample.key.reduced,
  )
  return max(us, sample.floor_us)


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
  """Relative errors by fits without the sample's size."""
  found = np.zeros(len(samples))
  folds = np.array(fold_of(samples))
  for fold in range(_NUM_FOLDS):
    seen = [s for s, f in zip(samples, folds, strict=True) if f != fold]
    unseen = [s for s, f in zip(samples, folds, strict=True) if f == fold]
    found[folds == fold] = errors_of(unseen, fit(seen))
  return found


def fold_of(samples: Sequence[samples_lib.Sample]) -> list[int]:
  """A fold for each sample; every third size of a kind has the same."""
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
  """The samples, with doubts about outliers from the calibration."""
  off = np.log1p(errors_of(samples, calibration))
  trusted = np.array([not sample.doubt for sample in samples])
  if not trusted.any():
    return list(samples)
  sigma = _MAD_SIGMA * float(np.median(np.abs(off[trusted])))
  most = max(_LEAST_OUTLIER, _OUTLIER_SIGMAS * sigma)
  found = []
  for sample, value in zip(samples, off.tolist(), strict=True):
    if not sample.doubt and abs(value) > most:
      times = f"{math.exp(abs(value)):.2g} times"
      slower = "slower" if value < 0 else "faster"
      doubt = f"is {times} {slower} than the other rows suggest"
      sample = dataclasses.replace(sample, doubt=doubt)
    found.append(sample)
  return found


def _of_reach(samples: Sequence[samples_lib.Sample]) -> cluster_lib.Factors:
  """The factors within or between nodes, with those of separate types."""
  factors = _kept([s for s in samples if not s.is_apart])
  rates: dict[str, list[float]] = {}
  for sample in samples:
    if sample.is_apart:
      latency_us = wire.calibrated_us(
        factors, sample.path, sample.latency_us, sample.latency_us
      )
      moving_us = _us(sample, factors) - latency_us
      # Rows that are mostly latency say little about a rate.
      if moving_us > latency_us < sample.measured_us:
        rate = moving_us / (sample.measured_us - latency_us)
        rates.setdefault(sample.key.reduced, []).append(rate)
  medians = {name: float(np.median(found)) for name, found in rates.items()}
  return dataclasses.replace(
    factors,
    type_factors={
      name: round(min(max(rate, 1 / _MOST_OF_TYPE), _MOST_OF_TYPE), _DIGITS)
      for name, rate in sorted(medians.items())
      if len(rates[name]) > 1 and abs(math.log(rate)) > _LEAST_OF_TYPE
    },
  )


def _kept(samples: Sequence[samples_lib.Sample]) -> cluster_lib.Factors:
  """The fitted factors; 1 if they do not predict better."""
  bare = cluster_lib.Factors()
  if not samples:
    return bare
  factors, num_free = _fit(samples)
  gain = _log_error(samples, bare) / _log_error(samples, factors)
  # With exponentially distributed errors, the likelihood is their mean to the
  # power of minus their number.
  num_sizes = len({(s.key.kind, s.key.num_bytes) for s in samples})
  return factors if num_sizes * math.log(gain) > num_free else bare


def _log_error(
  samples: Sequence[samples_lib.Sample], factors: cluster_lib.Factors
) -> float:
  off = [abs(math.log(_us(s, factors) / s.measured_us)) for s in samples]
  return max(float(np.mean(off)), _LEAST_ERROR)


def _fit(
  samples: Sequence[samples_lib.Sample],
) -> tuple[cluster_lib.Factors, float]:
  """The fitted factors, and the number of free parameters."""
  measured = np.array([s.measured_us for s in samples])
  floor = np.array([s.floor_us for s in samples])
  latency = np.array([s.latency_us for s in samples])
  moving = np.array([s.predicted_us - s.latency_us for s in samples])
  paths, of_latency, of_rate, sigmas = _figures(samples)

  def off(logs: np.ndarray) -> np.ndarray:
    us = latency * np.exp(of_latency @ logs)
    us += moving * np.exp(-(of_rate @ logs))
    return np.log(np.maximum(us, floor) / measured) / _ROW_SIGMA

  logs, num_free = _solve(off, sigmas)
  values = [round(float(value), _DIGITS) for value in np.exp(logs)]
  if len(values) == 1:
    return cluster_lib.Factors(rate_factor=values[0]), num_free
  factors = cluster_lib.Factors(
    latency_factor=values[0],
    rate_factor=values[1],
    latency_factors=dict(zip(paths, values[2::2], strict=True)),
    rate_factors=dict(zip(paths, values[3::2], strict=True)),
  )
  return factors, num_free


def _solve(
  off: Callable[[np.ndarray], np.ndarray], sigmas: np.ndarray
) -> tuple[np.ndarray, float]:
  """Logarithms of common and paths' factors, and the number of free ones."""
  logs, num_free = np.zeros(len(sigmas)), 0.0
  for part in np.split(np.arange(len(sigmas)), [2]):
    if part.size:

      def residuals(values: np.ndarray, part: np.ndarray = part) -> np.ndarray:
        tried = logs.copy()
        tried[part] = values
        return np.concatenate([off(tried), values / sigmas[part]])

      found = optimize.least_squares(
        residuals, logs[part], bounds=(-_MOST, _MOST), loss="soft_l1"
      )
      logs[part] = found.x
      of_rows = found.jac[: -part.size]
      shares = np.linalg.solve(found.jac.T @ found.jac, of_rows.T @ of_rows)
      num_free += float(np.trace(shares))
  return logs, num_free


def _figures(
  samples: Sequence[samples_lib.Sample],
) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray]:
  """The paths with factors, the factors of each row, and their sigmas.

  A single path has no factors of its own.
  """
  if len(samples) < _LEAST_ROWS:
    none, one = np.zeros((len(samples), 1)), np.ones((len(samples), 1))
    return [], none, one, np.array([_SIGMA])
  paths = sorted({sample.path for sample in samples})
  if len(paths) == 1:
    paths = []
  is_path = [[s.path == path for path in paths] for s in samples]
  has = np.column_stack([np.ones(len(samples)), np.array(is_path, dtype=float)])
  is_latency, is_rate = np.eye(2)
  sigmas = [_SIGMA, _SIGMA] + [_LATENCY_SIGMA, _RATE_SIGMA] * len(paths)
  return (
    paths,
    np.kron(has, is_latency),
    np.kron(has, is_rate),
    np.array(sigmas),
  )
