# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lone kernels of measured steps, grouped by equal work, and their errors.

Kernels with equal inputs to the cost model form a class; the fits use classes.
The measured time is the median over a class's runs without a collective, times
its runs per step, without gaps between kernels.

Rows of PyTorch's kernels beside NCCL's on A100s come from traces published with
HolisticTraceAnalysis (facebookresearch, MIT): a kernel's time alone, its time
if an NCCL kernel runs for 95 % of it, and its grid. They lack the bytes of both
kernels, so only waves are predicted, by equation (5) of `contention.py`. NCCL's
SendRecv kernels there are all-to-alls of unequal parts, whose blocks end one by
one; on average they occupy half of the SMs.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping
import dataclasses
import pathlib
import statistics

from benchmarks import data
from benchmarks import groups as groups_lib
from benchmarks.steps import traced_step
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import contention
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs import measured as measured_lib
from lagom_xla.passes import kernels as kernels_lib

# Fields of a kernel that say where it is and how XLA made it.
_NOT_OF_WORK = frozenset(
  ["name", "computation", "instruction_id", "backend_config"]
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Class:
  """Kernels of equal work: one of them, its time, and the number of runs."""

  kernel: kernels_lib.Kernel
  measured_us: float
  num_runs: int
  per_step: float


def classes(trace: traced_step.TracedStep, rank: int) -> list[Class]:
  """Lone kernels of a rank by equal work, including matrix products."""
  members = collections.defaultdict(list)
  for run in trace.runs(rank):
    if run.is_lone:
      kernel = trace.kernels[run.name]
      work = tuple(
        getattr(kernel, field.name)
        for field in dataclasses.fields(kernel)
        if field.name not in _NOT_OF_WORK
      )
      members[work].append((kernel, run.time_us))
  return [
    Class(
      kernel=found[0][0],
      measured_us=statistics.median(time_us for _, time_us in found),
      num_runs=len(found),
      per_step=len(found) / len(trace.ranks[rank]),
    )
    for found in members.values()
  ]


_LEAST_SAMPLES = 2


def groups(trace: traced_step.TracedStep) -> Iterator[groups_lib.Group]:
  """Groups of a step's lone products and of its other lone kernels."""
  alike = collections.defaultdict(list)
  # Their times depend on how often indices repeat.
  of_data = {kernel.name for kernel in trace.colliding_scatters}
  for kernel in trace.kernels.values():
    if kernel.name not in of_data:
      alike[measured_lib.work_of(kernel)].append(kernel)
  found: dict[str, list[groups_lib.Comparison]] = {
    "products": [],
    "other kernels": [],
  }
  for kernels in alike.values():
    lone_us = trace.profile.lone_us
    times = [us for k in kernels for us in lone_us.get(k.name, ())]
    if len(times) >= _LEAST_SAMPLES and statistics.median(times) > 0:
      kernel, runs = kernels[0], sum(k.executions for k in kernels)
      found[
        "products" if kernel.category == "gemm" else "other kernels"
      ].append(
        groups_lib.Comparison(
          f"{kernel.name}, us per step",
          statistics.median(times) * runs,
          trace.kernel_cost(kernel).time_us * runs,
        )
      )
  for name, compared in found.items():
    if compared:
      yield groups_lib.of_comparisons(f"{trace.name}: lone {name}", compared)


_SEND_RECV = "ncclKernel_SendRecv"
_GPUS = {"A100": "a100_40"}


def groups_of_pytorch(folder: pathlib.Path) -> Iterator[groups_lib.Group]:
  """Groups of products and of other kernels, for every table in a folder."""
  yield from groups_lib.by_name(
    "PyTorch on A100: ",
    (_compare(r) for p in sorted(folder.glob("*.csv")) for r in data.rows(p)),
  )


def _compare(row: Mapping[str, str]) -> tuple[str, groups_lib.Comparison]:
  gpu = cluster_lib.parse(f"1x8x{_GPUS[row['gpu'].partition('-')[0][:4]]}").gpu
  lone_us = float(row["lone_us"])
  kernel = kernel_lib.KernelCost(
    time_us=lone_us,
    memory_us=0.0,
    num_blocks=int(float(row["ctas"])),
    blocks_per_sm=int(float(row["cta_per_sm"])),
    source="measured",
  )
  num_channels = int(row["nccl_grid"].partition("x")[0])
  if row["nccl_kernel"].startswith(_SEND_RECV):
    num_channels = -(-num_channels // 2)
  collective = collective_lib.CollectiveCost(
    time_us=0.0, num_channels=num_channels, memory_gbps=0.0
  )
  slowed = contention.beside(kernel, collective, gpu)
  name = "products" if row["cls"] == "gemm" else "other kernels"
  return f"{name} beside NCCL", groups_lib.Comparison(
    f"{row['grid']} blocks beside {row['nccl_grid']} of "
    f"{row['nccl_kernel'].partition('_Sum')[0]}",
    float(row["beside_us"]) / lone_us,
    slowed.kernel_us / lone_us,
  )
