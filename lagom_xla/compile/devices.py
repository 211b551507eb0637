# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The devices of a cluster: live ones if they are here, else compile-only.

XLA's GPU compiler needs a description of the GPU, not the GPU. Both kinds of
devices give the same schedule but for what autotuning decides: without a GPU,
matrix products keep XLA's default tiles.
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
    CompileError: no CUDA plugin is installed, or XLA refuses the cluster.
  """
  # Without this the plugin refuses to load where there is no CUDA driver; JAX
  # reads it when it starts.
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

  XLA's scheduler takes collectives within a domain to go over NVLinks (from
  JAX 0.12 on; before, those of eight GPUs).
  """
  nodes = cluster.nodes_per_nvlink_domain
  return f"{cluster.num_nodes // nodes}x{nodes}x{cluster.gpus_per_node}"


def stand_in_with_cpus(cluster: cluster_lib.Cluster) -> None:
  """Has `jax.devices()` return as many CPUs as the cluster has GPUs.

  For programs that make their mesh when they are imported. Nothing changes
  where JAX runs already, or was told a number of CPUs.
  """
  is_told = "xla_force_host_platform_device_count" in os.environ.get(
    "XLA_FLAGS", ""
  )
  num_cpus = jax.config.values["jax_num_cpu_devices"]
  if is_told or num_cpus > 0:
    return
  with contextlib.suppress(RuntimeError):  # JAX runs already.
    jax.config.update("jax_num_cpu_devices", cluster.num_devices)


def is_live(cluster: cluster_lib.Cluster) -> bool:
  """Whether the cluster's GPUs are here, so that a step can run on them."""
  return bool(_live_devices(cluster))


def _live_devices(cluster: cluster_lib.Cluster) -> Sequence[jax.Device]:
  """This process group's GPUs, where they are the cluster's."""
  if jax.default_backend() != "gpu":
    return ()
  found = jax.devices()
  is_same = len(found) == cluster.num_devices and all(
    cluster_lib.device_name(device) == cluster.gpu.device_name
    for device in found
  )
  return found if is_same else ()
