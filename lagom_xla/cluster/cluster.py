# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Figures of GPUs, of the nodes that hold them, and of clusters of nodes.

Rates end in _gbps and mean 1e9 bytes per second, in one direction.

`lagom-xla calibrate` fits the factors of a calibration to nccl-tests, and
`costs/wire/timing.py` applies them.

XLA ends the process on some incomplete target configs. So the config is always
complete, and written from a `Gpu`, whose figures were checked on reading.
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

# Paths of the cost model: algorithm and protocol, or for sends and receives
# their purpose and protocol (costs/wire/path.py).
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
  """Calibration factors of collectives within a node, or between nodes.

  Attributes:
    latency_factor: factor on the predicted latency.
    rate_factor: factor on the predicted rate of the bytes.
    latency_factors: additional factors on the latency by path, such as
      "ring.ll", "tree.simple", "nvls.simple" and "permute.simple".
    rate_factors: additional factors on the rate, by path.
    type_factors: additional factors on the rate, by HLO type of the reduced
      elements; only types that training does not reduce.

  Raises:
    ClusterError: a factor is for an unknown path.
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
          f"calibration has {name} of {', '.join(found)}; the known paths are"
          f" {', '.join(_PATHS)}"
        )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
  """Measured corrections to the predicted times of lone collectives.

  Attributes:
    within_node: for collectives within a node or an NVLink domain.
    between_nodes: for collectives that span several of them.
  """

  within_node: Factors = Factors()
  between_nodes: Factors = Factors()

  def of(self, num_nodes: int) -> Factors:
    """The factors of collectives over `num_nodes`, as NCCL counts them."""
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
    name: its name in lagom_xla, such as "h100".
    device_name: its name in CUDA.
    compute_capability: major and minor version.
    accelerated_features: whether XLA compiles for the architecture-specific
      instructions (sm_90a rather than sm_90).
    num_sms: streaming multiprocessors.
    clock_ghz: the highest SM clock.
    hbm_bytes: device memory of any kind.
    hbm_gbps: rate of that memory, in 1e9 bytes per second.
    l2_bytes: L2 cache.
    registers_per_sm: 32-bit registers per SM.
    registers_per_block: the most 32-bit registers of one block.
    shared_memory_per_sm_bytes: shared memory of all blocks on an SM.
    shared_memory_per_block_bytes: default limit of a block's shared memory.
    shared_memory_per_block_optin_bytes: the largest limit that a block can ask
      for.
    threads_per_sm: the most resident threads of an SM.
    fp32_lanes_per_sm: FP32 multiply-adds that an SM starts per clock.
    matmul_peak_tflops: dense peak (no sparsity) in 1e12 operations per second,
      by dtype: f64, f32 (without TF32), tf32, f16, bf16, f8, s8. A dtype that
      the tensor cores lack is absent, as is s8 if f8 has its rate; f32 is
      required.

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
    """Why XLA cannot generate code for this GPU; None if it can.

    CUDA 13's ptxas starts at compute capability 7.5 (its release notes). Below
    that, XLA says only "ptxas too old".
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

    It has only fields that every supported XLA knows: jaxlib 0.10.2 refuses
    unknown ones. The limits of a block are those of the CUDA C++ Programming
    Guide, equal on all capabilities here. The versions are of a recent driver
    and do not affect the compile. Neither do the fields of a live client that
    are missing here.

    Args:
      num_nvlinks: NVLinks of this GPU in use. From JAX 0.12 on, XLA uses its
        own kernels for small all-reduces only if there are any.
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


# It took 6 s to describe this many to XLA (jaxlib 0.10.2). A typo such as
# 1000000x8xh100 took more than 100 s.
_MAX_NUM_DEVICES = 2**18


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class NvLink:
  """The NVLinks of one GPU.

  Attributes:
    topology: "nvswitch" (any GPU to any at full rate), "cube_mesh" (DGX-1), or
      "pairs" (bridges between two GPUs).
    num_links: links per GPU.
    link_gbps: data sheet rate of one link.
    link_effective_gbps: NCCL's assumed rate of one link.
    nodes_per_domain: nodes in one NVLink domain; more than 1 only in racks such
      as NVL72.
  """

  topology: Literal["nvswitch", "cube_mesh", "pairs"]
  num_links: validation.Count
  link_gbps: validation.Rate
  link_effective_gbps: validation.Rate
  nodes_per_domain: validation.Count


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class HostLink:
  """The link between a GPU and the memory of its host, in each direction.

  Attributes:
    gbps: data sheet rate, of PCIe or NVLink-C2C.
    effective_gbps: rate of copies from or to pinned memory.
  """

  gbps: validation.Rate
  effective_gbps: validation.Rate


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Node:
  """The links of a node's GPUs to each other and to the network.

  Attributes:
    nvlink: NVLinks of each GPU; None if only PCIe connects the GPUs.
    pcie_gbps: rate of a GPU's PCIe link.
    pcie_effective_gbps: NCCL's assumed rate of that link.
    host_link: link between a GPU and its host's memory; None for PCIe at NCCL's
      assumed rate.
    num_nics: network adapters of the node.
    nic_gbps: rate of each adapter.
    fabric: the network and its transport. NCCL models all of them as
      InfiniBand; the cost model adds the costs of the others.
    cpu_vendor: vendor of the CPUs, which decides constants of NCCL's model.
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
    """The link for copies between a GPU and its host's memory."""
    return self.host_link or HostLink(
      gbps=self.pcie_gbps, effective_gbps=self.pcie_effective_gbps
    )

  @property
  def nodes_per_nvlink_domain(self) -> int:
    """Nodes in one NVLink domain, if the cluster has as many."""
    return self.nvlink.nodes_per_domain if self.nvlink else 1


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
  """Equal nodes of equal GPUs; global device ids are laid out node by node.

  Attributes:
    name: its name in messages.
    num_nodes: number of nodes.
    gpus_per_node: GPUs in each node.
    gpu: figures of one GPU.
    node: figures of one node, apart from its GPUs.
    calibration: corrections to predicted times of collectives, from `lagom-xla
      calibrate`; None if there are none.
    processes_per_node: processes of a job on each node, with equal numbers of
      GPUs.
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
    """Nodes of the cluster in each NVLink domain, equal in all domains."""
    most = min(self.node.nodes_per_nvlink_domain, self.num_nodes)
    return math.gcd(most, self.num_nodes)

  def target_config(self) -> str:
    """XLA's GpuTargetConfigProto for its GPUs, as text."""
    nvlink = self.node.nvlink
    return self.gpu.target_config(num_nvlinks=nvlink.num_links if nvlink else 0)

  def num_nodes_of(self, devices: Sequence[int]) -> int:
    """The number of nodes that hold these global device ids.

    Raises:
      ClusterError: a device is not in the cluster.
    """
    return self._num_groups(devices, self.gpus_per_node)

  def num_nccl_nodes_of(self, devices: Sequence[int]) -> int:
    """NCCL's number of nodes: NVLink domains count as one, if they span nodes.

    Raises:
      ClusterError: a device is not in the cluster.
    """
    group_size = self.gpus_per_node * self.node.nodes_per_nvlink_domain
    return self._num_groups(devices, group_size)

  def num_processes_of(self, devices: Sequence[int]) -> int:
    """The number of the job's processes that hold these global device ids.

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
