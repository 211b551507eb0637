# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The fitted parameters of collectives: of paths in a node, and of fabrics.

fitted/collective.json has the rates and latencies of paths, by measured system,
with their units and how they were found; benchmarks/collectives/fit_paths.py
fits them to measurements of lone collectives on NVLink, with what is not the
collective's own (a module's launch, a copy of the operand, the launches of
nccl-tests) set apart. fitted/network.json has what each fabric between nodes
takes beyond NCCL's model of a network; benchmarks/collectives/fit_networks.py
fits that to rows of nccl-tests.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import functools
import json
import math
import pathlib
import re

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import nccl

_FITTED_PATHS = pathlib.Path(__file__).parents[1] / "fitted" / "collective.json"


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
  raw = json.loads(_FITTED_PATHS.read_text(encoding="utf-8"))
  return {
    name: Path(**fields) for name, fields in raw["systems"][system].items()
  }


_FITTED_FABRICS = pathlib.Path(__file__).parents[1] / "fitted" / "network.json"

# NCCL's search counts on the next of its speeds: on 12, 24 and 48 GB/s for
# adapters of 12.5, 25 and 50 (sm90SpeedArrayInter, src/graph/search.cc).
MOST_EFFICIENCY = 25 / 24


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Fabric:
  """One fabric with its transport, as NCCL's proxy threads drive it.

  Attributes:
    hop_us: latency of a hop between nodes, beyond the one that NCCL assumes.
    message_us: what a connection takes for a message, however short: posting
      it, matching it, and learning that it came.
    flush_us: the same added for Simple, whose receiver reads back from the GPU
      before it trusts what the adapter wrote there.
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
  flush_us: float
  message_gbps: float
  nic_efficiency: float
  pcie_efficiency: float = 1.0
  exchange_efficiency: float = 1.0
  peer_us: float = 0.0


@functools.cache
def fitted_fabric(name: str) -> Fabric:
  """The fitted figures of a fabric."""
  raw = json.loads(_FITTED_FABRICS.read_text(encoding="utf-8"))
  return Fabric(**raw["fabrics"][name])


@functools.cache
def most_measured_nodes(name: str) -> int:
  """On how many nodes of a fabric its figures were measured, at most.

  A system is named after its nodes, as "xx1-N10G8". 0 where there is none.
  """
  raw = json.loads(_FITTED_FABRICS.read_text(encoding="utf-8"))
  found = (re.search(r"-N(\d+)", system) for system in raw["systems"][name])
  return max((int(nodes[1]) for nodes in found if nodes), default=0)
