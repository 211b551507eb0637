# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The rings, trees and NVLS heads that NCCL finds in a node.

Before its first collective, NCCL searches the node for `num_channels` rings (or
trees, or multicast heads) that can all run at one speed from the architecture's
short list. It keeps the largest product of count and speed, may split channels
in two, and then tries to raise the speed within or between nodes
(ncclTopoCompute in NCCL's graph/search.cc). NCCL's search walks the links. Here
nodes are regular, so each kind of graph has a closed form for the number of
channels that fit at a speed. Only the loop over speeds remains.

Verified against NCCL 2.32.3 on described topologies:
- 1 to 8 GPUs of an H100, A100 or B200 node behind NVSwitch, 1 to 16 nodes, 1 to
  8 adapters of 100 to 800 Gb/s on PCIe 4 to 6: all rings, NVLS heads and
  channel counts equal NCCL's. So do the trees, except on 8-GPU A100 nodes with
  fewer adapters than GPUs, where NCCL's search reaches its time limit and
  sometimes ends one speed higher.
- GPUs connected only by PCIe, behind Intel or AMD CPUs: all rings equal NCCL's,
  and most trees.
- NVLink pairs: rings of 2 GPUs, and of 8 in AMD nodes, equal NCCL's. Known
  differences: rings of 4 GPUs, and of 8 in several Intel nodes, have half of
  NCCL's channels, and trees across nodes are slower.

Derived from the same rules but not verified: V100 cube meshes, racks such as
NVL72, Arm CPUs, and communicators whose GPUs are not adjacent.

Names that end in _gbps are in 1e9 bytes per second, in one direction.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import functools
import math
from typing import Literal

from lagom_xla import cluster as cluster_lib

# Traffic between GPUs through an Intel CPU counts 6/5 times
# (INTEL_P2P_OVERHEAD). The link between two Intel sockets carries 22 GB/s
# (SRP_QPI_BW), between AMD sockets 24 (AMD_ZEN34_BW), and between Arm sockets 6
# (ARM_BW). All are from topo.h.
_INTEL_PEER_OVERHEAD = 6 / 5
_SOCKET_GBPS = {"intel": 22.0, "amd": 24.0, "arm": 6.0}


def _speeds(text: str) -> tuple[float, ...]:
  return tuple(float(number) for number in text.split())


# Speeds that a search tries within a node and across nodes, by the smallest
# compute capability to which they apply (search.cc; 90.2 is new in 2.32).
_SPEEDS = {
  100: (
    _speeds("90 80 70 60 50 45 40 30 24 20 19 18"),
    _speeds(
      "96 90.2 86 80 48 45.1 42 40 30 24 22 20 17.5 15 12 6 3 2.4 1.2 .24 .12"
    ),
  ),
  90: (
    _speeds("60 50 40 30 24 20 15 12 11 6 3"),
    _speeds("48 45 42 40 30 24 22 20 17.5 15 12 6 3 2.4 1.2 .24 .12"),
  ),
  0: (
    _speeds("40 30 20 18 15 12 10 9 7 6 5 4 3"),
    _speeds("48 30 28 24 20 18 15 12 10 9 7 6 5 4 3 2.4 1.2 .24 .12"),
  ),
}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Communicator:
  """The size of a communicator, with its ranks spread over its nodes.

  `multicasts` is whether NCCL may use NVLS, in which switches multicast and
  reduce.
  """

  num_ranks: int
  num_nodes: int
  multicasts: bool = True

  def __post_init__(self) -> None:
    if self.num_nodes < 1 or self.num_ranks < 1:
      raise ValueError(f"{self} must have at least one rank and one node")

  @property
  def ranks_per_node(self) -> int:
    """GPUs in each of its nodes, rounded down if nodes differ.

    The node with the fewest GPUs has the fewest adapters, and NCCL takes the
    minimum over all nodes.
    """
    return self.num_ranks // self.num_nodes


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Node:
  """A communicator's part of a node, as NCCL's search sees it.

  Attributes:
    link_gbps: rate of all NVLinks of a GPU, or of its PCIe link, in one
      direction.
    nic_gbps: rate between one adapter and a GPU.
    pcie_overhead: bytes counted on the link per byte between GPUs.
    socket_gbps: cap if rings cross CPU sockets, else infinite.
    has_cpus_apart: whether each GPU has its own CPU, so that a ring leaves its
      node through an adapter of another CPU.
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
  has_cpus_apart: bool

  @property
  def max_gbps(self) -> float:
    """The fastest path that one channel can take (system->maxBw)."""
    return self.nic_gbps if self.crosses_nodes else self.link_gbps

  @property
  def total_gbps(self) -> float:
    """The rate at which a GPU can send (system->totalBw)."""
    return max(self.pcie_gbps, self.link_gbps)

  @property
  def speeds(self) -> tuple[float, ...]:
    """Speeds that the search tries, fastest first."""
    floor = max(c for c in _SPEEDS if c <= self.capability)
    return _SPEEDS[floor][self.crosses_nodes]


def _describe(
  cluster: cluster_lib.Cluster, num_gpus: int, num_nodes: int
) -> Node:
  """A communicator's part of each node, as the search sees it."""
  node, nvlink = cluster.node, cluster.node.nvlink
  major, minor = cluster.gpu.compute_capability
  over_nvlink = nvlink is not None and (
    nvlink.topology != "pairs" or num_gpus <= 2
  )
  link = node.pcie_effective_gbps
  if nvlink is not None and over_nvlink:
    # NVLinks count toward a GPU's rate even if it is the only GPU.
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
    has_cpus_apart=node.cpu_vendor == "arm"
    and nvlink is not None
    and nvlink.topology == "cube_mesh",
  )


