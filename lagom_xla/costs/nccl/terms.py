# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Terms of NCCL's model: what its equations read of a communicator and a kind.

NCCL describes every algorithm and protocol that it could run by a latency
(latency.py) and a bandwidth (bandwidth.py), from the graphs that its search
found (graph.py) and constants.
"""

from __future__ import annotations

import dataclasses
import functools

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs.nccl import graph as graph_lib
from lagom_xla.costs.nccl import topology

PROTOCOLS = ("ll", "ll128", "simple")
# NCCL's order: of equal times the last one wins (ncclTuningSelectBestTuning).
ALGORITHMS = ("tree", "ring", "nvls", "nvlstree", "pat")
EXCHANGES = ("all-to-all", "ragged-all-to-all")
SEND_RECV = ("collective-permute", *EXCHANGES)
GATHERS = ("all-gather", "reduce-scatter")
ROOTED = ("collective-broadcast", "reduce")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
  """What the equations read, found once for a communicator and a kind."""

  communicator: topology.Communicator
  kind: str
  graphs: graph_lib.Graphs
  capability: int
  cpu_vendor: str

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


@functools.lru_cache(maxsize=4096)
def terms_of(
  cluster: cluster_lib.Cluster, communicator: topology.Communicator, kind: str
) -> Terms:
  """The terms of the equations.

  Raises:
    ValueError: no such kind of collective.
  """
  known = ("all-reduce", *GATHERS, *ROOTED, *SEND_RECV)
  if kind not in known:
    raise ValueError(
      f"{kind!r} is not a collective of NCCL's; known: {', '.join(known)}"
    )
  major, minor = cluster.gpu.compute_capability
  return Terms(
    communicator=communicator,
    kind=kind,
    graphs=graph_lib.search(cluster, communicator),
    capability=10 * major + minor,
    cpu_vendor=cluster.node.cpu_vendor,
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
  """LL128 relies on 128-byte stores staying whole (isLL128Enabled)."""
  graph = terms.graphs.tree if algorithm == "tree" else terms.graphs.ring
  detours = ("none", "gpu") if terms.capability >= 90 else ("none",)
  meets = graph.over_nvlink or terms.communicator.ranks_per_node == 1
  return meets and graph.detour in detours and terms.capability >= 70
