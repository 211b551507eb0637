# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The tuning key of a collective, and its cost when it runs alone.

`wire` predicts the time. A collective also takes one SM per channel, and memory
bandwidth. Every byte on the wire is read once and written once. It also passes
through staging buffers (another read and write), which stay in L2 if the chunks
of all channels fit there. This is V(NC, C) in equation 6 of Lagom (arXiv
2602.20656). The paper gives no formula for it, but says that it grows with
both NC and C, as it does here.

*Copies* are costed likewise, and take no SM. A host copy runs at the rate of
copies from pinned memory (`cluster.HostLink`), and draws the same bandwidth
from the GPU's memory. A device copy reads and writes the GPU's memory, like a
memcpy on the compute stream (`fusion.py`). The launches of host copies are not
modeled, nor is contention between the two directions of a link or between the
GPUs of a node.
"""

from __future__ import annotations

import collections
from collections import Counter
from collections.abc import Mapping, Sequence
import dataclasses
import functools

from lagom_xla import cluster as cluster_lib
from lagom_xla import validation
from lagom_xla.costs import fusion
from lagom_xla.costs import nccl
from lagom_xla.costs import wire
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import copies
from lagom_xla.passes import replica_groups

# Per channel and direction, NCCL_STEPS / 2 chunks are in flight, in the staging
# buffers of every protocol (src/include/device.h).
_CHUNKS_IN_FLIGHT = 2

Setting = nccl.Setting


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CollectiveCost:
  """The cost of a collective alone, under some setting.

  Attributes:
    time_us: run time.
    num_channels: SMs that it takes.
    memory_gbps: memory bandwidth that it draws, in 1e9 bytes per second (V_j).
    within_load: share of its run time in which its bytes keep the links within
      nodes busy.
    between_load: `within_load` for the links between nodes.
    pairing: number of its key in `measured.Measured`; None if not measured.
  """

  time_us: float
  num_channels: int
  memory_gbps: float
  within_load: float = 0.0
  between_load: float = 0.0
  pairing: int | None = None

  def lasting(self, time_us: float) -> CollectiveCost:
    """The cost if the same bytes take `time_us`."""
    memory_gbps = self.memory_gbps * self.time_us / time_us
    return dataclasses.replace(self, time_us=time_us, memory_gbps=memory_gbps)


@dataclasses.dataclass(frozen=True, order=True, slots=True)
class TuningKey:
  """The properties that decide NCCL's setting; collectives of a key share it.

  Attributes:
    kind: HLO opcode.
    num_ranks: size of the communicator.
    num_nodes: nodes that it spans.
    num_bytes: size as NCCL counts it (`Collective.nccl_bytes`).
    multicasts: whether NCCL may use NVLS; False for reductions that switches
      cannot do (`nccl.switch_reduces`).
    reduced: HLO type of a reduction's elements if it is unusual in training, or
      ""; calibrated clusters have factors for such types (`cluster.Factors`).
  """

  kind: validation.Text
  num_ranks: validation.Count
  num_nodes: validation.Count
  num_bytes: validation.Bytes
  multicasts: bool = True
  reduced: str = ""

  @property
  def communicator(self) -> nccl.Communicator:
    """The communicator, as NCCL's model describes it."""
    return nccl.Communicator(
      num_ranks=self.num_ranks,
      num_nodes=self.num_nodes,
      multicasts=self.multicasts,
    )

  def of_call(self, num_bytes: int) -> TuningKey:
    """The key of a call of `num_bytes`, as NCCL passes it to a tuner."""
    return dataclasses.replace(
      self, num_bytes=num_bytes, multicasts=True, reduced=""
    )


@dataclasses.dataclass(frozen=True, order=True, kw_only=True, slots=True)
class Call:
  """One call of a tuner by NCCL, for arrays that NCCL aggregates.

  Attributes:
    num_bytes: bytes of those arrays, as NCCL counts them; the only size that a
      tuner gets.
    num_arrays: arrays of the whole collective. Each gets the tuner's number of
      channels, up to NCCL's total (scheduleCollTasksToPlan in NCCL's
      src/enqueue.cc adds them up).
  """

  num_bytes: validation.Bytes
  num_arrays: validation.Count

  def channels_each(self, num_channels: int) -> int:
    """One array's share of a collective's channels, at least one."""
    return max(round(num_channels / self.num_arrays), 1)


