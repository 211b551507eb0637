# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lone kernels of measured steps, by equal work, and beside the model.

Kernels that are alike in all that the cost model sees are a class: the fits are
made to these. Measured is the median time of a class where it ran beside no
collective, times how often it runs per step; gaps between kernels are in
neither figure.

PyTorch's kernels beside NCCL's on A100s are rows of traces that were published
with HolisticTraceAnalysis (facebookresearch, MIT): what one takes alone, what
it takes where a NCCL kernel runs for at least 95 % of its time, how many blocks
it has, and how many of them fit an SM. Neither kernel's bytes are given, so
only the waves are predicted, equation (5) of `contention.py`. NCCL's SendRecv
kernels are all-to-alls of unequal parts there, and their blocks leave one by
one, each when its peers have what it had for them. On average half of the SMs
are taken.
"""

from __future__ import annotations

import collections
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
import csv
import dataclasses
import pathlib
import statistics

from benchmarks import groups as groups_lib
from benchmarks.steps import traced_step
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import contention
from lagom_xla.costs import fusion as fusion_lib
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs import measured as measured_lib
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels as kernels_lib
from lagom_xla.passes import overlap
from lagom_xla.profiling import events as events_lib

# A gap that is longer holds a wait, or an operation that the trace lacks.
_LONGEST_GAP_US = 10.0
# What of a kernel says where it is and how XLA made it.
_NOT_OF_WORK = frozenset(
  ["name", "computation", "instruction_id", "backend_config"]
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Class:
  """Kernels of equal work: one of them, its time, and how many ran."""

  kernel: kernels_lib.Kernel
  measured_us: float
  num_runs: int
  per_step: float


def runs(
  steps: Iterable[Sequence[events_lib.Event]], collective_names: Container[str]
) -> Iterator[events_lib.KernelRun]:
  """The kernels of these steps, with the collectives that ran beside them."""
  for step in steps:
    yield from events_lib.kernel_runs(
      [event for event in step if event.name not in collective_names],
      [event for event in step if event.name in collective_names],
    )


def classes(
  module: hlo.Module, lone: Sequence[events_lib.KernelRun], num_steps: int
) -> list[Class]:
  """Lone kernels by equal work, matrix products too."""
  kernel_of = {k.name: k for k in overlap.analyze(module).kernels.values()}
  members = collections.defaultdict(list)
  for run in lone:
    if kernel := kernel_of.get(run.name):
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
      per_step=len(found) / num_steps,
    )
    for found in members.values()
  ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
  """The lone kernels of one step.

  Attributes:
    name: of its folder.
    gpu: that it ran on.
    ranks: for each rank, classes of fusions, copies and the like.
    scatters: for each rank, the scatters that can collide.
    gap_us: mean gap between kernels on the first rank.
  """

  name: str
  gpu: cluster_lib.Gpu
  ranks: Sequence[Sequence[Class]]
  scatters: Sequence[Sequence[Class]]
  gap_us: float


def read(data: pathlib.Path) -> Iterator[Measured]:
  """The steps of a folder of folders."""
  for folder in traced_step.folders(data):
    module = traced_step.read_module(folder)
    gpu = traced_step.cluster_of(folder, module).gpu
    names = {c.name for c in collectives.find(module)}
    ranks, scatters, gaps_us = [], [], []
    for steps in traced_step.by_rank(folder, module).values():
      lone = [run for run in runs(steps, names) if run.is_lone]
      gaps_us.append([
        run.gap_us
        for run in lone
        if run.gap_us is not None and 0 <= run.gap_us < _LONGEST_GAP_US
      ])  # fmt: skip
      apart, others = [], []
      for found in classes(module, lone, len(steps)):
        scatter = found.kernel.scatter
        if scatter and fusion_lib.num_tries(scatter, gpu):
          apart.append(found)
        elif found.kernel.category != "gemm":
          others.append(found)
      ranks.append(others)
      scatters.append(apart)
    yield Measured(
      name=folder.name,
      gpu=gpu,
      ranks=ranks,
      scatters=scatters,
      gap_us=round(statistics.mean(gaps_us[0]), 2),
    )


_LEAST_SAMPLES = 2


def groups(folder: pathlib.Path) -> Iterator[groups_lib.Group]:
  """Lone products and lone other kernels of the step in a folder."""
  trace = traced_step.TracedStep(folder)
  found: dict[bool, list[groups_lib.Comparison]] = {True: [], False: []}
  for kernels, times in _classes(trace):
    kernel = kernels[0]
    runs = sum(k.executions for k in kernels)
    alone = traced_step.without_gap(trace.step.kernel_cost(kernel))
    found[kernel.category == "gemm"].append(
      groups_lib.Comparison(
        what=f"{kernel.name}, us per step",
        measured=statistics.median(times) * runs,
        predicted=alone.time_us * runs,
      )
    )
  for is_product, name in (
    (True, "lone products"),
    (False, "lone other kernels"),
  ):
    if found[is_product]:
      yield groups_lib.of_comparisons(
        f"{trace.name}: {name}", found[is_product]
      )


def _classes(
  trace: traced_step.TracedStep,
) -> Iterator[tuple[list[kernels_lib.Kernel], list[float]]]:
  """Kernels that are alike, with their lone times."""
  alike: dict[measured_lib.Work, list[kernels_lib.Kernel]] = (
    collections.defaultdict(list)
  )
  # What these take depends on how often their indices repeat.
  of_data = {kernel.name for kernel in trace.colliding_scatters}
  for kernel in trace.kernels.values():
    if kernel.name not in of_data:
      alike[measured_lib.work_of(kernel)].append(kernel)
  for kernels in alike.values():
    times = [us for k in kernels for us in trace.lone_us.get(k.name, ())]
    if len(times) >= _LEAST_SAMPLES and statistics.median(times) > 0:
      yield kernels, times


_SEND_RECV = "ncclKernel_SendRecv"
_GPUS = {"A100": "a100_40"}


def groups_of_pytorch(folder: pathlib.Path) -> Iterator[groups_lib.Group]:
  """Products and all else, of every table in a folder."""
  by_name = collections.defaultdict(list)
  for path in sorted(folder.glob("*.csv")):
    with path.open(encoding="utf-8", newline="") as file:
      for row in csv.DictReader(file):
        name = "products" if row["cls"] == "gemm" else "other kernels"
        by_name[f"PyTorch on A100: {name} beside NCCL"].append(_compare(row))
  for name, comparisons in sorted(by_name.items()):
    yield groups_lib.of_comparisons(name, comparisons)


def _compare(row: Mapping[str, str]) -> groups_lib.Comparison:
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
  return groups_lib.Comparison(
    what=f"{row['grid']} blocks beside {row['nccl_grid']} of "
    f"{row['nccl_kernel'].partition('_Sum')[0]}",
    measured=float(row["beside_us"]) / lone_us,
    predicted=slowed.kernel_us / lone_us,
  )
