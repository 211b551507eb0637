# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""NCCL's model: the latency and bandwidth of each algorithm and protocol.

For each pair, NCCL has a latency (a base plus steps) and a bandwidth (channels
times the rate of one, less the overhead of the protocol). Both follow from the
graphs that its search finds (graph.py) and from constants, here those of NCCL
2.32.3 (ncclTunerConstantsDefaults in its library). The equations are those of
src/tuning/{ring,tree,nvls,pat}.cc in NCCL 2.31. They give the numbers of
2.32.3, with one difference noted below. Names that end in _gbps are in 1e9
bytes per second.
"""

from __future__ import annotations

import dataclasses
import functools
import math

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs.nccl import graph as graph_lib

# NCCL's major and minor version.
Version = tuple[int, int]
NEWEST: Version = (2, 32)

# Latency of the network as aws-ofi-nccl reports it, in us: p4d to p5e, and
# p5en, p6 and later (platform_data_map in src/platform-aws.cpp). NCCL adds it
# to a hop's latency on p4d and p4de; on later machines the plugin has its own
# tuner.
_EFA_LATENCY_US = {"first": 75.0, "later": 35.0}

PROTOCOLS = ("ll", "ll128", "simple")
# In NCCL's order: the last of equal times wins (ncclTuningSelectBestTuning).
ALGORITHMS = ("tree", "ring", "nvls", "nvlstree", "pat")
EXCHANGES = ("all-to-all", "ragged-all-to-all")
SEND_RECV = ("collective-permute", *EXCHANGES)
GATHERS = ("all-gather", "reduce-scatter")
ROOTED = ("collective-broadcast", "reduce")


# Types that switches add for NCCL, and types whose maxima and minima they also
# take (ncclNvlsSupported in src/include/device.h, 2.18 to 2.30). A complex
# number counts as two real ones.
_SWITCH_ORDERS = frozenset(["s32", "u32", "s64", "u64", "f16", "bf16"])
_SWITCH_ADDS = _SWITCH_ORDERS | {"f32", "f64", "c64", "c128"}


def switch_reduces(element_type: str, reduction: str) -> bool:
  """Whether NVSwitches can do a reduction; HLO's names of its type and op."""
  if reduction == "add":
    return element_type in _SWITCH_ADDS
  is_order = reduction in ("maximum", "minimum")
  return is_order and element_type in _SWITCH_ORDERS


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
  """Inputs of the equations, for a communicator and a kind of collective."""

  communicator: graph_lib.Communicator
  kind: str
  graphs: graph_lib.Graphs
  capability: int
  cpu_vendor: str
  plugin_latency_us: float

  @property
  def architecture(self) -> int:
    """Row of NCCL's tables: Volta, Ampere, Hopper, Blackwell."""
    return sum(self.capability >= least for least in (80, 90, 100))

  @property
  def scale(self) -> int:
    """Column of NCCL's tables: 1, 2, or more nodes."""
    return min(self.communicator.num_nodes, 3) - 1

  @property
  def blackwell_x86(self) -> bool:
    """Whether NCCL's corrections for Blackwells on x86 apply."""
    return self.capability >= 100 and self.cpu_vendor != "arm"

  @property
  def num_steps(self) -> int:
    """Steps of a ring."""
    ranks = self.communicator.num_ranks
    if self.kind == "all-reduce":
      return 2 * (ranks - 1)
    return ranks - 1 if self.kind in GATHERS else ranks


def _efa_generation(cluster: cluster_lib.Cluster) -> str:
  gpu = cluster.gpu
  # Of the instances with H200s, p5e has AMD CPUs and p5en Intel CPUs.
  is_p5en = gpu.name == "h200" and cluster.node.cpu_vendor == "intel"
  is_later = is_p5en or gpu.compute_capability >= (10, 0)
  return "later" if is_later else "first"


def latency_share(cluster: cluster_lib.Cluster) -> float:
  """Latency of a node's adapters, relative to the fabric's first generation."""
  if cluster.node.fabric != "efa":
    return 1.0
  return _EFA_LATENCY_US[_efa_generation(cluster)] / _EFA_LATENCY_US["first"]


@functools.lru_cache(maxsize=4096)
def terms_of(
  cluster: cluster_lib.Cluster, communicator: graph_lib.Communicator, kind: str
) -> Terms:
  """The terms of a communicator and a kind.

  Raises:
    ValueError: NCCL has no such kind.
  """
  known = ("all-reduce", *GATHERS, *ROOTED, *SEND_RECV)
  if kind not in known:
    raise ValueError(
      f"NCCL has no collective {kind!r}; known: {', '.join(known)}"
    )
  major, minor = cluster.gpu.compute_capability
  return Terms(
    communicator=communicator,
    kind=kind,
    graphs=graph_lib.search(cluster, communicator),
    capability=10 * major + minor,
    cpu_vendor=cluster.node.cpu_vendor,
    plugin_latency_us=_EFA_LATENCY_US[_efa_generation(cluster)]
    if cluster.node.fabric == "efa" and major < 9
    else 0.0,
  )


