# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The cost of a device copy alone: its bytes, read and written in the memory.

It is a memcpy like those on the compute stream, and takes what they take
(`fusion.py`). It is taken to need no SM: which engine copies is the driver's
choice. That the kernel before it has ended is known to another stream only by
an event, whose latency is not counted.
"""

from __future__ import annotations

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import fusion
from lagom_xla.passes import device_copies


def predict(
  copy: device_copies.DeviceCopy, cluster: cluster_lib.Cluster
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


def memory_us(
  copy: device_copies.DeviceCopy, cluster: cluster_lib.Cluster
) -> float:
  """Time of its traffic at the memory's data sheet rate."""
  return 2 * copy.num_bytes / (1e3 * cluster.gpu.hbm_gbps)
