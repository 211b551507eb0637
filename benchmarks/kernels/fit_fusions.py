# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fits costs/fusion.py to measured steps.

  python -m benchmarks.kernels.fit_fusions --data=FOLDER [--write]

Uses the kernels of each step in FOLDER (benchmarks/steps/traced_step.py) that
overlapped no collective, in its steady steps, on the first rank, and fits one
set of parameters for each architecture. Prints the errors on all ranks, those
of fits to one half of the classes on the other half, and copies of more than a
few bytes, alone and beside collectives.

The fit minimizes the logarithm of predicted over measured times of classes,
with a loss that flattens for large errors. Each class is weighted by the square
root of its share of the step time. Launch times are medians of kernels that
move less than 64 KiB; the gap is the mean of gaps that cannot include a wait.
Wave and block rate have a prior at those of the step before, as strong as is
best for held-out kernels.

The vector share comes from kernels whose operations take longer than their
bytes, both at full rate. There is one, on the A100. If it were fitted with the
memory-bound kernels, its prediction would be 2.8 times too slow.

XLA emits a fusion that only copies an array in memory order as a memcpy
(GetCopyFusion in codegen/fusions.cc). So whole copies show the cost of a
memcpy: the launch is the median of copies of a few bytes, and the share of the
memory bandwidth is that of the longest one.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Sequence
import dataclasses
import json
import pathlib
import statistics
from typing import Any

import numpy as np
from scipy import optimize

from benchmarks import data as data_lib
from benchmarks import groups
from benchmarks.kernels import lone_kernels
from benchmarks.steps import traced_step
from lagom_xla import cluster as cluster_lib
from lagom_xla import costs
from lagom_xla.costs import fusion
from lagom_xla.passes import hlo
from lagom_xla.profiling import events as events_lib

# Smaller errors count by their square, larger ones linearly.
_SMALL_ERROR = 0.1
_TINY_BYTES = 65536
# Longer gaps contain a wait, or an operation that the trace lacks.
_LONGEST_GAP_US = 10.0
# A copy counts as lone if it runs beside collectives for less than this share
# of its time. The only long one on H100 does for 8 %.
_LEAST_SHARE = 0.1
_ROUNDS = 3
_PRECISELY = {"xatol": 1e-6, "fatol": 1e-10, "maxiter": 10000, "maxfev": 10000}
# The best of 1e-5, 1e-3 and 0.01 on held-out halves of the classes, on both
# GPUs.
_PULL = 0.01
_PATTERNS = ("elementwise", "row-reduction", "column-reduction", "transpose")
# Initial values of the first step's fit.
_WAVE_US = 1.3
_BLOCK_GBPS = 13.0
_MEMORY_SHARE = 0.8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
  """The lone kernels of one step.

  Attributes:
    trace: the step.
    ranks: for each rank, classes of fusions, copies and the like.
    scatters: for each rank, the scatters that can collide.
  """

  trace: traced_step.TracedStep
  ranks: Sequence[Sequence[lone_kernels.Class]]
  scatters: Sequence[Sequence[lone_kernels.Class]]

  @property
  def gpu(self) -> cluster_lib.Gpu:
    """The GPU of the step."""
    return self.trace.step.cluster.gpu

  @property
  def gap_us(self) -> float:
    """Mean gap between kernels on the first rank, without waits, in us."""
    collectives = self.trace.collectives
    gaps_us = []
    for step in self.trace.ranks[0]:
      # Gaps to the next event, whether it is a kernel or not.
      runs = events_lib.kernel_runs(
        [event for event in step if event.name not in collectives],
        [event for event in step if event.name in collectives],
      )
      gaps_us += [
        run.gap_us
        for run in runs
        if run.is_lone
        and run.gap_us is not None
        and 0 <= run.gap_us < _LONGEST_GAP_US
      ]
    return round(statistics.mean(gaps_us), 2)


def read(data: pathlib.Path) -> Iterator[Measured]:
  """The steps in the subfolders of a folder."""
  for folder in traced_step.folders(data):
    trace = traced_step.TracedStep(folder)
    gpu = trace.step.cluster.gpu
    ranks, scatters = [], []
    for rank in range(len(trace.ranks)):
      apart, others = [], []
      for found in lone_kernels.classes(trace, rank):
        scatter = found.kernel.scatter
        if scatter and fusion.num_tries(scatter, gpu):
          apart.append(found)
        elif found.kernel.category != "gemm":
          others.append(found)
      ranks.append(others)
      scatters.append(apart)
    yield Measured(trace=trace, ranks=ranks, scatters=scatters)


