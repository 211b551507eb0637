# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The devices of a cluster: live ones if they are here, else compile-only.

XLA's GPU compiler needs only a description of the GPU. Both kinds of devices
give the same schedule except for autotuning: without a GPU, matrix products
keep XLA's default tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
import contextlib
import os

import jax
from jax.experimental import topologies

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.passes import registry


def devices(cluster: cluster_lib.Cluster) -> Sequence[jax.Device]:
  """The cluster's devices, to shard a step's arguments over.

  Raises:
    CompileError: no CUDA plugin is installed, or XLA rejects the cluster.
  """
  # Without this the plugin does not load without a CUDA driver; JAX reads it
  # when it starts.
  os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
  live = _live_devices(cluster)
  if live:
    return live
  if registry.plugin_path() is None:
    raise errors.CompileError(
      f"Cannot compile for {cluster.name}: {registry.NO_PLUGIN}"
    )
  try:
    topology = topologies.get_topology_desc(
      platform="cuda",
      topology_name="",
      target_config=cluster.target_config(),
      topology=shape(cluster),
    )
  except NotImplementedError as error:
    raise errors.CompileError(
      f"Cannot compile for {cluster.name}: JAX started without its CUDA"
      " plugin. Set JAX_SKIP_CUDA_CONSTRAINTS_CHECK=1 before JAX is first"
      " used."
    ) from error
  except jax.errors.JaxRuntimeError as error:
    raise errors.CompileError(
      f"XLA rejects the cluster {cluster.name}: {errors.first_line(error)}"
    ) from error
  return topology.devices


def shape(cluster: cluster_lib.Cluster) -> str:
  """A cluster's NVLink domains, nodes in each and GPUs in each of those.

  XLA's scheduler assumes that collectives within a domain use NVLinks (from JAX
  0.12 on; before, those of eight GPUs).
  """
  nodes = cluster.nodes_per_nvlink_domain
  return f"{cluster.num_nodes // nodes}x{nodes}x{cluster.gpus_per_node}"


def stand_in_with_cpus(cluster: cluster_lib.Cluster) -> None:
  """Makes `jax.devices()` return as many CPUs as the cluster has GPUs.

  For programs that make their mesh at import. Has no effect if JAX is already
  running, or if a number of CPUs was set.
  """
  is_told = "xla_force_host_platform_device_count" in os.environ.get(
    "XLA_FLAGS", ""
  )
  num_cpus = jax.config.values["jax_num_cpu_devices"]
  if is_told or num_cpus > 0:
    return
  with contextlib.suppress(RuntimeError):  # JAX is already running.
    jax.config.update("jax_num_cpu_devices", cluster.num_devices)


def is_live(cluster: cluster_lib.Cluster) -> bool:
  """Whether the cluster's GPUs are here, so that a step can run on them."""
  return bool(_live_devices(cluster))


def _live_devices(cluster: cluster_lib.Cluster) -> Sequence[jax.Device]:
  """The job's GPUs, if they are the cluster's."""
  if jax.default_backend() != "gpu":
    return ()
  found = jax.devices()
  is_same = len(found) == cluster.num_devices and all(
    cluster_lib.device_name(device) == cluster.gpu.device_name
    for device in found
  )
  return found if is_same else ()