MAX_CHANNELS = 64  # MAXCHANNELS, device.h
EPSILON = 1e-6  # NCCL rounds the remaining rate of links to 0.001 GB/s.


def best(
  node: Node,
  fits: Callable[[float], int],
  *,
  total_gbps: float,
  most: int,
  least: int = 1,
  prefers_more: bool = False,
) -> tuple[int, float]:
  """The first pass of ncclTopoCompute: the largest count times speed.

  Args:
    node: the node.
    fits: speed -> number of channels that fit.
    total_gbps: cap on the total rate of `least` channels at the first speed.
    most: number of channels at which the search stops.
    least: least number of channels.
    prefers_more: whether more channels win even with a smaller product.

  Returns:
    The channels and their speed; NCCL's fallback, 1 channel of 0.1 GB/s, if
    none fit.
  """
  speeds, first = node.speeds, 0
  while first < len(speeds) - 1 and (
    speeds[first] > node.max_gbps + EPSILON
    or speeds[first] * least > total_gbps + EPSILON
  ):
    first += 1
  count, gbps = 0, 0.0
  for speed in speeds[first:]:
    if count and speed / gbps <= 0.49:
      break
    found = fits(speed)
    if found >= least and (
      found * speed > count * gbps or (prefers_more and found > count)
    ):
      count, gbps = found, speed
      if count == most:
        break
    if count * gbps >= node.total_gbps - EPSILON:
      break
  return (count, gbps) if count else (1, 0.1)


def split_channels(
  node: Node, count: int, gbps: float, most: int
) -> tuple[int, float]:
  """Splits each fast channel into two of half speed (ncclTopoDupChannels)."""
  if gbps < 25 or (node.capability > 80 and gbps < 50 and count > 4):
    return count, gbps
  doubled = min(2 * count, most)
  return doubled, gbps / math.ceil(doubled / count)