def exists(terms: Terms, algorithm: str, protocol: str) -> bool:
  """Whether NCCL has a model of the pair for this communicator."""
  several_nodes = terms.communicator.num_nodes > 1
  nvls = terms.graphs.nvls
  has_heads = nvls is not None and nvls.num_channels >= 2
  if algorithm == "ring":
    return protocol in PROTOCOLS
  if algorithm == "tree":
    return protocol in PROTOCOLS and terms.kind == "all-reduce"
  if protocol != "simple" or algorithm not in ALGORITHMS:
    return False
  if algorithm == "nvls":  # Across nodes it needs CollNet.
    # Gathers pull from 32 GPUs at most (NCCL_MAX_NVLS_ARITY).
    small = terms.communicator.num_ranks <= 32 and terms.kind in GATHERS
    return (
      has_heads and not several_nodes and (small or terms.kind == "all-reduce")
    )
  if algorithm == "nvlstree":
    return has_heads and several_nodes and terms.kind == "all-reduce"
  communicator = terms.communicator
  is_one_each = communicator.num_ranks == communicator.num_nodes
  return terms.kind in GATHERS and is_one_each


def allows_ll128(terms: Terms, algorithm: str) -> bool:
  """Whether links keep 128-byte stores whole for LL128 (isLL128Enabled)."""
  graph = terms.graphs.tree if algorithm == "tree" else terms.graphs.ring
  detours = ("none", "gpu") if terms.capability >= 90 else ("none",)
  meets = graph.over_nvlink or terms.communicator.ranks_per_node == 1
  return meets and graph.detour in detours and terms.capability >= 70


# Latencies in us of a launch, and of one step over NVLink, PCIe and the
# network, by protocol in the order of `PROTOCOLS`.
_BASE_US = {
  "tree": (6.8, 14.0, 8.4),
  "ring": (6.6, 14.0, 8.4),
  "nvls": (0.0, 0.0, 0.0),
  "nvlstree": (0.0, 0.0, 0.0),
  "pat": (8.0, 8.0, 8.0),
}
_STEP_US = {
  "nvlink": {
    "tree": (0.6, 1.25, 4.0),
    "ring": (0.6, 1.9, 3.4),
    "nvls": (0.0, 0.0, 25.0),
    "nvlstree": (0.0, 0.0, 25.0),
  },
  "pcie": {"tree": (1.0, 1.9, 4.0), "ring": (1.0, 2.5, 5.7)},
  "net": {
    "tree": (5.0, 8.5, 14.0),
    "ring": (2.7, 4.0, 14.0),
    "nvls": (0.0, 0.0, 18.0),
    "nvlstree": (0.0, 0.0, 20.9),
    "pat": (0.0, 0.0, 14.0),
  },
}


def _step_us(
  terms: Terms, algorithm: str, protocol: str, *, net: bool
) -> float:
  graph = {"tree": terms.graphs.tree, "ring": terms.graphs.ring}.get(
    algorithm, terms.graphs.nvls
  )
  over_nvlink = graph is not None and graph.over_nvlink
  link = "net" if net else ("nvlink" if over_nvlink else "pcie")
  return _STEP_US[link][algorithm][PROTOCOLS.index(protocol)]


def net_hop_us(terms: Terms, algorithm: str, protocol: str) -> float:
  """NCCL's latency of a hop between nodes; sends use that of rings."""
  lone = terms.communicator.num_ranks == terms.communicator.num_nodes
  if algorithm in ("ring", "p2p"):  # One GPU per node hides no network latency.
    algorithm = "tree" if lone and algorithm == "ring" else "ring"
  return _step_us(terms, algorithm, protocol, net=True)


def crosses_cpus(
  cluster: cluster_lib.Cluster, communicator: graph_lib.Communicator
) -> bool:
  """Whether rings leave nodes through adapters of other GPUs' CPUs."""
  ring = graph_lib.search(cluster, communicator).ring
  return ring.detour == "cpu" and ring.over_nvlink


def launch_us(algorithm: str, protocol: str) -> float:
  """NCCL's latency before the first step, in microseconds."""
  return _BASE_US[algorithm][PROTOCOLS.index(protocol)]


def hop_us(terms: Terms, protocol: str, *, net: bool) -> float:
  """A ring's latency of a launch and one step, in microseconds."""
  base = _BASE_US["ring"][PROTOCOLS.index(protocol)]
  return base + _step_us(terms, "ring", protocol, net=net)


