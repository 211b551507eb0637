# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Options of XLA that cannot act together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
import dataclasses

from lagom_xla.flags import collective_routes
from lagom_xla.flags import debug_options
from lagom_xla.flags import xla_kernels


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Conflict:
  """Options that cannot act together, the first of which has no effect.

  `holds` decides from the values of all options, if the installed jaxlib has
  all of these.
  """

  options: tuple[str, ...]
  holds: Callable[[Mapping[str, debug_options.Value]], bool]
  text: str


_OVERLAP_LIMIT = "xla_gpu_experimental_parallel_collective_overlap_limit"
_WITHIN_LIMIT = (
  "xla_gpu_experimental_parallel_scale_up_collective_overlap_limit"
)
_FABRICS = "xla_gpu_collective_domain_assignment"
_UNROLLING = "xla_gpu_enable_while_loop_unrolling"
_FENCING = "xla_gpu_experimental_scheduler_memory_fencing_threshold_bytes"
_FENCING_SLACK = "xla_gpu_experimental_scheduler_memory_fencing_slack_windows"
_DOUBLE_BUFFERING = "xla_gpu_enable_while_loop_double_buffering"
_SCHEDULER = "xla_gpu_enable_latency_hiding_scheduler"
_OFF_PASSES = "xla_disable_hlo_passes"
_SYNCHRONOUS = "xla_gpu_disable_async_collectives"
_DECOMPOSING = "xla_gpu_collective_permute_decomposer_threshold"
_PIPELINED_P2P = "xla_gpu_enable_pipelined_p2p"
_PIPELINE_LEVEL = "xla_gpu_experimental_pipeline_parallelism_opt_level"
_AUTOTUNE = "xla_gpu_autotune_level"
_COMPLETE_RESULTS = "xla_gpu_require_complete_aot_autotune_results"
_DUMPED_AS = (
  *("xla_dump_hlo_as_text", "xla_dump_hlo_as_proto", "xla_dump_hlo_as_dot"),
  *("xla_dump_hlo_as_html", "xla_dump_hlo_as_url", "xla_dump_hlo_snapshots"),
  "xla_dump_hlo_unoptimized_snapshots",
)
_EINSUM_MIB = "xla_gpu_threshold_for_windowed_einsum_mib"
_EINSUM_BYTES = "xla_gpu_operand_bytes_threshold_for_windowed_einsum"


def _needs_overlap(option: str) -> Conflict:
  return Conflict(
    options=(option, _OVERLAP_LIMIT),
    holds=lambda v: v[option] is True and v[_OVERLAP_LIMIT] == 1,
    text="It has no effect while only one collective may be in flight; add"
    f" --{_OVERLAP_LIMIT}=2.",
  )


def _needs_async(kind: str, option: str) -> Conflict:
  pipelining = (True, "COLLECTIVE_PIPELINING_MODE_ON")
  return Conflict(
    options=(option, _SYNCHRONOUS),
    holds=lambda v: (
      v[option] in pipelining
      and not {kind, "ALLCOLLECTIVES"}.isdisjoint(
        str(v[_SYNCHRONOUS]).split(",")
      )
    ),
    text="Pipelining has no effect on synchronous collectives, which never"
    " overlap kernels; keep one of the two.",
  )


