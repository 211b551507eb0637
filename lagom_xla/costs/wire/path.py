# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A collective on its links: what it sends, and the fitted parameters for that.

fitted/collective.json has the rates and latencies of paths, by measured system,
with their units and how they were found; benchmarks/collectives/fit_paths.py
fits them to measurements of lone collectives on NVLink, with what is not the
collective's own (a module's launch, a copy of the operand, the launches of
nccl-tests) set apart. fitted/network.json has what each fabric between nodes
takes beyond NCCL's model of a network; benchmarks/collectives/fit_networks.py
fits that to rows of nccl-tests.

Rates end in _gbps and mean 1e9 bytes per second.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import functools
import math
import re

from lagom_xla import cluster as cluster_lib
from lagom_xla import costs
from lagom_xla.costs import nccl

# Half of a connection's buffer is filled while the other half is drained.
CHUNKS_IN_FLIGHT = 2
# What a ring hands on in parts, one a step; a broadcast or reduce goes down it
# as down a chain.
PARTED_KINDS = ("all-reduce", "all-gather", "reduce-scatter")
# NCCL's caps of one channel, of which only the ratio is used here: by major
# compute capability, perChMaxTreeBws of one node (src/graph/tuning.cc).
_CHANNEL_GBPS = {7: 26.5, 8: 24.0}


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
  """A lone collective on its communicator under a setting."""

  cluster: cluster_lib.Cluster
  communicator: nccl.Communicator
  kind: str
  num_bytes: int
  setting: nccl.Setting

  @property
  def num_ranks(self) -> int:
    """Ranks that take part."""
    return self.communicator.num_ranks

  @property
  def num_channels(self) -> int:
    """Channels of its setting."""
    return self.setting.num_channels

  @property
  def is_measured(self) -> bool:
    """Whether measured paths apply.

    They do to rings over NVLink that hand on parts, and to NVLS and sends
    through an NVSwitch.
    """
    nvlink = self.cluster.node.nvlink
    if nvlink is None or self.communicator.num_nodes > 1:
      return False
    if self.setting.algorithm == "ring":
      is_near = nvlink.topology in ("nvswitch", "cube_mesh")
      return is_near and self.kind in PARTED_KINDS
    is_switched = nvlink.topology == "nvswitch"
    return is_switched and self.setting.algorithm in ("nvls", "p2p")

  @property
  def channel_scale(self) -> float:
    """Rate of a channel here, over that on the measured GPUs."""
    major = min(max(self.cluster.gpu.compute_capability[0], 7), 8)
    return _CHANNEL_GBPS[major] / _CHANNEL_GBPS[8]

  @property
  def link_gbps(self) -> float:
    """The rate that NCCL assumes for all links of a GPU, in one direction."""
    ranks = self.num_ranks
    if self.setting.algorithm == "p2p":
      gbps = self._nccl_gbps("p2p", self.setting.protocol)
      return gbps * (1 if self.kind == "collective-permute" else 1 - 1 / ranks)
    num_steps = (ranks - 1) * (2 if self.kind == "all-reduce" else 1)
    return self._nccl_gbps("ring", "simple") * num_steps / ranks

  @property
  def nccl_gbps(self) -> float:
    """Bytes of the buffer over time that NCCL assumes for the setting."""
    return self._nccl_gbps(self.setting.algorithm, self.setting.protocol)

  @property
  def nccl_latency_us(self) -> float:
    """The latency that NCCL assumes for the setting."""
    return nccl.latency_us(
      self.cluster,
      self.communicator,
      self.kind,
      self.setting.algorithm,
      self.setting.protocol,
    )

  @property
  def nccl_launch_us(self) -> float:
    """The latency that NCCL assumes before the first step."""
    return nccl.launch_us(self.setting.algorithm, self.setting.protocol)

  def _nccl_gbps(self, algorithm: str, protocol: str) -> float:
    return nccl.bandwidth_gbps(
      self.cluster, self.communicator, self.kind, algorithm, protocol
    )


def sent_bytes(
  communicator: nccl.Communicator, kind: str, num_bytes: int, algorithm: str
) -> float:
  """Bytes that each GPU sends. NCCL's bus bandwidth counts these.

  All-reduce sends everything twice but one rank's share; the others once
  (nccl-tests, doc/PERFORMANCE.md). Where the NVLink switch reduces, all-reduce
  too sends everything once.
  """
  others = (communicator.num_ranks - 1) / communicator.num_ranks
  match kind:
    case "all-reduce" if algorithm.startswith("nvls"):
      return num_bytes
    case "all-reduce":
      return 2 * others * num_bytes
    case "collective-permute" | "collective-broadcast":
      return num_bytes
  return others * num_bytes