def latency_us(terms: Terms, algorithm: str, protocol: str) -> float:
  """NCCL's latency of one operation, without terms that depend on its size."""
  nodes, per_node = (
    terms.communicator.num_nodes,
    terms.communicator.ranks_per_node,
  )
  base = _BASE_US[algorithm][PROTOCOLS.index(protocol)]
  levels = int(math.log2(nodes))
  several = nodes > 1
  inter = net_hop_us(terms, algorithm, protocol)
  if algorithm == "pat":
    return base + levels * inter / 3.5 + 2.8 * terms.communicator.num_ranks
  intra = _step_us(terms, algorithm, protocol, net=False)
  if algorithm == "tree":
    return base + 2 * ((per_node - 1) * intra + levels * inter)
  if algorithm == "nvls":
    return intra
  if algorithm == "nvlstree":
    return base + intra + 2 * levels * inter
  if terms.kind in ROOTED:
    # Steps over the network, as in 2.30 and 2.32; 2.31 has steps within a node.
    if terms.graphs.ring.same_channels:
      return base + _step_us(terms, "ring", protocol, net=several)
    stepper = "tree" if protocol == "simple" else "ring"
    return base + terms.num_steps * _step_us(
      terms, stepper, protocol, net=several
    )
  if several:
    # Overhead of posting to the adapter (getNetOverhead); Simple posts 3 times.
    post = 2.0 if terms.cpu_vendor == "amd" else 1.0
    intra = max(intra, post * (3 if protocol == "simple" else 1))
  num_inter = (nodes - 1) * (2 if terms.kind == "all-reduce" else 1)
  return base + (terms.num_steps - num_inter) * intra + num_inter * inter


def counted_latency_us(terms: Terms, algorithm: str, protocol: str) -> float:
  """The latency that NCCL adds for a plugin's reported network latency.

  It adds this once per hop between nodes, and twice under Simple because of the
  flush.
  """
  nodes = terms.communicator.num_nodes
  if nodes == 1 or terms.kind in ROOTED:
    return 0.0
  both_ways = 2 if terms.kind == "all-reduce" else 1
  hops = nodes - 1 if algorithm == "ring" else int(math.log2(nodes))
  if algorithm == "pat":
    hops /= 3.5
  times = 2 if protocol == "simple" else 1
  return both_ways * hops * times * terms.plugin_latency_us


def older_latency_us(
  terms: Terms, algorithm: str, protocol: str, version: Version
) -> float:
  """An older NCCL's latency of an operation, minus that of 2.32.

  Simple trees had no base before 2.23, and from 2.19 to 2.22 a step of 28 us
  over every link (src/graph/tuning.cc of 2.18.5, 2.19.3, 2.22.3 and 2.23.4).
  """
  if (algorithm, protocol) != ("tree", "simple") or version >= (2, 23):
    return 0.0
  base = _BASE_US["tree"][PROTOCOLS.index("simple")]
  if version < (2, 19):
    return -base
  nodes, per_node = (
    terms.communicator.num_nodes,
    terms.communicator.ranks_per_node,
  )
  intra = _step_us(terms, algorithm, protocol, net=False)
  inter = _step_us(terms, algorithm, protocol, net=True)
  slower = (per_node - 1) * (28.0 - intra)
  slower += int(math.log2(nodes)) * (28.0 - inter)
  return 2 * slower - base


# Caps in GB/s, for 1, 2 and more nodes. Rows by architecture: up to Volta,
# Ampere, Hopper, Blackwell. Across nodes LL's row depends on the CPU: the first
# for Intel and Arm, the second for AMD.
_LL_GBPS = (
  (39.0, 39.0, 20.4),
  (87.7, 22.5, 19.0),
  (141.0, 45.0, 35.0),
  (282.4, 90.0, 70.0),
)
_RING_LL128_CHANNEL_GBPS = (20.0, 20.0, 36.7, 40.0)
_TREE_LL128_CHANNEL_GBPS = (
  (20.0, 20.0, 20.0),
  (20.0, 20.0, 20.0),
  (36.7, 36.7, 29.0),
  (55.6, 36.7, 20.0),
)
_TREE_CHANNEL_GBPS = (
  (26.5, 18.5, 10.0),
  (24.0, 23.6, 17.8),
  (38.7, 41.4, 36.0),
  (70.0, 42.8, 24.0),
)
_NVLSTREE_CHANNEL_GBPS = (
  (26.5, 18.5, 10.0),
  (24.0, 23.6, 17.8),
  (0.0, 57.7, 45.5),
  (0.0, 96.0, 80.0),
)
_NVLS_EFFICIENCY = (0.0, 0.0, 0.85, 0.74)
# Share of their bandwidth that trees reach at 64 B, 128 B and so on, by
# protocol (treeCorrectionFactor).
TREE_CORRECTION = tuple(
  tuple(float(share) for share in shares.split())
  for shares in (
    "1 1 1 1 .9 .8 .7 .7 .7 .7 .6 .5 .4 .4 .5 .6 .7 .8 .9 1 1 1 1 1",
    "1 1 1 1 1 .9 .8 .8 .8 .7 .6 .6 .6 .6 .6 .6 .8 .9 .9 .9 .9 1 1 1",
    ".9 .9 .9 .9 .9 .9 .9 .8 .7 .6 .6 .5 .5 .5 .5 .6 .7 .8 .7 .7 .8 .9 .9 .9",
  )
)


