# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Variations of Lagom's search, each with one of its ideas taken out."""

from __future__ import annotations

import dataclasses

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import contention
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs import nccl
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import costs as costs_lib
from lagom_xla.search.nccl import lagom
from lagom_xla.search.nccl import problem as problem_lib


class RoundRobin(lagom.Lagom):
  """Raises the keys in turn, whatever it gains."""

  def _enqueue(
    self, queue: lagom.Queue, h: float, key: problem_lib.Key
  ) -> lagom.Queue:
    return (*queue, (h, key))


class ChannelsOnly(lagom.Lagom):
  """Leaves the chunk size as NCCL has it."""

  def _subspaces(
    self,
    key: problem_lib.Key,
    start: nccl.Setting,
    cluster: cluster_lib.Cluster,
  ) -> tuple[problem_lib.Subspace, ...]:
    return tuple(
      dataclasses.replace(subspace, chunk_bytes=(_own_chunk(subspace, start),))
      for subspace in super()._subspaces(key, start, cluster)
    )


class ChunksOnly(lagom.Lagom):
  """Leaves the channels as NCCL has them."""

  def _subspaces(
    self,
    key: problem_lib.Key,
    start: nccl.Setting,
    cluster: cluster_lib.Cluster,
  ) -> tuple[problem_lib.Subspace, ...]:
    return tuple(
      dataclasses.replace(
        subspace,
        num_channels=(min(start.num_channels, subspace.num_channels[-1]),),
      )
      for subspace in super()._subspaces(key, start, cluster)
    )


def _own_chunk(subspace: problem_lib.Subspace, start: nccl.Setting) -> int:
  """The chunk size nearest to NCCL's; the largest of another protocol."""
  if start.protocol != subspace.protocol:
    return subspace.chunk_bytes[-1]
  return min(subspace.chunk_bytes, key=lambda c: abs(c - start.chunk_bytes))


class WithoutContention(step_lib.Step):
  """A step in which kernels and collectives leave each other alone."""

  def costs(self, configuration: step_lib.Configuration) -> costs_lib.Costs:
    """See `step.Step`."""
    costs = super().costs(configuration)
    return dataclasses.replace(costs, beside=_apart)


def _apart(
  kernel: kernel_lib.KernelCost, collective: collective_lib.CollectiveCost
) -> contention.Beside:
  del collective
  return contention.Beside(
    kernel_us=kernel.time_us, collective_factor=1.0, wait_us=0.0
  )
