# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The clusters to compare: the named ones, other networks and node counts.

Network rates are in Gbit/s per GPU of a node, as users buy them, divided among
the node's adapters. `Node.nic_gbps` is in 1e9 bytes per second per adapter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import dataclasses
import re

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors

# Node counts of the curve: powers of two, as meshes usually have.
NODE_COUNTS = tuple(2**i for i in range(11))
_BITS = 8

Clusters = tuple[cluster_lib.Cluster, ...]


def named(text: str, rates_gbits: Sequence[float] = ()) -> Clusters:
  """The clusters of --cluster, each at every network rate.

  A cluster of one node keeps its own rate.

  Raises:
    ClusterError: a cluster does not exist.
  """
  return _each_once(
    at
    for cluster in _parsed(text)
    for at in _at_rates(cluster, rates_gbits if cluster.num_nodes > 1 else ())
  )


def in_processes(clusters: Clusters, per_node: int | None) -> Clusters:
  """Clusters with `per_node` processes per node; unchanged if None.

  Raises:
    ClusterError: a node's GPUs cannot be divided equally among the processes.
  """
  if per_node is None:
    return clusters
  return tuple(
    dataclasses.replace(cluster, processes_per_node=per_node)
    for cluster in clusters
  )


def sized(
  text: str, node_counts: Sequence[int], rates_gbits: Sequence[float] = ()
) -> Clusters:
  """The clusters of --cluster, with every node count and network rate.

  Raises:
    ClusterError: a cluster does not exist, or not in that size.
  """
  return _each_once(
    at
    for cluster in _parsed(text)
    for count in node_counts
    for at in _at_rates(_resized(cluster, count), rates_gbits)
  )


def series(cluster: cluster_lib.Cluster) -> str:
  """A cluster's name without its node count."""
  return re.sub(rf"^{cluster.num_nodes}(x| of )", "", cluster.name)


def gbits_per_gpu(cluster: cluster_lib.Cluster) -> float:
  """The rate of a node's adapters per GPU, in Gbit/s."""
  node = cluster.node
  return node.num_nics * node.nic_gbps * _BITS / cluster.gpus_per_node


def pcie_gbits(cluster: cluster_lib.Cluster) -> float:
  """The rate that NCCL assumes for a GPU's PCIe link, in Gbit/s."""
  return cluster.node.pcie_effective_gbps * _BITS


def rate_in_words(rate_gbits: float) -> str:
  """The suffix of a cluster's name that gives its changed network rate."""
  return f" at {rate_gbits:g} Gbit/s"


def with_network(
  cluster: cluster_lib.Cluster, rate_gbits: float
) -> cluster_lib.Cluster:
  """A cluster with the same number of adapters, at another rate per GPU."""
  node_gbps = rate_gbits / _BITS * cluster.gpus_per_node
  node = dataclasses.replace(
    cluster.node, nic_gbps=node_gbps / cluster.node.num_nics
  )
  name = cluster.name + rate_in_words(rate_gbits)
  return dataclasses.replace(cluster, node=node, name=name)


def _parsed(text: str) -> Clusters:
  names = [name.strip() for name in text.split(",") if name.strip()]
  if not names:
    raise errors.ClusterError(
      "--cluster is empty: give comma-separated clusters, such as"
      " 4x8xh100,4x8xh200."
    )
  return tuple(map(cluster_lib.parse, names))


def _resized(
  cluster: cluster_lib.Cluster, num_nodes: int
) -> cluster_lib.Cluster:
  """A cluster with another number of the same nodes, named accordingly."""
  if num_nodes == cluster.num_nodes:
    return cluster
  kind = series(cluster)
  is_counted = kind != cluster.name
  name = f"{num_nodes}x{kind}" if is_counted else f"{num_nodes} of {kind}"
  return dataclasses.replace(cluster, num_nodes=num_nodes, name=name)


def _at_rates(
  cluster: cluster_lib.Cluster, rates_gbits: Sequence[float]
) -> list[cluster_lib.Cluster]:
  """A cluster at each network rate; at its own if there are none."""
  return [with_network(cluster, rate) for rate in rates_gbits] or [cluster]


def _each_once(clusters: Iterable[cluster_lib.Cluster]) -> Clusters:
  return tuple({cluster.name: cluster for cluster in clusters}.values())
