# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Figures of GPUs, of the nodes that hold them, and of clusters of nodes.

Rates end in _gbps and mean 1e9 bytes per second, in one direction.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import math
from typing import Any, Literal

from lagom_xla import errors
from lagom_xla import validation
from lagom_xla.cluster.calibration import Calibration
from lagom_xla.cluster.gpu import Gpu

# Describing this many to XLA took 6 s (jaxlib 0.10.2). A slip of the fingers as
# 1000000x8xh100 was not done in 100 s.
_MAX_NUM_DEVICES = 2**18


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class NvLink:
  """The NVLinks of one GPU.

  Attributes:
    topology: "nvswitch" (any GPU to any at full rate), "cube_mesh" (DGX-1), or
      "pairs" (bridges between two GPUs).
    num_links: links per GPU.
    link_gbps: data sheet rate of one link.
    link_effective_gbps: what NCCL counts on for one link.
    nodes_per_domain: nodes that one NVLink domain covers; more than 1 only in
      racks such as NVL72.
  """

  topology: Literal["nvswitch", "cube_mesh", "pairs"]
  num_links: validation.Count
  link_gbps: validation.Rate
  link_effective_gbps: validation.Rate
  nodes_per_domain: validation.Count


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class HostLink:
  """What joins a GPU to the memory of its host, each way.

  Attributes:
    gbps: data sheet rate, of PCIe or NVLink-C2C.
    effective_gbps: what copies of pinned memory reach.
  """

  gbps: validation.Rate
  effective_gbps: validation.Rate


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Node:
  """What joins the GPUs of a node to each other and to the network.

  Attributes:
    nvlink: None where GPUs meet over PCIe alone.
    pcie_gbps: rate of a GPU's PCIe link.
    pcie_effective_gbps: what NCCL counts on for that link.
    host_link: between a GPU and its host's memory; None for PCIe, with what
      NCCL counts on for it.
    num_nics: network adapters of the node.
    nic_gbps: rate of each.
    fabric: the network and its transport. NCCL's model is InfiniBand's on all
      of them; what the others take beyond it is the cost model's.
    cpu_vendor: NCCL's model has different constants for AMD.
  """

  nvlink: NvLink | None
  pcie_gbps: validation.Rate
  pcie_effective_gbps: validation.Rate
  num_nics: validation.Count
  nic_gbps: validation.Rate
  fabric: Literal["infiniband", "roce", "efa", "slingshot", "tcpx", "tcpxo"]
  cpu_vendor: Literal["intel", "amd", "arm"]
  host_link: HostLink | None = None

  @property
  def link_to_host(self) -> HostLink:
    """The link that copies between a GPU and its host's memory take."""
    return self.host_link or HostLink(
      gbps=self.pcie_gbps, effective_gbps=self.pcie_effective_gbps
    )

  @property
  def nodes_per_nvlink_domain(self) -> int:
    """How many such nodes NVLinks join, where there are as many."""
    return self.nvlink.nodes_per_domain if self.nvlink else 1


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
  """Equal nodes of equal GPUs; global device ids are laid out node by node.

  Attributes:
    name: what to call it in messages.
    num_nodes: nodes in all.
    gpus_per_node: GPUs in each of them.
    gpu: one of the GPUs.
    node: one of the nodes, apart from its GPUs.
    calibration: what collectives take here, as `lagom-xla calibrate` measured
      it; None where nothing was measured.
  """

  __pydantic_config__ = validation.STRICT

  name: validation.Text
  num_nodes: validation.Count
  gpus_per_node: validation.Count
  gpu: Gpu
  node: Node
  calibration: Calibration | None = None

  def __post_init__(self) -> None:
    if self.num_devices > _MAX_NUM_DEVICES:
      raise errors.ClusterError(
        f"num_nodes x gpus_per_node is {self.num_devices} GPUs; it must be"
        f" {_MAX_NUM_DEVICES} at most, which is more than any cluster has"
      )

  @property
  def num_devices(self) -> int:
    """GPUs in the whole cluster."""
    return self.num_nodes * self.gpus_per_node

  @property
  def nodes_per_nvlink_domain(self) -> int:
    """How many of its nodes NVLinks join, in each of its domains alike."""
    most = min(self.node.nodes_per_nvlink_domain, self.num_nodes)
    return math.gcd(most, self.num_nodes)

  def target_config(self) -> str:
    """XLA's GpuTargetConfigProto for its GPUs, as text."""
    nvlink = self.node.nvlink
    return self.gpu.target_config(num_nvlinks=nvlink.num_links if nvlink else 0)

  def num_nodes_of(self, devices: Sequence[int]) -> int:
    """How many nodes these global device ids lie in.

    Raises:
      ClusterError: a device is not in the cluster.
    """
    return self._num_groups(devices, self.gpus_per_node)

  def num_nccl_nodes_of(self, devices: Sequence[int]) -> int:
    """How many nodes NCCL counts: NVLink domains where those span nodes.

    Raises:
      ClusterError: a device is not in the cluster.
    """
    group_size = self.gpus_per_node * self.node.nodes_per_nvlink_domain
    return self._num_groups(devices, group_size)

  def _num_groups(self, devices: Sequence[int], group_size: int) -> int:
    for device in devices:
      if not 0 <= device < self.num_devices:
        raise errors.ClusterError(
          f"device {device} is not in cluster {self.name}, whose devices are "
          f"0 to {self.num_devices - 1}"
        )
    return len({device // group_size for device in devices})

  def to_dict(self) -> dict[str, Any]:
    """The cluster as JSON data, whole, for `from_dict` to read back."""
    return validation.write(self)