def fit(
  rows: Sequence[lone_kernels.Class], gpu: cluster_lib.Gpu, start: fusion.Fitted
) -> fusion.Fitted:
  """Fits launches, memory shares, the wave and the block rate to classes."""
  measured_us = np.array([r.measured_us for r in rows])
  weights = np.sqrt([r.measured_us * r.per_step for r in rows])
  weights /= weights.sum()
  launches_us = {name: _launch_us(rows, name) for name in start.patterns}

  def parameters(values: Sequence[float]) -> fusion.Fitted:
    wave_us, block_gbps, *shares = values
    return dataclasses.replace(
      start,
      wave_us=wave_us,
      block_gbps=block_gbps,
      patterns={
        name: fusion.Pattern(launch_us=launch_us, memory_share=min(share, 1.0))
        for (name, launch_us), share in zip(
          launches_us.items(), shares, strict=True
        )
      },
    )

  def loss(logs: np.ndarray) -> float:
    predicted = _predicted_us(parameters(np.exp(logs).tolist()), rows, gpu)
    error = np.log(predicted / measured_us) / _SMALL_ERROR
    return float(
      np.sum(weights * (np.sqrt(1 + error**2) - 1))
      + _PULL * np.sum((logs - first)[:2] ** 2)
    )

  shares = [p.memory_share for p in start.patterns.values()]
  first = logs = np.log([start.wave_us, start.block_gbps, *shares])
  for _ in range(_ROUNDS):  # Restarts: the simplex collapses early.
    logs = optimize.minimize(
      loss, logs, method="Nelder-Mead", options=_PRECISELY
    ).x
  return parameters([float(f"{value:.3g}") for value in np.exp(logs)])


def _vector_share(steps: Sequence[Measured]) -> float:
  """Median over the first ranks' classes that operations limit."""
  shares = [
    _operations_us(row, step.gpu)
    / (row.measured_us - _launch_us(step.ranks[0], row.kernel.pattern))
    for step in steps
    for row in step.ranks[0]
    if _operations_bound(row, step.gpu)
  ]
  return float(f"{statistics.median(shares):.3g}")


def _operations_bound(row: lone_kernels.Class, gpu: cluster_lib.Gpu) -> bool:
  """Whether operations take longer than bytes, both at full rate."""
  bytes_us = row.kernel.num_bytes / (gpu.hbm_gbps * 1e3)
  return _operations_us(row, gpu) > bytes_us


def _operations_us(row: lone_kernels.Class, gpu: cluster_lib.Gpu) -> float:
  """Operation time at the full vector rate; a multiply-add counts as one."""
  per_us = gpu.vector_f32_tflops / 2 * 1e6
  return row.kernel.num_element_operations / per_us


def _launch_us(rows: Sequence[lone_kernels.Class], pattern: str) -> float:
  """Median over kernels, not classes, that move almost nothing."""
  tiny = [r for r in rows if r.kernel.num_bytes < _TINY_BYTES]
  alike = [r for r in tiny if r.kernel.pattern == pattern] or tiny
  times = np.repeat([r.measured_us for r in alike], [r.num_runs for r in alike])
  return round(float(np.median(times)), 2)


def _predicted_us(
  parameters: fusion.Fitted,
  rows: Sequence[lone_kernels.Class],
  gpu: cluster_lib.Gpu,
) -> np.ndarray:
  """Run times, without the gap."""
  return np.array([fusion.time_us(parameters, r.kernel, gpu) for r in rows])


def _tries_per_clock(steps: Sequence[Measured]) -> float:
  """Median over the first ranks' scatters, whose ids are all the same."""
  rates = [
    fusion.num_tries(c.kernel.scatter, step.gpu)
    / (c.measured_us * step.gpu.clock_ghz * 1e3)
    for step in steps
    for c in step.scatters[0]
    if c.kernel.scatter
  ]
  return float(f"{statistics.median(rates):.3g}")


def _copies(
  trace: traced_step.TracedStep, ranks: Iterable[int]
) -> Iterator[tuple[int, events_lib.KernelRun]]:
  """The runs of whole copies, with their bytes."""
  computations = trace.step.analysis.module.computations
  size_of = {
    instruction.name: hlo.shape_bytes(instruction.shape)
    for computation in computations.values()
    for instruction in computation.instructions
    if instruction.opcode == "fusion"
    and _only_copies(computations[instruction.called_computation_ids[0]])
  }
  for rank in ranks:
    for run in trace.runs(rank):
      if run.name in size_of:
        yield size_of[run.name], run


def _only_copies(fused: hlo.Computation) -> bool:
  if fused.root.opcode != "copy":
    return False
  (source,) = fused.operands(fused.root)
  before, after = source.shape.layout, fused.root.shape.layout
  return (
    source.opcode == "parameter"
    and before.minor_to_major == after.minor_to_major
  )


