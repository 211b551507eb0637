# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The traffic of a collective on its links, and the fitted parameters.

fitted/collective.json has the rates and latencies of paths, by measured system,
with their units and sources. benchmarks/collectives/fit_paths.py fits them to
measurements of lone collectives on NVLink, and separates the overhead of the
measurement (a module's launch, a copy of the operand, the launches of
nccl-tests). fitted/network.json has the costs of each fabric between nodes that
NCCL's model of a network lacks. benchmarks/collectives/fit_networks.py fits
them to rows of nccl-tests.

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
# Kinds that a ring moves in parts, one per step. Broadcast and reduce use the
# ring as a chain.
PARTED_KINDS = ("all-reduce", "all-gather", "reduce-scatter")
# NCCL's caps of one channel by major compute capability: perChMaxTreeBws of one
# node (src/graph/tuning.cc). Only their ratio is used.
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
    """Ranks of its communicator."""
    return self.communicator.num_ranks

  @property
  def num_channels(self) -> int:
    """Channels of its setting."""
    return self.setting.num_channels

  @property
  def is_measured(self) -> bool:
    """Whether measured paths apply.

    They cover rings of `PARTED_KINDS` over NVLink, and NVLS and sends through
    an NVSwitch.
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
    """Rate of a channel on this GPU, relative to the measured GPUs."""
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
    """NCCL's bytes of the buffer over time for the setting."""
    return self._nccl_gbps(self.setting.algorithm, self.setting.protocol)

  @property
  def nccl_latency_us(self) -> float:
    """NCCL's latency for the setting."""
    return nccl.latency_us(
      self.cluster,
      self.communicator,
      self.kind,
      self.setting.algorithm,
      self.setting.protocol,
    )

  @property
  def nccl_launch_us(self) -> float:
    """NCCL's latency before the first step."""
    return nccl.launch_us(self.setting.algorithm, self.setting.protocol)

  def _nccl_gbps(self, algorithm: str, protocol: str) -> float:
    return nccl.bandwidth_gbps(
      self.cluster, self.communicator, self.kind, algorithm, protocol
    )


def sent_bytes(
  communicator: nccl.Communicator, kind: str, num_bytes: int, algorithm: str
) -> float:
  """Bytes that each GPU sends, as NCCL's bus bandwidth counts them.

  A GPU sends all parts but one rank's, twice in an all-reduce and once in other
  kinds (nccl-tests, doc/PERFORMANCE.md). Permutes and broadcasts, and
  all-reduces under NVLS, send the whole buffer once.
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

  Each channel has its own tree. A node has a parent and up to two children
  (ncclGetBtree in src/graph/trees.cc). Its first GPU sends to the parent and
  one child, its second GPU to the other child, and both to the next GPU in the
  node's chain (connectTrees in src/graph/connect.cc).
  """
  if algorithm != "tree" or kind != "all-reduce":
    return sent_bytes(communicator, kind, 1, algorithm)
  others = communicator.num_nodes - 1
  if communicator.ranks_per_node == 1:
    return min(others, 3)
  return min(others, 2) + 1 if others else min(communicator.num_ranks - 1, 2)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Path:
  """Parameters of an algorithm and protocol on one system.

  Attributes:
    channel_gbps: rate at which one channel passes bytes on. In a permute the
      channel both sends and receives; in a tree the rate is the sum over its
      neighbors.
    start_us: the launch and other costs paid once; trees use NCCL's.
    hop_us: latency per step of a ring, per log2(ranks) through the switch, or
      per peer of an all-to-all beyond `shadowed_peers`.
    lone_channel_gbps: rate of a permute's channel that only sends or only
      receives; 0 if unknown.
    reducing_channel_gbps: `channel_gbps` if the channel also reduces.
    link_efficiency: bandwidth reached over NCCL's.
    handshake_us: handshake between two GPUs, per round of chunks.
    first_bytes: bytes that a channel passes on within a hop.
    own_gather_steps: cost of a rank's own part in a gather, in steps.
    own_reduce_steps: cost of a rank's own part in a reduction, in steps.
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
  """The measured system whose parameters a cluster's GPUs use.

  GPUs older than Ampere use Ampere's.
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
  """The key of a setting's parameters in `Paths`.

  An all-to-all within a host has its own: it starts later than one across hosts
  of an NVLink domain, for an unknown reason.
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


# NCCL's search rounds down to one of its speeds: 12, 24 and 48 GB/s for
# adapters of 12.5, 25 and 50 (sm90SpeedArrayInter, src/graph/search.cc).
MOST_EFFICIENCY = 25 / 24


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Fabric:
  """Parameters of one fabric and its transport.

  Attributes:
    hop_us: latency of a hop between nodes.
    message_us: time that a proxy thread takes to post a message and complete
      it.
    round_trip_us: time from posting a message until its slot in the
      connection's buffer is free again.
    message_gbps: rate of a lone message, in and out of staging buffers.
    nic_efficiency: an adapter's rate over the one that NCCL assumes, which is
      up to 4 % below the data sheet (see MOST_EFFICIENCY).
    pcie_efficiency: rate of the PCIe link between GPU and adapter, over the one
      that NCCL assumes.
    exchange_efficiency: share of that rate which sends and receives reach.
    peer_us: cost of an exchange per peer on another node.
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
  """The fitted parameters of a fabric."""
  return Fabric(**costs.read_fitted("network")["fabrics"][name])


@functools.lru_cache(maxsize=4096)
def fabric_of(cluster: cluster_lib.Cluster, fabric: Fabric | None) -> Fabric:
  """The parameters of a cluster's fabric; the fitted ones if not given.

  Later generations of adapters have a share of the first one's latencies.
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
  """The most nodes on which a fabric was measured; 0 if it was not.

  System names have the number of nodes, such as 10 in "xx1-N10G8".
  """
  systems = costs.read_fitted("network")["systems"][name]
  found = (re.search(r"-N(\d+)", system) for system in systems)
  return max((int(nodes[1]) for nodes in found if nodes), default=0)
