# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measured matrix products, as rows of a fit: XLA's table, and traced steps."""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import statistics

import numpy as np

from benchmarks import data as data_lib
from benchmarks.steps import trace as step_trace
from lagom_xla.cluster import gpu as gpu_lib
from lagom_xla.passes import collectives
from lagom_xla.passes import kernels
from lagom_xla.profiling import events as events_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rows:
  """Measured products.

  Attributes:
    shape: [row, (batch, m, n, k)].
    measured_us: [row].
    median: whether the time is the median over the product's kernels, with the
      transpose of the rhs among them, rather than the product's time.
  """

  gpu: gpu_lib.Gpu
  types: tuple[str, str, str]
  shape: np.ndarray
  measured_us: np.ndarray
  median: bool

  def where(self, mask: np.ndarray) -> Rows:
    """The rows for which a mask [row] is true."""
    return dataclasses.replace(
      self, shape=self.shape[mask], measured_us=self.measured_us[mask]
    )


def of_table(device: str, gpu: gpu_lib.Gpu, operand: str, out: str) -> Rows:
  """The rows of XLA's table with operands of a kind ("f8": any mixture)."""
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

  Args:
    folder: of the step.
    ranks: which to take.
  """
  module = step_trace.module(folder)
  keys = {}
  for computation in module.computations.values():
    for instruction in computation.instructions:
      if kernels.launches_kernel(module, instruction):
        kernel = kernels.of_instruction(module, computation, instruction)
        if kernel.category == "gemm" and kernel.matrix_shape:
          keys[kernel.name] = (kernel.matrix_shape, instruction.opcode)
  names = {c.name for c in collectives.find(module)}
  times_us = collections.defaultdict(list)
  by_rank = [*step_trace.by_rank(folder, module).values()]
  for steps in by_rank[ranks]:
    for run in events_lib.lone_runs(steps, names):
      if run.name in keys:
        times_us[keys[run.name]].append(run.time_us)
  return Rows(
    gpu=step_trace.cluster(folder, module).gpu,
    types=("bf16", "bf16", "bf16"),
    shape=np.array([shape for shape, _ in times_us]),
    measured_us=np.array([statistics.median(v) for v in times_us.values()]),
    median=False,
  )
