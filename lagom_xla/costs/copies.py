# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The costs of lone copies: between host and device, and on the device.

A copy engine of the GPU moves a host copy's bytes at the rate that copies of
pinned memory reach (`cluster.HostLink`), and draws as much of the GPU's own
memory. It takes no SM. Its launch, some microseconds, is not counted, nor is
what the two directions of a link lose to each other when both are in use, or
the GPUs of a node to each other: that depends on the host. Both ways at once
nvbandwidth shows 0.9 of the rate of one way on one host and half on another.

A device copy is read and written in the memory. It is a memcpy like those on
the compute stream, and takes what they take (`fusion.py`). It is taken to need
no SM: which engine copies is the driver's choice. That the kernel before it has
ended is known to another stream only by an event, whose latency is not counted.
"""

from __future__ import annotations

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import fusion
from lagom_xla.passes import copies


def of_host_copy(
  copy: copies.HostCopy, cluster: cluster_lib.Cluster
) -> collective_lib.CollectiveCost:
  """Predicts a lone host copy."""
  gbps = cluster.node.link_to_host.effective_gbps
  return collective_lib.CollectiveCost(
    time_us=copy.num_bytes / (1e3 * gbps), num_channels=0, memory_gbps=gbps
  )


def link_us(copy: copies.HostCopy, cluster: cluster_lib.Cluster) -> float:
  """Time of its bytes at the link's data sheet rate."""
  return copy.num_bytes / (1e3 * cluster.node.link_to_host.gbps)


def of_device_copy(
  copy: copies.DeviceCopy, cluster: cluster_lib.Cluster
) -> collective_lib.CollectiveCost:
  """Predicts a lone device copy."""
  pattern = fusion.fitted(cluster.gpu).patterns["memcpy"]
  least_us = memory_us(copy, cluster)
  time_us = pattern.launch_us + least_us / pattern.memory_share
  return collective_lib.CollectiveCost(
    time_us=time_us,
    num_channels=0,
    memory_gbps=cluster.gpu.hbm_gbps * least_us / time_us,
  )


def memory_us(copy: copies.DeviceCopy, cluster: cluster_lib.Cluster) -> float:
  """Time of its traffic at the memory's data sheet rate."""
  return 2 * copy.num_bytes / (1e3 * cluster.gpu.hbm_gbps)
