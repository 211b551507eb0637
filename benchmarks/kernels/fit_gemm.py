# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fits the parameters of costs/gemm.py to measured matrix products.

  python -m benchmarks.kernels.fit_gemm --data=FOLDER [--write] [--hold_out]

Hopper and Blackwell are fitted to XLA's table of measured products, A100 to the
products of a step in FOLDER that overlapped no collective. The slowdown of
products within a step is the median over the shapes of the H100 step, on its
first rank; Blackwell gets the same. --hold_out also fits each precision without
random halves and without whole sizes, and prints the errors on these.

The fit minimizes the logarithm of predicted over measured times, with a loss
that flattens for large errors. Each parameter has a prior at its initial value,
where it stays if the data does not show it.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence
import dataclasses
import pathlib
import statistics

import numpy as np
from scipy import optimize

from benchmarks import data as data_lib
from benchmarks import groups
from benchmarks.steps import traced_step
from lagom_xla import cluster
from lagom_xla import costs
from lagom_xla.costs import gemm


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rows:
  """Measured products.

  Attributes:
    shape: [row, (batch, m, n, k)].
    measured_us: [row].
    median: whether times are medians over a product's kernels, including the
      transpose of the rhs, instead of the product's time.
  """

  gpu: cluster.Gpu
  types: tuple[str, str, str]
  shape: np.ndarray
  measured_us: np.ndarray
  median: bool

  def where(self, mask: np.ndarray) -> Rows:
    """The rows where a mask [row] is true."""
    return dataclasses.replace(
      self, shape=self.shape[mask], measured_us=self.measured_us[mask]
    )


def of_table(device: str, gpu: cluster.Gpu, operand: str, out: str) -> Rows:
  """The rows of XLA's table with operands of a type ("f8": any mixture)."""
  shapes, times_us = [], []
  for row in data_lib.rows("matmul_flops"):
    operands, _, result = row["dtypes"].partition("->")
    alike = all(o.startswith(operand) for o in operands.split("x"))
    if row["device"] == device and alike and result == out:
      shape = [int(row[name]) for name in ("batch", "m", "n", "k")]
      shapes.append(shape)
      flops = 2 * np.prod(shape)
      times_us.append(flops / float(row["flops_per_second"]) * 1e6)
  return Rows(
    gpu=gpu,
    types=(operand, operand, out),
    shape=np.array(shapes),
    measured_us=np.array(times_us),
    median=True,
  )


def of_step(folder: pathlib.Path, ranks: slice = slice(None)) -> Rows:
  """The products of a step that overlapped no collective.

  One row for each shape and kind of kernel (library call or Triton fusion).
  """
  trace = traced_step.TracedStep(folder)
  opcodes = {
    instruction.name: instruction.opcode
    for computation in trace.step.analysis.module.computations.values()
    for instruction in computation.instructions
  }
  times_us = collections.defaultdict(list)
  for rank in range(len(trace.ranks))[ranks]:
    for run in trace.runs(rank):
      kernel = trace.kernels[run.name]
      if run.is_lone and kernel.category == "gemm" and kernel.matrix_shape:
        key = kernel.matrix_shape, opcodes[run.name]
        times_us[key].append(run.time_us)
  return Rows(
    gpu=trace.step.cluster.gpu,
    types=("bf16", "bf16", "bf16"),
    shape=np.array([shape for shape, _ in times_us]),
    measured_us=np.array([statistics.median(v) for v in times_us.values()]),
    median=False,
  )


def _precision(*families: gemm.Family) -> gemm.Precision:
  return gemm.Precision(
    families=families,
    memory_efficiency=0.85,
    sustained_efficiency=1.0,
    split_us=4.0,
    transpose_us=3.0,
  )