def _memcpy(trace: traced_step.TracedStep) -> fusion.Pattern:
  """A memcpy's launch and share of the memory's rate."""
  by_size = collections.defaultdict(list)
  for num_bytes, run in _copies(trace, [0]):
    if run.share < _LEAST_SHARE:
      by_size[num_bytes].append(run.time_us)
  launch_us = statistics.median(
    time_us
    for num_bytes, times_us in by_size.items()
    if num_bytes < _TINY_BYTES
    for time_us in times_us
  )
  largest = max(by_size)
  least_us = 2 * largest / (1e3 * trace.step.cluster.gpu.hbm_gbps)
  share = least_us / (statistics.median(by_size[largest]) - launch_us)
  return fusion.Pattern(
    launch_us=round(launch_us, 2), memory_share=round(share, 3)
  )


_LONG_US = 8.0


def _compared(
  rows: Sequence[lone_kernels.Class], predicted_us: Iterable[float]
) -> list[groups.Comparison]:
  return [
    groups.Comparison(f"{row.kernel.name}, us", row.measured_us, us)
    for row, us in zip(rows, predicted_us, strict=True)
  ]


def _errors(
  step: Measured, start: fusion.Fitted, parameters: fusion.Fitted
) -> Iterator[groups.Group]:
  """Errors of the fit to the first rank, and of fits to half of its classes."""
  for rank, rows in enumerate(step.ranks):
    for what, least_us in (("all", 0.0), ("of 8 us and more", _LONG_US)):
      part = [r for r in rows if r.measured_us >= least_us]
      found = _compared(part, _predicted_us(parameters, part, step.gpu))
      yield groups.of_comparisons(f"rank {rank}, {what}", found)
  # Kernels limited by operations are not held out from the vector share.
  rows = [r for r in step.ranks[0] if not _operations_bound(r, step.gpu)]
  halves = (rows[::2], rows[1::2])
  found = []
  for seen, unseen in (halves, halves[::-1]):
    long = [row for row in unseen if row.measured_us >= _LONG_US]
    fitted = fit(seen, step.gpu, start)
    found += _compared(long, _predicted_us(fitted, long, step.gpu))
  yield groups.of_comparisons("held-out halves, of 8 us and more", found)


def _show_copies(trace: traced_step.TracedStep) -> None:
  found = collections.defaultdict(list)
  for num_bytes, run in _copies(trace, range(len(trace.ranks))):
    if num_bytes >= _TINY_BYTES:
      where = "alone" if run.share < _LEAST_SHARE else "beside collectives"
      found[num_bytes, where].append(run.time_us)
  for (num_bytes, where), times_us in sorted(found.items()):
    print(
      f"{trace.name}: {len(times_us)} copies of {num_bytes} bytes {where}:"
      f" {min(times_us):.1f} to {max(times_us):.1f} us"
    )


def fusions(steps: Sequence[Measured]) -> dict[str, dict[str, Any]]:
  """The contents of fusion.json by architecture; prints each step's errors."""
  sections = costs.read_fitted("fusion")
  unknown = fusion.Pattern(launch_us=0.0, memory_share=_MEMORY_SHARE)
  parameters = fusion.Fitted(
    launch_gap_us=0.0,
    vector_share=_vector_share(steps),
    wave_us=_WAVE_US,
    block_gbps=_BLOCK_GBPS,
    patterns=dict.fromkeys(_PATTERNS, unknown),
  )
  for step in steps:
    start = dataclasses.replace(parameters, launch_gap_us=step.gap_us)
    parameters = fit(step.ranks[0], step.gpu, start)
    title = f"{step.trace.name}: fitted to the first rank"
    groups.show(title, _errors(step, start, parameters))
    _show_copies(step.trace)
    patterns = {**parameters.patterns, "memcpy": _memcpy(step.trace)}
    shipped = dataclasses.replace(parameters, patterns=patterns)
    architecture = f"sm_{step.gpu.compute_capability[0]}0"
    sections[architecture] |= dataclasses.asdict(shipped)
  return sections


def main() -> None:
  """Fits, reports, and writes the parameters if asked to."""
  arguments = data_lib.arguments(__doc__, "write")
  steps = list(read(arguments.data))
  tries = costs.read_fitted("scatter")
  tries["tries_per_clock"] = _tries_per_clock(steps)
  for name, document in (("fusion", fusions(steps)), ("scatter", tries)):
    if arguments.write:
      data_lib.write_fitted(name, document)
    else:
      print(json.dumps(document, indent=2))


if __name__ == "__main__":
  main()
