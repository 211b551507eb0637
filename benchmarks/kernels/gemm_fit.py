# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The robust fit behind fit_gemm.py.

It minimizes the logarithm of predicted over measured time, less and less
steeply for large errors, and holds each parameter near its start, so that what
the data does not tell stays there.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy import optimize

from benchmarks.kernels import gemm_rows
from lagom_xla.costs import gemm

# Errors below this count by their square, errors above by their size.
_SMALL_ERROR = 0.05
# Weight of the pull towards the start, against the summed loss of the rows.
_PULL = 0.2
_ROUNDS = 6
_EVALUATIONS = 2000
_SHARED = ("memory_efficiency", "split_us", "transpose_us")
_PER_FAMILY = tuple(
  f.name for f in dataclasses.fields(gemm.Family) if f.name != "rhs_k_innermost"
)


def predicted_us(precision: gemm.Precision, rows: gemm_rows.Rows) -> np.ndarray:
  """What the model says for each row."""
  recorded_us, cost_us = _recorded(precision, rows)
  best = np.argmin(cost_us, axis=-1)[:, None]
  return np.take_along_axis(recorded_us, best, axis=-1)[:, 0]


def _recorded(
  precision: gemm.Precision, rows: gemm_rows.Rows
) -> tuple[np.ndarray, np.ndarray]:
  """Of each candidate: what would be recorded, and what autotuning compares."""
  times = gemm.candidates(rows.gpu, precision, rows.shape, rows.types)
  if rows.median:
    total_us, median_us = gemm.total_and_median(times)
    return median_us, total_us
  product_us = times.product_us + times.reduction_us
  return product_us, product_us


def _loss(precision: gemm.Precision, rows: gemm_rows.Rows) -> float:
  """Mean loss of a row.

  Half of it takes the candidate that the model chooses. The other half takes
  the candidate that explains the row best, and adds how much slower than the
  chosen one it is held to be: without that the fit could not find its way to
  another choice, because a choice changes in a jump.
  """
  recorded_us, cost_us = _recorded(precision, rows)
  error = np.log(recorded_us / rows.measured_us[:, None]) / _SMALL_ERROR
  loss = np.sqrt(1 + error**2) - 1
  least_us = cost_us.min(axis=-1, keepdims=True)
  not_chosen = np.log(cost_us / least_us) / _SMALL_ERROR
  explained = (loss + not_chosen).min(axis=-1)
  chosen = np.take_along_axis(
    loss, np.argmin(cost_us, axis=-1)[:, None], axis=-1
  )
  return float((explained.mean() + chosen.mean()) / 2) * _SMALL_ERROR


def fit(start: gemm.Precision, rows: gemm_rows.Rows) -> gemm.Precision:
  """Moves the parameters from the start to where they explain the rows."""
  origin = np.log(_vector(start))
  num_rows = len(rows.measured_us)

  def loss(logs: np.ndarray) -> float:
    precision = _with(start, np.exp(logs))
    pull = _PULL * np.sum((logs - origin) ** 2) / num_rows
    too_good = np.maximum(_efficiencies(precision) - 1, 0).sum()
    return _loss(precision, rows) + pull + too_good

  logs = origin
  for _ in range(_ROUNDS):  # Restarts: the simplex collapses early.
    logs = optimize.minimize(
      loss,
      logs,
      method="Nelder-Mead",
      options={"maxfev": _EVALUATIONS, "adaptive": True, "fatol": 1e-6},
    ).x
  digits = [float(f"{value:.4g}") for value in np.exp(logs)]
  return _sustained(_with(start, np.array(digits)), rows)


def _sustained(
  precision: gemm.Precision, rows: gemm_rows.Rows
) -> gemm.Precision:
  """Sets the sustained rate to the fastest that any measured shape suggests.

  The table's products are too short to heat the GPU; larger ones are not
  known to be faster.
  """
  _, cost_us = _recorded(precision, rows)
  times = gemm.candidates(rows.gpu, precision, rows.shape, rows.types)
  best = np.argmin(cost_us, axis=-1)[:, None]
  product_us = np.take_along_axis(times.product_us, best, axis=-1)[:, 0]
  if not np.take_along_axis(times.transpose_us, best, axis=-1).any():
    product_us = np.minimum(product_us, rows.measured_us)
  peak = gemm.peak_tflops(rows.gpu, *rows.types[:2]) * 1e6
  rates = 2 * rows.shape.prod(axis=-1) / product_us
  share = min(float(rates.max() / peak), 1.0)
  return dataclasses.replace(
    precision, sustained_efficiency=float(f"{share:.4g}")
  )


def _vector(precision: gemm.Precision) -> np.ndarray:
  """The parameters that are fitted, in a row."""
  shared = [getattr(precision, name) for name in _SHARED]
  families = [getattr(f, n) for f in precision.families for n in _PER_FAMILY]
  return np.array(shared + families)


def _with(precision: gemm.Precision, vector: np.ndarray) -> gemm.Precision:
  """The precision with other parameters, in the order of `_vector`."""
  values = vector.tolist()
  shared = dict(zip(_SHARED, values, strict=False))
  of_families = np.reshape(values[len(_SHARED) :], (-1, len(_PER_FAMILY)))
  families = tuple(
    gemm.Family(
      rhs_k_innermost=family.rhs_k_innermost,
      **dict(zip(_PER_FAMILY, row, strict=True)),
    )
    for family, row in zip(
      precision.families, of_families.tolist(), strict=True
    )
  )
  return gemm.Precision(families=families, sustained_efficiency=1.0, **shared)


def _efficiencies(precision: gemm.Precision) -> np.ndarray:
  """Shares, none of which can be above 1."""
  return np.array(
    [precision.memory_efficiency]
    + [family.math_efficiency for family in precision.families]
  )