def handed_on(
  communicator: nccl.Communicator, kind: str, algorithm: str
) -> float:
  """Bytes that the busiest channel passes on, over its share of the bytes.

  Each channel runs along a tree of its own. Nodes have a parent and up to two
  children (ncclGetBtree in src/graph/trees.cc). A node's first GPU sends to the
  parent and to one child, its second to the other child, and both to the next
  in the chain of their node (connectTrees in src/graph/connect.cc).
  """
  if algorithm != "tree" or kind != "all-reduce":
    return sent_bytes(communicator, kind, 1, algorithm)
  others = communicator.num_nodes - 1
  if communicator.ranks_per_node == 1:
    return min(others, 3)
  return min(others, 2) + 1 if others else min(communicator.num_ranks - 1, 2)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Path:
  """One way to move bytes: an algorithm with a protocol, on one system.

  Attributes:
    channel_gbps: what one channel hands on; of a permute, where it sends and
      receives at once; of a tree, to all its neighbours together.
    start_us: the launch, and what else is paid once; trees have NCCL's own.
    hop_us: per step of a ring, per log2(ranks) through the switch, per peer
      beyond `shadowed_peers` of an all-to-all.
    lone_channel_gbps: of a permute, where a channel only sends or only
      receives; 0 where not known.
    reducing_channel_gbps: the same where it also adds.
    link_efficiency: bandwidth reached, over the one that NCCL assumes.
    handshake_us: between two GPUs, for each round of chunks.
    first_bytes: what a channel hands on within a hop.
    own_gather_steps: what a rank's own part costs, in steps of a gather.
    own_reduce_steps: the same of a reduction.
    shadowed_peers: peers that the host posts while the kernel starts.
  """

  channel_gbps: float
  start_us: float = 0.0
  hop_us: float = 0.0
  lone_channel_gbps: float = 0.0
  reducing_channel_gbps: float = math.inf
  link_efficiency: float = 1.0
  handshake_us: float = 0.0
  first_bytes: float = 0.0
  own_gather_steps: float = 0.0
  own_reduce_steps: float = 0.0
  shadowed_peers: float = 0.0


Paths = Mapping[str, Path]


def system_of(cluster: cluster_lib.Cluster) -> str:
  """The measured system whose parameters stand for a cluster's GPUs.

  GPUs older than Ampere get Ampere's.
  """
  if cluster.gpu.compute_capability < (9, 0):
    return "a100"
  if cluster.gpu.compute_capability < (10, 0):
    return "h100"
  return "gb200" if cluster.node.cpu_vendor == "arm" else "b200"


def path_name(
  cluster: cluster_lib.Cluster,
  communicator: nccl.Communicator,
  kind: str,
  setting: nccl.Setting,
) -> str:
  """Which of a system's parameters a setting runs by.

  An all-to-all within a host starts later than one across hosts of an NVLink
  domain, for a reason that the measurements do not tell.
  """
  algorithm = setting.algorithm
  if algorithm == "p2p":
    in_host = communicator.num_ranks <= cluster.gpus_per_node
    algorithm = "exchange_in_host" if in_host else "exchange"
    if kind == "collective-permute":
      algorithm = "permute"
  if algorithm == "nvls" and kind != "all-reduce":
    algorithm = "nvls_gather"
  return f"{algorithm}.{setting.protocol}"


@functools.cache
def fitted(system: str) -> Paths:
  """The fitted parameters of a system, by path."""
  paths = costs.read_fitted("collective")["systems"][system]
  return {name: Path(**fields) for name, fields in paths.items()}


# NCCL's search counts on the next of its speeds: on 12, 24 and 48 GB/s for
# adapters of 12.5, 25 and 50 (sm90SpeedArrayInter, src/graph/search.cc).
MOST_EFFICIENCY = 25 / 24


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Fabric:
  """One fabric with its transport, as NCCL's proxy threads drive it.

  Attributes:
    hop_us: latency of a hop between nodes.
    message_us: what a proxy thread takes to post a message and see it done.
    round_trip_us: from posting a message until its slot of the connection's
      buffer can be posted from again.
    message_gbps: what a message moves at alone, in and out of staging buffers.
    nic_efficiency: what is reached of an adapter, over what NCCL counts on
      (which is up to 4 % less than its data sheet says, see MOST_EFFICIENCY).
    pcie_efficiency: share of what NCCL counts on for the PCIe link between GPU
      and adapter.
    exchange_efficiency: what sends and receives reach of that.
    peer_us: what an exchange takes for each peer on another node.
  """

  hop_us: float
  message_us: float
  round_trip_us: float
  message_gbps: float
  nic_efficiency: float
  pcie_efficiency: float = 1.0
  exchange_efficiency: float = 1.0
  peer_us: float = 0.0


@functools.cache
def fitted_fabric(name: str) -> Fabric:
  """The fitted figures of a fabric."""
  return Fabric(**costs.read_fitted("network")["fabrics"][name])


@functools.lru_cache(maxsize=4096)
def fabric_of(cluster: cluster_lib.Cluster, fabric: Fabric | None) -> Fabric:
  """The figures of a cluster's fabric; the fitted ones if not given.

  Later adapters take a share of the latencies that the first ones do.
  """
  if fabric is None:
    fabric = fitted_fabric(cluster.node.fabric)
  share = nccl.latency_share(cluster)
  return dataclasses.replace(
    fabric,
    hop_us=share * fabric.hop_us,
    round_trip_us=share * fabric.round_trip_us,
  )


@functools.cache
def most_measured_nodes(name: str) -> int:
  """The most nodes on which a fabric's figures were measured.

  A system is named after its nodes, as "xx1-N10G8". 0 where there is none.
  """
  systems = costs.read_fitted("network")["systems"][name]
  found = (re.search(r"-N(\d+)", system) for system in systems)
  return max((int(nodes[1]) for nodes in found if nodes), default=0)
