# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A GPU in figures, and as the target config that XLA compiles for.

XLA ends the process on some target configs that lack a field, so the config is
always written whole from a `Gpu`, whose figures were checked when it was read.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import json
from typing import Annotated

import pydantic

from lagom_xla import errors
from lagom_xla import validation

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
        f"gpu.matmul_peak_tflops has {', '.join(peaks) or 'nothing'}; it must "
        f"have f32, and no other than {', '.join(_DTYPES)}"
      )
    for small, large in (
      ("registers_per_block", "registers_per_sm"),
      ("shared_memory_per_block_bytes", "shared_memory_per_block_optin_bytes"),
      ("shared_memory_per_block_optin_bytes", "shared_memory_per_sm_bytes"),
    ):
      least, most = getattr(self, small), getattr(self, large)
      if least > most:
        raise errors.ClusterError(
          f"gpu.{small} is {least}; it must not exceed gpu.{large}, {most}"
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
      f"{self.name} has compute capability {major}.{minor}, and CUDA 13, which "
      "XLA's CUDA plugin builds on, generates code from 7.5 up"
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
