# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The topology that NCCL's search reads: a communicator and its part of a node.

Rates end in _gbps and mean 1e9 bytes per second, in one direction.
"""

from __future__ import annotations

import dataclasses
import math

from lagom_xla import cluster as cluster_lib

# Traffic between GPUs through an Intel CPU counts 6/5 (INTEL_P2P_OVERHEAD), and
# the link between two sockets carries 22 GB/s (SRP_QPI_BW), or 24 between AMD
# sockets (AMD_ZEN34_BW); both topo.h.
_INTEL_PEER_OVERHEAD = 6 / 5
_SOCKET_GBPS = {"intel": 22.0, "amd": 24.0, "arm": 6.0}


def _numbers(text: str) -> tuple[float, ...]:
  return tuple(float(number) for number in text.split())


# Speeds that a search tries within a node and across nodes, by the smallest
# compute capability that they apply to (search.cc; 90.2 came with 2.32).
_SPEEDS = {
  100: (
    _numbers("90 80 70 60 50 45 40 30 24 20 19 18"),
    _numbers(
      "96 90.2 86 80 48 45.1 42 40 30 24 22 20 17.5 15 12 6 3 2.4 1.2 .24 .12"
    ),
  ),
  90: (
    _numbers("60 50 40 30 24 20 15 12 11 6 3"),
    _numbers("48 45 42 40 30 24 22 20 17.5 15 12 6 3 2.4 1.2 .24 .12"),
  ),
  0: (
    _numbers("40 30 20 18 15 12 10 9 7 6 5 4 3"),
    _numbers("48 30 28 24 20 18 15 12 10 9 7 6 5 4 3 2.4 1.2 .24 .12"),
  ),
}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Communicator:
  """The size of a communicator; its ranks are spread over its nodes.

  Attributes:
    num_ranks: GPUs.
    num_nodes: nodes as NCCL counts them (Cluster.num_nccl_nodes_of).
  """

  num_ranks: int
  num_nodes: int

  def __post_init__(self) -> None:
    if self.num_nodes < 1 or self.num_ranks < 1:
      raise ValueError(f"{self} must have at least one rank and one node")

  @property
  def ranks_per_node(self) -> int:
    """GPUs in each of its nodes; where they differ, in the emptiest at most.

    It has the fewest adapters, and NCCL takes the least of all nodes.
    """
    return self.num_ranks // self.num_nodes


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Node:
  """A communicator's part of a node, in the terms of the search.

  Attributes:
    link_gbps: all NVLinks of a GPU, or its PCIe link, in one direction.
    nic_gbps: what one adapter brings to a GPU.
    pcie_overhead: what a byte between GPUs costs on their link, in bytes.
    socket_gbps: cap where rings cross CPU sockets; infinite otherwise.
  """

  capability: int
  num_gpus: int
  num_nics: int
  crosses_nodes: bool
  over_nvlink: bool
  has_nvswitch: bool
  link_gbps: float
  pcie_gbps: float
  nic_gbps: float
  pcie_overhead: float
  socket_gbps: float

  @property
  def max_gbps(self) -> float:
    """The fastest path that one channel can take (system->maxBw)."""
    return self.nic_gbps if self.crosses_nodes else self.link_gbps

  @property
  def total_gbps(self) -> float:
    """All that a GPU can send (system->totalBw)."""
    return max(self.pcie_gbps, self.link_gbps)

  @property
  def speeds(self) -> tuple[float, ...]:
    """Speeds that the search tries, the fastest first."""
    floor = max(c for c in _SPEEDS if c <= self.capability)
    return _SPEEDS[floor][self.crosses_nodes]


def describe(
  cluster: cluster_lib.Cluster, num_gpus: int, num_nodes: int
) -> Node:
  """The part of each node that a communicator has, as the search sees it."""
  node, nvlink = cluster.node, cluster.node.nvlink
  major, minor = cluster.gpu.compute_capability
  over_nvlink = nvlink is not None and (
    nvlink.topology != "pairs" or num_gpus <= 2
  )
  link = node.pcie_effective_gbps
  if nvlink is not None and over_nvlink:
    # Even a lone GPU's NVLinks count towards what it could send.
    link = nvlink.num_links * nvlink.link_effective_gbps
  # Half of a node's GPUs are attached to each socket.
  crosses_sockets = num_gpus > max(1, cluster.gpus_per_node // 2)
  return Node(
    capability=10 * major + minor,
    num_gpus=num_gpus,
    num_nics=max(1, node.num_nics * num_gpus // cluster.gpus_per_node),
    crosses_nodes=num_nodes > 1,
    over_nvlink=over_nvlink and num_gpus > 1,
    has_nvswitch=nvlink is not None and nvlink.topology == "nvswitch",
    link_gbps=link,
    pcie_gbps=node.pcie_effective_gbps,
    nic_gbps=min(node.nic_gbps, node.pcie_effective_gbps),
    pcie_overhead=1.0
    if over_nvlink or node.cpu_vendor != "intel"
    else _INTEL_PEER_OVERHEAD,
    socket_gbps=_SOCKET_GBPS[node.cpu_vendor] if crosses_sockets else math.inf,
  )
