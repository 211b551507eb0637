# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Facts about XLA's options that jaxlib does not expose.

Options that were renamed or removed, with replacements; options that nothing
reads; options that crash some compiles. Each has its source; `openxla/xla#`
numbers are pull requests.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Note:
  """Why a flag was removed, and the source of that.

  `gone_by` is the first jaxlib without it, of those that were checked.
  `instead` maps the old value ("" for any other) to today's flag, or to "".
  """

  text: str
  source: str
  gone_by: str
  instead: Mapping[str, str] = dataclasses.field(default_factory=dict)


# Options that XLA decides on while they are unset, and how it does. In jaxlib
# 0.12.0 "false" is not "unset"; set to how they read, the 46 other options that
# it leaves unset change no schedule.
DECIDED: Mapping[str, str] = {
  "xla_gpu_enable_latency_hiding_scheduler": (
    "XLA decides while it is unset: on for Hopper and Blackwell if its"
    " speed-of-light estimates cover the step's collectives, else off"
  ),
}

# Booleans that became enums whose values end in ON and OFF, by the options of
# jaxlib 0.10.2 and 0.12.0. The latter still accepts the old names in XLA_FLAGS,
# but not in compiler_options.
RENAMES: Mapping[str, str] = {
  f"xla_gpu_enable_pipelined_{kind}": f"xla_gpu_pipeline_{kind}"
  for kind in ("all_gather", "all_reduce", "reduce_scatter")
}


def _async(kind: str) -> Note:
  off = f"--xla_gpu_disable_async_collectives={kind}"
  return Note(
    text="Collectives are asynchronous by default.",
    source="openxla/xla#11422",
    gone_by="0.4.31",
    instead={"false": off, "0": off},
  )


_GRAPHS = Note(
  text="A list now says what goes into CUDA graphs.",
  source="openxla/xla#30187",
  gone_by="0.7.2",
  instead={
    "0": "--xla_gpu_enable_command_buffer=",
    "false": "--xla_gpu_enable_command_buffer=",
  },
)
_DYNAMIC_SLICE = {
  value: f"--xla_gpu_enable_dynamic_slice_fusion={value}"
  for value in ("true", "false")
}

# Flags that recipes still contain, but that make XLA end the process.
REMOVED: Mapping[str, Note] = {
  "xla_gpu_enable_async_collectives": _async("allcollectives"),
  "xla_gpu_enable_async_all_gather": _async("allgather"),
  "xla_gpu_enable_async_all_reduce": _async("allreduce"),
  "xla_gpu_enable_async_all_to_all": _async("alltoall"),
  "xla_gpu_enable_async_collective_broadcast": _async("collectivebroadcast"),
  "xla_gpu_enable_async_collective_permute": _async("collectivepermute"),
  "xla_gpu_enable_async_reduce_scatter": _async("reducescatter"),
  "xla_gpu_graph_level": _GRAPHS,
  "xla_gpu_enable_cuda_graphs": _GRAPHS,
  "xla_gpu_simplify_all_fp_conversions": Note(
    text="Pairs of opposite conversions are removed by default.",
    source="openxla/xla commit d7a758b",
    gone_by="0.4.31",
    instead={"false": "--xla_allow_excess_precision=false"},
  ),
  "xla_gpu_enable_triton_softmax_fusion": Note(
    text="Softmax is fused by default.",
    source="jax-ml/jax#25444, openxla/xla commit 896e241",
    gone_by="0.5.3",
  ),
  "xla_gpu_enable_custom_fusions": Note(
    text="Only the dynamic slice fusion still has a flag.",
    source="NVIDIA/JAX-Toolbox, rosetta/projects/maxtext/README.md, note 2",
    gone_by="0.9.0",
    instead=_DYNAMIC_SLICE,
  ),
  "xla_gpu_enable_address_computation_fusion": Note(
    text="It is now called dynamic slice fusion.",
    source="NVIDIA/JAX-Toolbox, rosetta/projects/maxtext/README.md, note 2",
    gone_by="0.4.35",
    instead=_DYNAMIC_SLICE,
  ),
  "xla_gpu_cudnn_gemm_fusion": Note(
    text="It became a level from 0 to 3.",
    source="the options of jaxlib 0.10.2",
    gone_by="0.4.31",
    instead={
      "": "--xla_gpu_cudnn_gemm_fusion_level=1",
      "false": "--xla_gpu_cudnn_gemm_fusion_level=0",
    },
  ),
  "xla_gpu_enable_pipelined_collectives": Note(
    text="Pipelining is chosen for each kind of collective.",
    source="no use of the option in XLA of June 2026",
    gone_by="0.6.0",
  ),
  "xla_gpu_enable_pgle_accuracy_checker": Note(
    text="It became a choice of off, warn and error.",
    source="the options of jaxlib 0.10.2",
    gone_by="0.5.0",
    instead={
      "": "--xla_gpu_pgle_accuracy_checker=PGLE_STRICTNESS_LEVEL_ERROR",
      "false": "--xla_gpu_pgle_accuracy_checker=PGLE_STRICTNESS_LEVEL_WARN",
    },
  ),
}

# Removed flags that jaxlib 0.10.2 still accepts.
REMOVED_SINCE: Mapping[str, Note] = {
  "xla_gpu_experimental_enable_nvshmem": Note(
    text="NVSHMEM collectives are gone; all use NCCL.",
    source="openxla/xla#42793",
    gone_by="0.11.0",
  ),
}

# Options of collectives and memory that jaxlib 0.10.2 lacks -> the jaxlib that
# has them.
ADDED: Mapping[str, str] = {
  "xla_enable_nccl_symmetric_buffers_for_collectives": "0.11.0",
  "xla_gpu_enable_collectives_command_buffer_filter": "0.11.0",
} | dict.fromkeys(
  (
    "xla_gpu_async_copy_min_bytes",
    "xla_gpu_collective_domain_assignment",
    "xla_gpu_enable_cupti_multi_subscriber",
    "xla_gpu_enable_persistent_symmetric_memory",
    "xla_gpu_experimental_enable_selective_memcpy_overlap",
    "xla_gpu_experimental_parallel_scale_up_collective_overlap_limit",
    "xla_gpu_experimental_scheduler_memory_fencing_slack_windows",
    "xla_gpu_experimental_scheduler_memory_fencing_threshold_bytes",
    "xla_gpu_experimental_use_collective_kernels",
    "xla_gpu_unsupported_use_cross_host_one_shot_kernel",
  ),
  "0.12.0",
)

# Accepted, but never read by XLA of June 2026.
DEAD: Mapping[str, str] = dict.fromkeys(
  (
    "xla_gpu_collective_inflation_factor",
    "xla_gpu_enable_nccl_clique_optimization",
    "xla_gpu_enable_pipelined_collectives",
  ),
  "XLA accepts it but never reads it.",
)

# Accepted, but crash the compile of some modules: on jaxlib 0.12.0.1 two with
# loops, on 0.10.2 one of Llama 70B over 4x8 GPUs (Unhandled primitive type 13).
CRASHES: Mapping[str, str] = {
  "xla_gpu_enable_analytical_latency_estimator": (
    "With the latency-hiding scheduler it crashes the compile of some modules."
  ),
}
