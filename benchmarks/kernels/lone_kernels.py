# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lone kernels of measured steps, by equal work: what the fits are made to."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence
import dataclasses
import pathlib
import statistics

from benchmarks.steps import trace as step_trace
from lagom_xla.cluster import gpu as gpu_lib
from lagom_xla.costs import scatter
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels
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

  kernel: kernels.Kernel
  measured_us: float
  num_runs: int
  per_step: float


def classes(
  module: hlo.Module, lone: Sequence[events_lib.KernelRun], num_steps: int
) -> list[Class]:
  """Lone kernels by equal work, matrix products too.

  Args:
    module: of the step.
    lone: its kernels where they ran beside no collective.
    num_steps: that these runs are from, counted once for each rank.
  """
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
  gpu: gpu_lib.Gpu
  ranks: Sequence[Sequence[Class]]
  scatters: Sequence[Sequence[Class]]
  gap_us: float


def read(data: pathlib.Path) -> Iterator[Measured]:
  """The steps of a folder of folders."""
  for folder in step_trace.folders(data):
    module = step_trace.module(folder)
    gpu = step_trace.cluster(folder, module).gpu
    names = {c.name for c in collectives.find(module)}
    ranks, scatters, gaps_us = [], [], []
    for steps in step_trace.by_rank(folder, module).values():
      lone = events_lib.lone_runs(steps, names)
      gaps_us.append([
        run.gap_us
        for run in lone
        if run.gap_us is not None and 0 <= run.gap_us < _LONGEST_GAP_US
      ])  # fmt: skip
      every = classes(module, lone, len(steps))
      collides = [_collides(c.kernel, gpu) for c in every]
      ranks.append(
        [
          c
          for c, apart in zip(every, collides, strict=True)
          if c.kernel.category != "gemm" and not apart
        ]
      )
      scatters.append([c for c, x in zip(every, collides, strict=True) if x])
    yield Measured(
      name=folder.name,
      gpu=gpu,
      ranks=ranks,
      scatters=scatters,
      gap_us=round(statistics.mean(gaps_us[0]), 2),
    )


def _collides(kernel: kernels.Kernel, gpu: gpu_lib.Gpu) -> bool:
  return bool(kernel.scatter and scatter.num_tries(kernel.scatter, gpu))
