# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Figures of GPUs, of the nodes that hold them, and of clusters of nodes.

Rates end in _gbps and mean 1e9 bytes per second, in one direction.

`lagom-xla calibrate` finds the few figures of a calibration from nccl-tests,
and `costs/wire/timing.py` applies them.

XLA ends the process over some incomplete target configs, so the config is
always written completely from a `Gpu`, whose figures were checked on reading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses
import json
import math
from typing import Annotated, Any, Literal

import pydantic

from lagom_xla import errors
from lagom_xla import validation

# Paths of the cost model: algorithms and protocols, and for sends and receives
# their purpose (costs/wire/path.py).
_PATHS = (
  *("ring.ll", "ring.ll128", "ring.simple"),
  *("tree.ll", "tree.ll128", "tree.simple"),
  *("nvls.simple", "nvls_gather.simple", "nvlstree.simple", "pat.simple"),
  *("permute.ll", "permute.simple", "exchange.ll", "exchange.simple"),
  *("exchange_in_host.ll", "exchange_in_host.simple"),
)

_Factor = Annotated[float, pydantic.Field(ge=0.01, le=100)]
_ByPath = Annotated[
  Mapping[str, _Factor],
  pydantic.Field(json_schema_extra={"propertyNames": {"enum": list(_PATHS)}}),
]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Factors:
  """How collectives of one reach differ from what is predicted for them.

  Attributes:
    latency_factor: on what a collective takes however short it is.
    rate_factor: on the rate at which its bytes move.
    latency_factors: on that time again, by how NCCL moves the bytes:
      "ring.ll", "tree.simple", "nvls.simple", "permute.simple" and others.
    rate_factors: on that rate again, by the same.
    type_factors: on that rate again, by HLO's type of what is reduced, of types
      that training does not reduce.

  Raises:
    ClusterError: a factor is of nothing that NCCL does.
  """

  latency_factor: _Factor = 1.0
  rate_factor: _Factor = 1.0
  latency_factors: _ByPath = dataclasses.field(default_factory=dict, hash=False)
  rate_factors: _ByPath = dataclasses.field(default_factory=dict, hash=False)
  type_factors: Mapping[str, _Factor] = dataclasses.field(
    default_factory=dict, hash=False
  )

  def __post_init__(self) -> None:
    for name in ("latency_factors", "rate_factors"):
      found = getattr(self, name)
      if not found.keys() <= set(_PATHS):
        raise errors.ClusterError(
          f"calibration has {name} of {', '.join(found)}; the only ones are"
          f" {', '.join(_PATHS)}"
        )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
  """What lone collectives take on one's own machine, by measurement.

  Attributes:
    within_node: for collectives within a node, or an NVLink domain.
    between_nodes: for collectives that span several.
  """

  within_node: Factors = Factors()
  between_nodes: Factors = Factors()

  def of(self, num_nodes: int) -> Factors:
    """The factors of collectives over as many nodes, as NCCL counts them."""
    return self.between_nodes if num_nodes > 1 else self.within_node


_DTYPES = ("f64", "f32", "tf32", "f16", "bf16", "f8", "s8")

