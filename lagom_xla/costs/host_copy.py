# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The cost of a host copy alone: its bytes on the link to the host's memory.

A copy engine of the GPU moves them at the rate that copies of pinned memory
reach (`cluster.HostLink`), and draws as much of the GPU's own memory. It takes
no SM. Its launch, some microseconds, is not counted, nor is what the two
directions of a link lose to each other when both are in use, or the GPUs of a
node to each other: that depends on the host. Both ways at once nvbandwidth
shows 0.9 of the rate of one way on one host and half on another.
"""

from __future__ import annotations

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.passes import host_copies


def predict(
  copy: host_copies.HostCopy, cluster: cluster_lib.Cluster
) -> collective_lib.CollectiveCost:
  """Predicts a lone host copy."""
  gbps = cluster.node.link_to_host.effective_gbps
  return collective_lib.CollectiveCost(
    time_us=copy.num_bytes / (1e3 * gbps), num_channels=0, memory_gbps=gbps
  )


def link_us(copy: host_copies.HostCopy, cluster: cluster_lib.Cluster) -> float:
  """Time of its bytes at the link's data sheet rate."""
  return copy.num_bytes / (1e3 * cluster.node.link_to_host.gbps)