# Initial values: a library kernel that reaches most of the peak, loads 64 bytes
# per clock (an SM's L2 port) and takes about 200 clocks per step.
_LIBRARY = gemm.Family(
  launch_us=5.0,
  math_efficiency=0.85,
  operand_bytes_per_clock=64.0,
  step_clocks=200.0,
  tile_clocks=600.0,
  store_bytes_per_clock=32.0,
  rhs_k_innermost=False,
)
_K_INNERMOST = dataclasses.replace(
  _LIBRARY, launch_us=6.0, rhs_k_innermost=True
)
# Kernels that transpose the rhs in shared memory: no kernel before them, but
# slow steps.
_TURNING_F8 = dataclasses.replace(
  _LIBRARY,
  launch_us=4.0,
  math_efficiency=0.25,
  step_clocks=2500.0,
  store_bytes_per_clock=4.0,
)
_TURNING_F32 = dataclasses.replace(
  _LIBRARY, launch_us=5.0, operand_bytes_per_clock=32.0, step_clocks=600.0
)
_LATE_F32 = dataclasses.replace(
  _LIBRARY, launch_us=7.0, operand_bytes_per_clock=48.0, step_clocks=400.0
)
# Within a running step, the GPU is warm.
_WARM = dataclasses.replace(_LIBRARY, launch_us=3.0)

_START = {
  # From the A100 step.
  ("sm_80", "bf16"): _precision(_WARM),
  ("sm_90", "bf16"): _precision(_LIBRARY),
  ("sm_90", "f8"): _precision(_K_INNERMOST, _TURNING_F8),
  ("sm_90", "f32"): _precision(_TURNING_F32, _LATE_F32),
  ("sm_100", "bf16"): _precision(_LIBRARY),
  ("sm_100", "f8"): _precision(_LIBRARY),
  ("sm_100", "f32"): _precision(_LIBRARY),
}


# Smaller errors count by their square, larger ones linearly.
_SMALL_ERROR = 0.05
# Weight of the prior, relative to the summed loss of the rows.
_PULL = 0.2
_ROUNDS = 6
_EVALUATIONS = 2000
_SHARED = ("memory_efficiency", "split_us", "transpose_us")
_PER_FAMILY = tuple(
  f.name for f in dataclasses.fields(gemm.Family) if f.name != "rhs_k_innermost"
)


def predicted_us(precision: gemm.Precision, rows: Rows) -> np.ndarray:
  """The model's prediction for each row."""
  recorded_us, cost_us = _recorded(precision, rows)
  best = np.argmin(cost_us, axis=-1)[:, None]
  return np.take_along_axis(recorded_us, best, axis=-1)[:, 0]


def _recorded(
  precision: gemm.Precision, rows: Rows
) -> tuple[np.ndarray, np.ndarray]:
  """For each candidate: the recorded time, and the one autotuning compares."""
  times = gemm.candidates(rows.gpu, precision, rows.shape, rows.types)
  if rows.median:
    total_us, median_us = gemm.total_and_median(times)
    return median_us, total_us
  product_us = times.product_us + times.reduction_us
  return product_us, product_us


def _loss(precision: gemm.Precision, rows: Rows) -> float:
  """Mean loss of a row.

  Half of it uses the candidate that the model chooses. The other half uses the
  candidate that explains the row best, and adds its predicted slowdown over the
  chosen one. Without that half, the fit could not reach another choice, because
  choices change discontinuously.
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


def fit(start: gemm.Precision, rows: Rows) -> gemm.Precision:
  """Fits the parameters to the rows, beginning at `start`."""
  origin = np.log(_vector(start))
  num_rows = len(rows.measured_us)

  def loss(logs: np.ndarray) -> float:
    precision = _with(start, np.exp(logs))
    pull = _PULL * np.sum((logs - origin) ** 2) / num_rows
    # Efficiencies cannot exceed 1.
    shares = [f.math_efficiency for f in precision.families]
    shares = np.array([precision.memory_efficiency, *shares])
    too_good = np.maximum(shares - 1, 0).sum()
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


def _sustained(precision: gemm.Precision, rows: Rows) -> gemm.Precision:
  """Sets the sustained rate to the highest of any measured shape.

  The table's products are too short to heat the GPU, and nothing shows that
  larger ones are faster.
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
  """The fitted parameters, as a vector."""
  shared = [getattr(precision, name) for name in _SHARED]
  families = [getattr(f, n) for f in precision.families for n in _PER_FAMILY]
  return np.array(shared + families)


