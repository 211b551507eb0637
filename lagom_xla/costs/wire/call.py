# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A call of NCCL's: what it sends, and the rates that bound it.

Rates end in _gbps and mean 1e9 bytes per second.
"""

from __future__ import annotations

import dataclasses

from lagom_xla import cluster as cluster_lib
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
  """A lone collective on its communicator under a setting.

  Attributes:
    cluster: where it runs.
    communicator: who takes part.
    kind: XLA's name of the collective.
    num_bytes: as NCCL counts them.
    setting: how it runs.
  """

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
    """What a channel copies here, over what one of the measured GPUs does."""
    major = min(max(self.cluster.gpu.compute_capability[0], 7), 8)
    return _CHANNEL_GBPS[major] / _CHANNEL_GBPS[8]

  @property
  def link_gbps(self) -> float:
    """What NCCL assumes of all links of a GPU, in one direction."""
    ranks = self.num_ranks
    if self.setting.algorithm == "p2p":
      gbps = self._nccl_gbps("p2p", self.setting.protocol)
      return gbps * (1 if self.kind == "collective-permute" else 1 - 1 / ranks)
    num_steps = (ranks - 1) * (2 if self.kind == "all-reduce" else 1)
    return self._nccl_gbps("ring", "simple") * num_steps / ranks

  @property
  def nccl_gbps(self) -> float:
    """Bytes of the buffer over time, as NCCL assumes of its setting."""
    return self._nccl_gbps(self.setting.algorithm, self.setting.protocol)

  @property
  def nccl_latency_us(self) -> float:
    """What NCCL assumes of its setting's latency."""
    return nccl.latency_us(
      self.cluster,
      self.communicator,
      self.kind,
      self.setting.algorithm,
      self.setting.protocol,
    )

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
  """What the busiest channel of all ranks hands on, over its share of bytes.

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