def calls(collective: collectives_lib.Collective) -> tuple[Call, ...]:
  """NCCL's calls of a tuner for a collective, in NCCL's order.

  There is one call for one array, or for arrays of similar sizes. Sends,
  receives and collectives of a single rank are not tuned and have no call.
  """
  is_untuned = collective.kind in ("send", "recv", *nccl.SEND_RECV)
  if is_untuned or collective.group_size < 2:
    return ()
  runs = nccl.aggregates(
    collective.kind, collective.grouped_bytes or collective.array_bytes
  )
  num_arrays = sum(map(len, runs))
  return tuple(
    Call(num_bytes=sum(run), num_arrays=num_arrays)
    for run in runs
    if not set(run).isdisjoint(collective.array_bytes)
  )


def calls_by_key(
  found: Sequence[tuple[TuningKey, collectives_lib.Collective]],
) -> Mapping[TuningKey, tuple[Call, ...]]:
  """For each key, the calls of a step that its setting decides, by size.

  A tuner gets the sizes of calls, not of collectives. A size that occurs under
  several keys belongs only to the key that moves the most bytes per step. If
  collectives of one key have calls of the same size but different numbers of
  arrays, the most frequent one counts.
  """
  runs: Counter[TuningKey] = collections.Counter()
  executions: dict[TuningKey, Counter[Call]] = {}
  for key, collective in found:
    runs[key] += collective.executions
    counter = executions.setdefault(key, collections.Counter())
    for call in calls(collective):
      counter[call] += collective.executions
  owner: dict[TuningKey, TuningKey] = {}  # By the key of a single call.
  for key in sorted(runs, key=lambda k: (k.num_bytes * runs[k], k)):
    for call in executions[key]:
      owner[key.of_call(call.num_bytes)] = key
  by_key = {}
  for key, counter in executions.items():
    by_size = {
      call.num_bytes: call
      for call in sorted(counter, key=lambda c: (counter[c], c))
      if owner[key.of_call(call.num_bytes)] == key
    }
    by_key[key] = tuple(sorted(by_size.values()))
  return by_key


_USUAL_TYPES = ("bf16", "f16", "f32")


def unusual_type(kind: str, element_type: str) -> str:
  """HLO type of a reduction's elements if unusual in training, else ""."""
  is_usual = element_type in _USUAL_TYPES
  is_reduced = kind in collectives_lib.REDUCTIONS
  return element_type if is_reduced and not is_usual else ""


def tuning_key(
  collective: collectives_lib.Collective, cluster: cluster_lib.Cluster
) -> TuningKey:
  """The tuning key of a collective on a cluster."""
  num_nodes, num_ranks = _widest(collective.groups, cluster)
  is_one_sided = collective.kind in ("send", "recv")
  return TuningKey(
    # A send and its recv are half a permute each.
    kind="collective-permute" if is_one_sided else collective.kind,
    num_ranks=num_ranks,
    num_nodes=num_nodes,
    num_bytes=collective.nccl_bytes,
    multicasts=collective.kind not in collectives_lib.REDUCTIONS
    or nccl.switch_reduces(collective.element_type, collective.reduction),
    reduced=unusual_type(collective.kind, collective.element_type),
  )


@functools.lru_cache(maxsize=1024)
def _widest(
  groups: replica_groups.Groups, cluster: cluster_lib.Cluster
) -> tuple[int, int]:
  """Nodes and ranks of the slowest group: the one that spans the most nodes.

  Groups of equal size differ if a node does not hold a whole number of them.
  """
  sizes = ((cluster.num_nccl_nodes_of(group), len(group)) for group in groups)
  return max(sizes, default=(1, 1))


def default_setting(
  key: TuningKey,
  cluster: cluster_lib.Cluster,
  version: nccl.Version = nccl.NEWEST,
  among: nccl.Communicator | None = None,
) -> nccl.Setting:
  """The choice of NCCL `version` without a tuner.

  `among` is a permute's whole communicator, if the key counts only the ranks
  that exchange data.
  """
  return nccl.default_setting(
    cluster, key.communicator, key.kind, key.num_bytes, version, among
  )


