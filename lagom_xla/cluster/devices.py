# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The cluster that a running job's GPUs make up."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lagom_xla import errors
from lagom_xla.cluster import cluster as cluster_lib
from lagom_xla.cluster import known as known_lib
from lagom_xla.cluster import read

if TYPE_CHECKING:
  import jax


def of_devices(devices: Sequence[jax.Device]) -> cluster_lib.Cluster:
  """The cluster that a job's GPUs make up, with its GPU's usual node.

  A node is what one process holds. Processes that hold one GPU each stand for
  a node together if JAX counts them to one slice, which is a host, or several
  hosts in one NVLink domain.

  Args:
    devices: all of the job's, as `jax.devices()` returns them.

  Raises:
    ClusterError: no known GPU has their name, they are of several kinds, or
      nodes differ in size.
  """
  kinds = sorted({device.device_kind for device in devices})
  known = {
    known_lib.spec(name)["gpu"]["device_name"]: name
    for name in known_lib.gpu_names()
  }
  if len(kinds) != 1 or kinds[0] not in known:
    raise errors.ClusterError(
      f"the devices are {' and '.join(map(repr, kinds)) or 'none'}; they must "
      f"all be one of {', '.join(known)}, or a cluster must be given"
    )
  per_node = set(collections.Counter(_node_indices(devices)).values())
  if len(per_node) != 1:
    raise errors.ClusterError(
      f"nodes have {' or '.join(map(str, sorted(per_node)))} of the devices; "
      "all must have as many"
    )
  (gpus_per_node,) = per_node
  num_nodes = len(devices) // gpus_per_node
  return read.parse(f"{num_nodes}x{gpus_per_node}x{known[kinds[0]]}")


def _node_indices(devices: Sequence[jax.Device]) -> list[int]:
  processes = [device.process_index for device in devices]
  if len(set(processes)) < len(devices):
    return processes
  return [getattr(device, "slice_index", 0) for device in devices]