def links_carry(
  node: Node,
  count: int,
  gbps: float,
  *,
  rotates: bool,
  relayed_gbps: float = 0.0,
) -> bool:
  """Whether the links between GPUs carry `count` rings or trees.

  Args:
    node: the node.
    count: rings or trees.
    gbps: rate of each.
    rotates: whether each ends at a different GPU. The last GPU of a ring or
      tree sends only to an adapter, or not at all.
    relayed_gbps: rate that one GPU sends through another to reach an adapter.
  """
  if node.num_gpus == 1:
    return True
  sends = count * gbps * node.pcie_overhead
  if rotates and node.crosses_nodes:
    sends = (count - count // node.num_gpus) * gbps * node.pcie_overhead
  elif rotates:
    turns = sends * (node.num_gpus - 1) / node.num_gpus
    # NCCL finds trees of more than two GPUs only if 10 % of the links is spare.
    sends = min(sends, turns / (0.9 if node.num_gpus > 2 else 1.0))
  if not node.over_nvlink and count * gbps > node.socket_gbps + EPSILON:
    return False
  # On PCIe half of the relayed traffic uses a separate link.
  relayed = relayed_gbps if node.over_nvlink else relayed_gbps / 2
  return sends + relayed <= node.link_gbps + EPSILON


def nic_channels(node: Node, gbps: float) -> int:
  """Number of channels of a rate that the adapters and their GPUs carry."""
  if not node.crosses_nodes:
    return MAX_CHANNELS
  return min(
    node.num_nics * whole(node.nic_gbps / gbps),
    node.num_gpus * whole(node.pcie_gbps / gbps),
  )


def whole(ratio: float) -> int:
  """A ratio of rates, rounded down with a tolerance of `EPSILON`."""
  return int(ratio + EPSILON)


_MAX_NVLS_HEADS = 32  # NCCL_MAX_NVLS_ARITY, device.h
_Detour = Literal["none", "gpu", "cpu"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Graph:
  """One kind of channel that NCCL found.

  Attributes:
    num_channels: channels that the search finds; a communicator runs more.
    intra_gbps: rate of one channel inside a node.
    inter_gbps: rate of one channel between nodes.
    over_nvlink: whether NVLink alone connects the GPUs of a node.
    detour: the detour of the longest path to an adapter: only PCIe switches
      ("none"), another GPU ("gpu": PXN), or a CPU ("cpu").
    same_channels: whether all channels pass the GPUs in the same order.
    is_chain: whether a tree enters and leaves its node at one GPU
      (NCCL_TOPO_PATTERN_TREE), for which NCCL assumes less bandwidth.
  """

  num_channels: int
  intra_gbps: float
  inter_gbps: float
  over_nvlink: bool
  detour: _Detour = "none"
  same_channels: bool = False
  is_chain: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Graphs:
  """All graphs of a communicator.

  Attributes:
    nvls: None without multicast.
    num_channels: channels of ring and tree collectives (comm->nChannels).
  """

  ring: Graph
  tree: Graph
  nvls: Graph | None
  num_channels: int


@functools.lru_cache(maxsize=1024)
def search(cluster: cluster_lib.Cluster, communicator: Communicator) -> Graphs:
  """The graphs that NCCL finds for a communicator.

  Its GPUs are assumed to be adjacent in their nodes, with the adapters beside
  them.
  """
  node = _describe(cluster, communicator.ranks_per_node, communicator.num_nodes)
  ring = _ring(node)
  tree = _tree(node, ring.num_channels)
  channels = min(MAX_CHANNELS, 2 * min(ring.num_channels, tree.num_channels))
  # Two channels per ring, or four if few rings carry a fast network
  # (ncclTopoPostset, graph/connect.cc).
  if (
    node.capability >= 90
    and node.crosses_nodes
    and ring.intra_gbps > 45
    and channels < 16
  ):
    channels *= 2
  nvls = _nvls(node) if communicator.multicasts else None
  return Graphs(ring=ring, tree=tree, nvls=nvls, num_channels=channels)


def _ring(node: Node) -> Graph:
  most = MAX_CHANNELS // 2
  if node.crosses_nodes and node.has_cpus_apart and node.num_gpus > 1:
    # A ring returns to the adapter by which it left, from another CPU's GPU.
    # Alps' nodes of four GPUs have 12 rings by the log of NCCL 2.26.2 (24
    # channels, in boeschf/nccl-benchmark-on-alps-2025).
    return Graph(
      num_channels=min(most, node.num_gpus * (node.num_gpus - 1)),
      intra_gbps=_SOCKET_GBPS["arm"],
      inter_gbps=_SOCKET_GBPS["arm"],
      over_nvlink=node.over_nvlink,
      detour="cpu",
    )
  rotates = node.crosses_nodes and node.num_nics >= node.num_gpus

  def fits(gbps: float) -> int:
    count = min(most, nic_channels(node, gbps))
    while count and not links_carry(node, count, gbps, rotates=rotates):
      count -= 1
    return count

  count, gbps = best(node, fits, total_gbps=node.total_gbps, most=most)
  count, gbps = split_channels(node, count, gbps, most)
  through: _Detour = "none"
  if node.crosses_nodes and node.num_nics < node.num_gpus:
    # The last GPU of a ring sends through the adapter's GPU.
    through = "gpu" if node.over_nvlink else "cpu"
  return Graph(
    num_channels=count,
    intra_gbps=gbps,
    inter_gbps=gbps,
    over_nvlink=node.over_nvlink,
    detour=through,
    same_channels=not node.crosses_nodes
    or 1 in (count, node.num_gpus, node.num_nics),
  )


def _tree(node: Node, num_trees: int) -> Graph:
  """`num_trees` trees (as many as rings) at the highest speed that fits."""
  size = node.num_gpus
  is_chain = node.crosses_nodes and (node.capability >= 90 or size == 1)
  if not node.crosses_nodes:
    # In 2.32.3, trees of 3 and 4 GPUs of one Blackwell node are chains.
    is_chain = node.capability >= 100 and size in (3, 4)

  def fits(intra_gbps: float, inter_gbps: float, rotates: bool) -> bool:
    through_peer = node.crosses_nodes and not is_chain
    num_carried = nic_channels(node, inter_gbps)
    return num_carried >= num_trees and links_carry(
      node,
      num_trees,
      intra_gbps,
      rotates=rotates,
      relayed_gbps=inter_gbps if through_peer else 0.0,
    )

  # Whether NCCL's search, within its time limit, starts each tree at another
  # GPU. Then each GPU is sometimes the last one, which sends nothing.
  rotates = size <= 4
  if node.crosses_nodes:
    rotates = node.num_nics >= size
  total = node.total_gbps * (size / (size - 1) if size > 1 else 1)
  count, gbps = best(
    node,
    lambda s: num_trees if fits(s, s, rotates) else 0,
    total_gbps=total,
    least=num_trees,
    most=num_trees,
  )
  count, gbps = split_channels(node, count, gbps, num_trees)
  rotates &= is_chain or size <= 5
  intra = gbps
  for faster in reversed([s for s in node.speeds if s > gbps]):
    if intra >= 2 * gbps or not fits(faster, gbps, rotates):
      break
    intra = faster
  return Graph(
    num_channels=count,
    intra_gbps=intra,
    inter_gbps=gbps,
    over_nvlink=node.over_nvlink,
    detour="cpu" if node.crosses_nodes and not is_chain else "none",
    is_chain=is_chain,
  )


def _nvls(node: Node) -> Graph | None:
  """Heads, each of which pulls from all GPUs of a node through the switch.

  A head's own link carries its traffic twice, so k heads load it with k + 1
  times the speed (ncclTopoSearchTryNvls). Across nodes a head needs an adapter.
  """
  if node.capability < 90 or not node.has_nvswitch or node.num_gpus < 2:
    return None
  most = min(_MAX_NVLS_HEADS, node.num_gpus)
  available = min(most, node.num_nics) if node.crosses_nodes else most

  def fits(gbps: float) -> int:
    return min(available, whole(node.link_gbps / gbps) - 1)

  count, intra = best(
    node,
    fits,
    total_gbps=node.total_gbps * node.num_gpus / (node.num_gpus - 1),
    least=1 if node.crosses_nodes else most,
    most=most,
    prefers_more=True,
  )
  inter = intra
  for faster in reversed([s for s in node.speeds if s > intra]):
    if inter >= 2 * intra or (
      node.crosses_nodes and faster > node.nic_gbps + EPSILON
    ):
      break
    inter = faster
  return Graph(
    num_channels=count, intra_gbps=intra, inter_gbps=inter, over_nvlink=True
  )