# Seen in schedules of six programs, compiled by jaxlib 0.10.2, unless another
# source is named.
CONFLICTS: tuple[Conflict, ...] = (
  _needs_overlap("xla_gpu_experimental_collective_start_as_early_as_possible"),
  _needs_overlap("xla_gpu_experimental_enable_collective_multi_streaming"),
  Conflict(
    options=(_WITHIN_LIMIT, _FABRICS),
    holds=lambda v: v[_WITHIN_LIMIT] != 1 and not v[_FABRICS],
    # xla/backends/gpu/transforms/collectives/collective_domain_assigner.cc
    text="It has no effect until collectives are assigned to domains; add"
    f" --{_FABRICS}=scale_up_fabric.",
  ),
  Conflict(
    options=(xla_kernels.ON_DEVICE, *collective_routes.OF_PROCESS),
    holds=lambda v: (
      v[xla_kernels.ON_DEVICE] is True
      and not any(v[name] for name in collective_routes.OF_PROCESS)
    ),
    # marin-community/marin#7891
    text="It has no effect without symmetric buffers; add"
    f" --{collective_routes.SYMMETRIC_KINDS}=raggedalltoall.",
  ),
  Conflict(
    options=(xla_kernels.KERNELS,),
    holds=lambda v: (
      "COLLECTIVE_KERNEL_ALL_TO_ALL" in str(v[xla_kernels.KERNELS]).split(",")
    ),
    # Seen with jaxlib 0.12.0.1.
    text="XLA has no such kernel and rejects every program; remove"
    " COLLECTIVE_KERNEL_ALL_TO_ALL.",
  ),
  *(
    _needs_async(kind.replace("_", "").upper(), name)
    for kind in ("all_gather", "all_reduce", "reduce_scatter")
    for name in (f"xla_gpu_enable_pipelined_{kind}", f"xla_gpu_pipeline_{kind}")
  ),
  Conflict(
    options=(_FENCING_SLACK, _FENCING),
    holds=lambda v: v[_FENCING] == -1 and v[_FENCING_SLACK] != 1,
    # NVIDIA/JAX-Toolbox#2242
    text=f"It has no effect while {_FENCING} is off.",
  ),
  Conflict(
    options=(_DOUBLE_BUFFERING, _UNROLLING),
    holds=lambda v: (
      v[_DOUBLE_BUFFERING] is True
      and v[_UNROLLING] == "WHILE_LOOP_UNROLLING_FULL_UNROLL"
    ),
    # xla/service/gpu/gpu_compiler.cc, AddDoubleBufferingPasses
    text="Full unrolling overrides double buffering; keep one of the two.",
  ),
  Conflict(
    options=(_SCHEDULER, _OFF_PASSES),
    holds=lambda v: (
      v[_SCHEDULER] is True
      and "latency-hiding-scheduler" in str(v[_OFF_PASSES]).split(",")
    ),
    text="The scheduler is both enabled and disabled; keep one of the two.",
  ),
  Conflict(
    options=(_DECOMPOSING, _PIPELINED_P2P, _PIPELINE_LEVEL),
    holds=lambda v: (
      v[_DECOMPOSING] != 2**63 - 1
      and v[_PIPELINED_P2P] is False
      and v[_PIPELINE_LEVEL] == "PIPELINE_PARALLELISM_OPT_LEVEL_DISABLE"
    ),
    text="Collective permutes are decomposed only for pipelining; add"
    f" --{_PIPELINED_P2P}=true, or remove the threshold.",
  ),
  *(
    Conflict(
      options=(name, "xla_dump_to"),
      holds=lambda v, name=name: (
        v[name] not in ("", False, -1)
        and not v["xla_dump_to"]
        and not any(v[it] for it in _DUMPED_AS)
      ),
      # CanonicalDebugOptions in xla/service/dump.cc
      text="Nothing is dumped; add --xla_dump_to=FOLDER.",
    )
    for name in (
      *("xla_dump_hlo_pass_re", "xla_dump_hlo_module_re"),
      *("xla_dump_hlo_pipeline_re", "xla_dump_max_hlo_modules"),
      *("xla_dump_include_timestamp", "xla_dump_compress_protos"),
    )
  ),
  Conflict(
    options=("xla_gpu_exhaustive_tiling_search", _AUTOTUNE),
    holds=lambda v: (
      v["xla_gpu_exhaustive_tiling_search"] is True and v[_AUTOTUNE] == 0
    ),
    text=f"--{_AUTOTUNE}=0 disables the search of tilings.",
  ),
  Conflict(
    options=("xla_gpu_triton_gemm_any", "xla_gpu_enable_triton_gemm"),
    holds=lambda v: (
      v["xla_gpu_triton_gemm_any"] is False
      and v["xla_gpu_enable_triton_gemm"] is False
    ),
    text="Triton is off for all matmuls; keep one of the two.",
  ),
  Conflict(
    options=("xla_gpu_graph_min_graph_size", "xla_gpu_enable_command_buffer"),
    holds=lambda v: (
      v["xla_gpu_graph_min_graph_size"] != 5
      and not v["xla_gpu_enable_command_buffer"]
    ),
    text="It has no effect without command buffers; keep one of the two.",
  ),
  Conflict(
    options=(_COMPLETE_RESULTS, "xla_gpu_load_autotune_results_from"),
    holds=lambda v: (
      v[_COMPLETE_RESULTS] is True
      and not v["xla_gpu_load_autotune_results_from"]
    ),
    text="It makes every compile fail, as no autotuning results are loaded; add"
    " --xla_gpu_load_autotune_results_from=FILE.",
  ),
  Conflict(
    options=(_EINSUM_MIB, _EINSUM_BYTES),
    holds=lambda v: v[_EINSUM_MIB] != 100000 and int(v[_EINSUM_BYTES]) >= 0,
    # The help text of the second.
    text="The threshold in operand bytes overrides the one in MiB; keep one.",
  ),
)
