# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The clusters that are compared: those named, other networks, other sizes.

A network rate is what a user buys: Gbit/s for each GPU of a node, which the
node's adapters share out. `Node.nic_gbps` is 1e9 bytes per second and adapter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
import dataclasses

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors

# Of the curve: powers of two, as batches and meshes are split.
NODE_COUNTS = tuple(2**i for i in range(11))
_BITS = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
  """A cluster to look at.

  Attributes:
    cluster: which.
    series: what it shares with clusters of other node counts.
  """

  cluster: cluster_lib.Cluster
  series: str

  @property
  def compiled_as(self) -> tuple[str, int, int]:
    """What clusters share whose schedule is the same: XLA sees no network."""
    cluster = self.cluster
    config = cluster.target_config()
    return config, cluster.num_nodes, cluster.gpus_per_node


def named(text: str, rates_gbits: Sequence[float] = ()) -> tuple[Case, ...]:
  """The clusters of --cluster, each at all rates.

  Raises:
    ClusterError: there is no such cluster.
  """
  return _distinct(
    case
    for cluster in _parsed(text)
    for rates in [rates_gbits if cluster.num_nodes > 1 else ()]
    for case in _at_rates(cluster, _kind(cluster), rates)
  )


def sized(
  text: str, node_counts: Sequence[int], rates_gbits: Sequence[float] = ()
) -> tuple[Case, ...]:
  """The kinds of nodes of --cluster, in each of several numbers.

  Raises:
    ClusterError: there is no such cluster, or none of that size.
  """
  return _distinct(
    case
    for cluster in _parsed(text)
    for count in node_counts
    for case in _at_rates(resized(cluster, count), _kind(cluster), rates_gbits)
  )


def _distinct(cases: Iterable[Case]) -> tuple[Case, ...]:
  """The first case of each series and number of nodes."""
  found: dict[tuple[str, int], Case] = {}
  for case in cases:
    found.setdefault((case.series, case.cluster.num_nodes), case)
  return tuple(found.values())


def gbits_per_gpu(cluster: cluster_lib.Cluster) -> float:
  """What a node's adapters carry for each of its GPUs, in Gbit/s."""
  node = cluster.node
  return node.num_nics * node.nic_gbps * _BITS / cluster.gpus_per_node


def pcie_gbits(cluster: cluster_lib.Cluster) -> float:
  """What NCCL counts on for a GPU's PCIe link, in Gbit/s."""
  return cluster.node.pcie_effective_gbps * _BITS


def rate_in_words(rate_gbits: float) -> str:
  """What the name of a cluster with a network of its own ends in."""
  return f" at {rate_gbits:g} Gbit/s"


def with_network(
  cluster: cluster_lib.Cluster, rate_gbits: float
) -> cluster_lib.Cluster:
  """A cluster whose adapters, as many as before, carry so much per GPU."""
  node_gbps = rate_gbits / _BITS * cluster.gpus_per_node
  node = dataclasses.replace(
    cluster.node, nic_gbps=node_gbps / cluster.node.num_nics
  )
  return dataclasses.replace(cluster, node=node)


def resized(
  cluster: cluster_lib.Cluster, num_nodes: int
) -> cluster_lib.Cluster:
  """A cluster of the same nodes in another number, named after it.

  Raises:
    ClusterError: that would be more GPUs than any cluster has.
  """
  kind = _kind(cluster)
  is_counted = kind != cluster.name
  name = f"{num_nodes}x{kind}" if is_counted else f"{num_nodes} of {kind}"
  return dataclasses.replace(cluster, num_nodes=num_nodes, name=name)


def _parsed(text: str) -> tuple[cluster_lib.Cluster, ...]:
  names = [name.strip() for name in text.split(",") if name.strip()]
  if not names:
    raise errors.ClusterError(
      "--cluster names no cluster: give some with commas between, such as"
      " 4x8xh100,4x8xh200."
    )
  return tuple(map(cluster_lib.parse, names))


def _kind(cluster: cluster_lib.Cluster) -> str:
  """A cluster's name without the number of its nodes, if it is in it."""
  return cluster.name.removeprefix(f"{cluster.num_nodes}x")


def _at_rates(
  cluster: cluster_lib.Cluster,
  kind: str,
  rates_gbits: Sequence[float],
) -> Iterator[Case]:
  """A cluster of a kind with each network, or with its own."""
  if not rates_gbits:
    yield Case(cluster=cluster, series=kind)
  for rate in rates_gbits:
    at = rate_in_words(rate)
    named = dataclasses.replace(
      with_network(cluster, rate), name=cluster.name + at
    )
    yield Case(cluster=named, series=kind + at)