def bandwidth_gbps(terms: Terms, algorithm: str, protocol: str) -> float:
  """NCCL's bytes over time for large sizes, in 1e9 bytes per second."""
  graphs, arch, scale = terms.graphs, terms.architecture, terms.scale
  ranks = terms.communicator.num_ranks
  several = terms.communicator.num_nodes > 1
  if algorithm in ("nvls", "nvlstree"):
    bus = _nvls_bandwidth(terms, algorithm)
    gathers = terms.kind in GATHERS
    return bus if gathers else bus * ranks / terms.num_steps
  if algorithm == "pat":
    tree = graphs.tree
    return 0.75 * tree.num_channels * min(tree.intra_gbps, tree.inter_gbps)
  ll_gbps = _ll_cap_gbps(terms)
  if algorithm == "ring":
    ring = graphs.ring
    bus = ring.num_channels * ring.inter_gbps
    if protocol == "ll":
      bus = min(ll_gbps, 0.5 * bus)
    if protocol == "ll128":
      most = ring.num_channels * _RING_LL128_CHANNEL_GBPS[arch]
      bus = min(0.92 * bus, most)
    return bus * ranks / terms.num_steps
  tree = graphs.tree
  count = tree.num_channels
  # For two nodes NCCL takes the links within nodes, except on Blackwell.
  inside = scale == 0 or (scale == 1 and terms.capability < 100)
  gbps = tree.intra_gbps if inside else tree.inter_gbps
  bus = count * min(0.92 * gbps, _TREE_CHANNEL_GBPS[arch][scale])
  if protocol == "ll":
    bus = min(bus / 3.8, ll_gbps)
  if protocol == "ll128":
    efficiency = 120 / 128 if several else 7 / 9
    bus = min(efficiency * bus, count * _TREE_LL128_CHANNEL_GBPS[arch][scale])
  return bus / 2 * (0.85 if tree.is_chain else 1.0)


def older_bandwidth(
  terms: Terms, algorithm: str, protocol: str, version: Version
) -> float:
  """An older NCCL's bandwidth over that of 2.32.

  Before 2.21, NCCL assumed a quarter of the links for rings under LL, or a
  third within a node, except for all-reduces (src/graph/tuning.cc of 2.20.5 and
  2.21.5). Before 2.28, it assumed 5/6 of the speed for the NVLS heads of an
  all-reduce, whatever the GPU (src/graph/tuning.cc of 2.27.7 and 2.28.3).
  """
  if (algorithm, protocol) == ("ring", "ll") and version < (2, 21):
    ring = terms.graphs.ring
    bus = ring.num_channels * ring.inter_gbps
    several = terms.communicator.num_nodes > 1
    share = 1 / 4 if several or terms.kind == "all-reduce" else 1 / 3
    most = _ll_cap_gbps(terms)
    return min(most, share * bus) / min(most, bus / 2)
  heads = terms.graphs.nvls
  if (
    heads is not None
    and algorithm.startswith("nvls")
    and terms.kind == "all-reduce"
    and version < (2, 28)
  ):
    inter = heads.inter_gbps / (2 if terms.scale == 2 else 1)
    older_gbps = heads.num_channels * min(heads.intra_gbps, inter) * 5 / 6
    return older_gbps / bandwidth_gbps(terms, algorithm, protocol)
  return 1.0


def _ll_cap_gbps(terms: Terms) -> float:
  several = terms.communicator.num_nodes > 1
  row = int(terms.cpu_vendor == "amd") if several else terms.architecture
  return _LL_GBPS[row][terms.scale]


def _nvls_bandwidth(terms: Terms, algorithm: str) -> float:
  heads = terms.graphs.nvls
  assert heads is not None  # See exists().
  per_node = terms.communicator.ranks_per_node
  intra = heads.intra_gbps * _NVLS_EFFICIENCY[terms.architecture]
  intra *= (heads.num_channels - 1) / heads.num_channels
  # An all-reduce pipelines its two halves.
  intra *= 2 if terms.kind == "all-reduce" else (per_node - 1) / per_node
  inter = heads.inter_gbps
  if algorithm == "nvlstree":
    inter *= 2 if terms.communicator.num_nodes == 2 else 1
    inter = min(inter, _NVLSTREE_CHANNEL_GBPS[terms.architecture][terms.scale])
  return heads.num_channels * min(intra, inter)