def predict(
  key: TuningKey, setting: nccl.Setting, cluster: cluster_lib.Cluster
) -> CollectiveCost:
  """Predicts the cost of a collective alone, under a setting.

  A collective of several calls is predicted as one call of all its bytes: NCCL
  runs them in one launch, whose channels share the arrays of all calls (see
  `Call`), so their latencies do not add up. NCCL's default is also predicted
  from the total, although NCCL chooses per call and may give small arrays a
  slower protocol. So the default can be slower than predicted, never faster.
  """
  if key.num_ranks == 1 or not key.num_bytes:
    return CollectiveCost(time_us=0.0, num_channels=0, memory_gbps=0.0)
  time_us = wire.time_us(
    cluster,
    key.communicator,
    key.kind,
    key.num_bytes,
    setting,
    reduced=key.reduced,
  )
  wire_gbps = wire.sent_bytes(
    key.communicator, key.kind, key.num_bytes, setting.algorithm
  ) / (1e3 * time_us)
  # Bytes that a channel passes on at a time. In rings, PAT and exchanges they
  # are limited to one rank's part.
  num_parts = setting.num_channels
  if setting.algorithm in ("ring", "pat") or key.kind in nccl.EXCHANGES:
    num_parts *= key.num_ranks
  chunk_bytes = min(setting.chunk_bytes, key.num_bytes / num_parts)
  staged_bytes = setting.num_channels * chunk_bytes * _CHUNKS_IN_FLIGHT
  # Bytes read from and written to memory, per byte on the wire.
  memory_passes = 2.0 + 2.0 * min(staged_bytes / cluster.gpu.l2_bytes, 1.0)
  within_load, between_load = _link_loads(key, setting, cluster, time_us)
  return CollectiveCost(
    time_us=time_us,
    num_channels=setting.num_channels,
    memory_gbps=wire_gbps * memory_passes,
    within_load=within_load,
    between_load=between_load,
  )


def _link_loads(
  key: TuningKey,
  setting: nccl.Setting,
  cluster: cluster_lib.Cluster,
  time_us: float,
) -> tuple[float, float]:
  """Shares of `time_us` that links within and between nodes are busy.

  A collective keeps its links busy for its bytes over NCCL's bandwidth. The
  rest of its time is latency, or bound by its channels. A collective that spans
  nodes, with several ranks in each, also sends all of its bytes over the links
  within nodes. Without NVLink, both use a GPU's PCIe link.
  """
  gbps = nccl.bandwidth_gbps(
    cluster, key.communicator, key.kind, setting.algorithm, setting.protocol
  )
  if gbps <= 0:
    return 1.0, 1.0 if key.num_nodes > 1 else 0.0
  own_load = min(key.num_bytes / (1e3 * gbps * time_us), 1.0)
  if key.num_nodes == 1:
    return own_load, 0.0
  node, nvlink = cluster.node, cluster.node.nvlink
  if nvlink is None:
    gpu_gbps = node.pcie_effective_gbps
  elif key.num_ranks == key.num_nodes:
    return 0.0, own_load
  else:
    gpu_gbps = nvlink.num_links * nvlink.link_effective_gbps
  sent_bytes = wire.sent_bytes(
    key.communicator, key.kind, key.num_bytes, setting.algorithm
  )
  return min(sent_bytes / (1e3 * gpu_gbps * time_us), 1.0), own_load


def of_copy(copy: copies.Copy, cluster: cluster_lib.Cluster) -> CollectiveCost:
  """Predicts the cost of a copy alone."""
  if copy.is_bound_by_memory:
    pattern = fusion.fitted(cluster.gpu).patterns["memcpy"]
    least_us = device_copy_us(copy, cluster)
    time_us = pattern.launch_us + least_us / pattern.memory_share
    gbps = cluster.gpu.hbm_gbps * least_us / time_us
  else:
    gbps = cluster.node.link_to_host.effective_gbps
    time_us = copy.num_bytes / (1e3 * gbps)
  return CollectiveCost(time_us=time_us, num_channels=0, memory_gbps=gbps)


def host_copy_us(copy: copies.Copy, cluster: cluster_lib.Cluster) -> float:
  """Time of a host copy at the data sheet rate of the link."""
  return copy.num_bytes / (1e3 * cluster.node.link_to_host.gbps)


def device_copy_us(copy: copies.Copy, cluster: cluster_lib.Cluster) -> float:
  """Time of a device copy at the data sheet rate of the memory."""
  return 2 * copy.num_bytes / (1e3 * cluster.gpu.hbm_gbps)