def _with(precision: gemm.Precision, vector: np.ndarray) -> gemm.Precision:
  """The precision with these parameters, in the order of `_vector`."""
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


_A100_STEP = "pax_a100"
_H100_STEP = "maxtext_h100"
_TABLES = {
  "sm_90": ("sm_90", "1x8xh100"),
  "sm_100": ("sm_100_B200", "1x8xb200"),
}
_OPERANDS = {"bf16": "bf16", "f8": "bf16", "f32": "f32"}


def _group(
  name: str, rows: Sequence[Rows], predicted: Sequence[np.ndarray]
) -> groups.Group:
  measured_us = np.concatenate([part.measured_us for part in rows]).tolist()
  shapes = np.concatenate([part.shape for part in rows]).tolist()
  times_us = np.concatenate(predicted).tolist()
  return groups.of_comparisons(
    name, list(map(groups.Comparison, map(str, shapes), measured_us, times_us))
  )


def in_step(precision: gemm.Precision, data: pathlib.Path) -> float:
  """Time of products in the H100 step, over their time alone."""
  folder = data / _H100_STEP
  rows = of_step(folder, slice(1))
  ratio = float(np.median(rows.measured_us / predicted_us(precision, rows)))
  others = of_step(folder, slice(1, None))
  groups.show(
    "Products in the H100 step",
    [
      _group(name, [judged], [ratio * predicted_us(precision, judged)])
      for name, judged in (("first rank", rows), ("others", others))
    ],
  )
  return float(f"{ratio:.3g}")


def _held_out(start: gemm.Precision, rows: Rows) -> Iterator[groups.Group]:
  """Errors on rows that the fit did not see."""
  random = np.random.default_rng(0)
  halves = []
  for _ in range(2):
    order = random.permutation(len(rows.measured_us))
    first = np.isin(np.arange(len(order)), order[: len(order) // 2])
    halves += [first, ~first]
  sizes = [rows.shape[:, 3] == k for k in np.unique(rows.shape[:, 3])]
  for name, masks in (("random halves", halves), ("each k", sizes)):
    yield _group(
      f"held out: {name}",
      [rows.where(mask) for mask in masks],
      [
        predicted_us(fit(start, rows.where(~mask)), rows.where(mask))
        for mask in masks
      ],
    )


def _fit_and_show(
  title: str, start: gemm.Precision, rows: Rows, *, hold_out: bool
) -> gemm.Precision:
  precision = fit(start, rows)
  found = [
    _group("before", [rows], [predicted_us(start, rows)]),
    _group("after", [rows], [predicted_us(precision, rows)]),
  ]
  if hold_out and rows.median:
    found += _held_out(start, rows)
  groups.show(f"{title}, {rows.gpu.name}", found)
  return precision


def main() -> None:
  """Fits, reports, and writes the parameters if asked to."""
  arguments = data_lib.arguments(__doc__, "write", "hold_out")
  hold_out = arguments.hold_out
  document = costs.read_fitted("gemm")
  step = _fit_and_show(
    "sm_80 bf16",
    _START["sm_80", "bf16"],
    of_step(arguments.data / _A100_STEP),
    hold_out=hold_out,
  )
  # f32 is derived: the same shares of the TF32 peak.
  precisions = dict.fromkeys(("bf16", "f32"), dataclasses.asdict(step))
  document["sm_80"]["precisions"] = precisions
  fitted: dict[str, dict[str, gemm.Precision]] = {}
  for architecture, (device, name) in _TABLES.items():
    gpu = cluster.parse(name).gpu
    fitted[architecture] = {
      operand: _fit_and_show(
        f"{architecture} {operand}",
        _START[architecture, operand],
        of_table(device, gpu, operand, out),
        hold_out=hold_out,
      )
      for operand, out in _OPERANDS.items()
    }
  ratio = in_step(fitted["sm_90"]["bf16"], arguments.data)
  for architecture, found in fitted.items():
    document[architecture]["precisions"] = {
      operand: {**dataclasses.asdict(precision), "in_step": ratio}
      for operand, precision in found.items()
    }
  if arguments.write:
    data_lib.write_fitted("gemm", document)


if __name__ == "__main__":
  main()