_Version = Annotated[int, pydantic.Field(ge=0)]
_Capability = Annotated[
  tuple[_Version, _Version], pydantic.Field(examples=[[9, 0]])
]
_Peaks = Annotated[
  Mapping[str, validation.Rate],
  pydantic.Field(
    json_schema_extra={
      "propertyNames": {"enum": list(_DTYPES)},
      "required": ["f32"],
    }
  ),
]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
  """One GPU model.

  The source of each figure is in specs/<name>.json.

  Attributes:
    name: the name it is asked for by, such as "h100".
    device_name: what CUDA calls it.
    compute_capability: major and minor.
    accelerated_features: whether XLA compiles for the architecture's own
      instructions (sm_90a rather than sm_90).
    num_sms: streaming multiprocessors.
    clock_ghz: the highest SM clock.
    hbm_bytes: device memory, whatever its kind.
    hbm_gbps: rate of that memory, in 1e9 bytes per second.
    l2_bytes: L2 cache.
    registers_per_sm: 32-bit registers.
    registers_per_block: the most that one block can have.
    shared_memory_per_sm_bytes: what the blocks on an SM share out.
    shared_memory_per_block_bytes: what a block gets without asking for more.
    shared_memory_per_block_optin_bytes: the most that one block can ask for.
    threads_per_sm: threads that an SM holds at a time.
    fp32_lanes_per_sm: FP32 multiply-adds that an SM starts in a clock.
    matmul_peak_tflops: dense peak (no sparsity) in 1e12 operations per second,
      by dtype: f64, f32 (without TF32), tf32, f16, bf16, f8, s8. A dtype that
      the tensor cores lack is absent, and so is s8 where f8 has its rate; f32
      never is.

  Raises:
    ClusterError: figures contradict each other.
  """

  name: validation.Text
  device_name: validation.Text
  compute_capability: _Capability
  accelerated_features: bool
  num_sms: validation.Count
  clock_ghz: validation.Rate
  hbm_bytes: validation.Bytes
  hbm_gbps: validation.Rate
  l2_bytes: validation.Bytes
  registers_per_sm: validation.Count
  registers_per_block: validation.Count
  shared_memory_per_sm_bytes: validation.Bytes
  shared_memory_per_block_bytes: validation.Bytes
  shared_memory_per_block_optin_bytes: validation.Bytes
  threads_per_sm: validation.Count
  fp32_lanes_per_sm: validation.Count
  matmul_peak_tflops: _Peaks = dataclasses.field(hash=False)

  def __post_init__(self) -> None:
    peaks = self.matmul_peak_tflops
    if "f32" not in peaks or not peaks.keys() <= set(_DTYPES):
      raise errors.ClusterError(
        f"gpu.matmul_peak_tflops has {', '.join(peaks) or 'nothing'}; it must"
        f" have f32, and only dtypes of {', '.join(_DTYPES)}"
      )
    for small, large in (
      ("registers_per_block", "registers_per_sm"),
      ("shared_memory_per_block_bytes", "shared_memory_per_block_optin_bytes"),
      ("shared_memory_per_block_optin_bytes", "shared_memory_per_sm_bytes"),
    ):
      least, most = getattr(self, small), getattr(self, large)
      if least > most:
        raise errors.ClusterError(
          f"gpu.{small} is {least}; it must not exceed gpu.{large} ({most})"
        )

  @property
  def vector_f32_tflops(self) -> float:
    """Peak of FP32 multiply-adds outside tensor cores, two operations each."""
    return self.num_sms * self.fp32_lanes_per_sm * 2 * self.clock_ghz / 1e3

  @property
  def compile_obstacle(self) -> str | None:
    """Why code cannot be generated for this GPU; None when it can.

    CUDA 13's ptxas starts at compute capability 7.5 (its release notes); for
    less XLA only says "ptxas too old".
    """
    if self.compute_capability >= (7, 5):
      return None
    major, minor = self.compute_capability
    return (
      f"{self.name} has compute capability {major}.{minor}, but XLA's CUDA"
      " plugin uses CUDA 13, which generates code for 7.5 and newer"
    )

  def target_config(self, *, num_nvlinks: int) -> str:
    """XLA's GpuTargetConfigProto for this GPU, as text.

    Only fields that every supported XLA knows: jaxlib 0.10.2 refuses unknown
    ones. The limits of a block are those of the CUDA C++ Programming Guide,
    equal on all capabilities here; the versions are of a recent driver and
    have no effect on what is compiled. So have all fields that a live client
    has, and this has not.

    Args:
      num_nvlinks: of this GPU that are in use. From JAX 0.12 on XLA has kernels
        of its own for small all-reduces only where there are some.
    """
    major, minor = self.compute_capability
    features = "ACCELERATED_FEATURES" if self.accelerated_features else "NONE"
    return f"""gpu_device_info {{
  threads_per_block_limit: 1024
  thread_dim_limit_x: 1024
  thread_dim_limit_y: 1024
  thread_dim_limit_z: 64
  threads_per_warp: 32
  shared_memory_per_block: {self.shared_memory_per_block_bytes}
  shared_memory_per_core: {self.shared_memory_per_sm_bytes}
  threads_per_core_limit: {self.threads_per_sm}
  core_count: {self.num_sms}
  fpus_per_core: {self.fp32_lanes_per_sm}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {round(self.hbm_gbps * 1e9)}
  l2_cache_size: {self.l2_bytes}
  clock_rate_ghz: {self.clock_ghz}
  device_memory_size: {self.hbm_bytes}
  shared_memory_per_block_optin: {self.shared_memory_per_block_optin_bytes}
  cuda_compute_capability {{
    major: {major}
    minor: {minor}
    feature_extension: {features}
  }}
  registers_per_core_limit: {self.registers_per_sm}
  registers_per_block_limit: {self.registers_per_block}
  device_interconnect_info {{ active_links: {num_nvlinks} }}
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
runtime_version {{ major: 12 minor: 8 }}
device_description_str: {json.dumps(self.device_name)}
"""


# Describing this many to XLA took 6 s (jaxlib 0.10.2). A typo such as
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
    """How many such nodes NVLinks join, if there are as many."""
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
    processes_per_node: that a job starts, each with as many of a node's GPUs.
  """

  __pydantic_config__ = validation.STRICT

  name: validation.Text
  num_nodes: validation.Count
  gpus_per_node: validation.Count
  gpu: Gpu
  node: Node
  calibration: Calibration | None = None
  processes_per_node: validation.Count = 1

  def __post_init__(self) -> None:
    if self.num_devices > _MAX_NUM_DEVICES:
      raise errors.ClusterError(
        f"num_nodes x gpus_per_node is {self.num_devices} GPUs; it must be"
        f" {_MAX_NUM_DEVICES} at most"
      )
    if self.gpus_per_node % self.processes_per_node:
      raise errors.ClusterError(
        f"processes_per_node is {self.processes_per_node}; it must divide"
        f" gpus_per_node ({self.gpus_per_node})"
      )

  @property
  def num_devices(self) -> int:
    """GPUs in the whole cluster."""
    return self.num_nodes * self.gpus_per_node

  @property
  def nodes_per_nvlink_domain(self) -> int:
    """How many of its nodes NVLinks join, equally in each domain."""
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
    """How many nodes NCCL counts: NVLink domains if those span nodes.

    Raises:
      ClusterError: a device is not in the cluster.
    """
    group_size = self.gpus_per_node * self.node.nodes_per_nvlink_domain
    return self._num_groups(devices, group_size)

  def num_processes_of(self, devices: Sequence[int]) -> int:
    """How many of the job's processes hold these global device ids.

    Raises:
      ClusterError: a device is not in the cluster.
    """
    per_process = self.gpus_per_node // self.processes_per_node
    return self._num_groups(devices, per_process)

  def _num_groups(self, devices: Sequence[int], group_size: int) -> int:
    for device in devices:
      if not 0 <= device < self.num_devices:
        raise errors.ClusterError(
          f"device {device} is not in cluster {self.name}, which has devices"
          f" 0 to {self.num_devices - 1}"
        )
    return len({device // group_size for device in devices})

  def to_dict(self) -> dict[str, Any]:
    """The complete cluster as JSON data, for `from_dict`."""
    return validation.write(self)
