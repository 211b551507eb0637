# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What is suggested for published flags and any others sets the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

import flag_effects
from jaxlib_options import IS_NEW
from lagom_xla.flags import check
from lagom_xla.flags import syntax

# What MaxText's a3/llama_3.1_405b/128vm.sh sets (without --xla_dump_to).
_MAXTEXT = """
--xla_gpu_enable_latency_hiding_scheduler=true
--xla_gpu_enable_triton_gemm=false --xla_gpu_graph_level=0
--xla_gpu_enable_highest_priority_async_stream=true
--xla_gpu_all_reduce_combine_threshold_bytes=1073741824
--xla_gpu_all_gather_combine_threshold_bytes=134217728
--xla_gpu_reduce_scatter_combine_threshold_bytes=134217728
--xla_gpu_enable_pipelined_all_gather=true
--xla_gpu_enable_pipelined_reduce_scatter=true
--xla_gpu_enable_pipelined_all_reduce=true
--xla_gpu_enable_while_loop_double_buffering=true
--xla_gpu_enable_all_gather_combine_by_dim=false
--xla_gpu_enable_reduce_scatter_combine_by_dim=false
--xla_disable_hlo_passes=rematerialization
"""
# What JAX-Toolbox's rosetta/docs/GPU_performance.md lists.
_JAX_TOOLBOX = """
--xla_gpu_enable_async_collectives=true
--xla_gpu_enable_highest_priority_async_stream=true
--xla_gpu_all_reduce_combine_threshold_bytes=51200
--xla_gpu_all_reduce_combine_threshold_bytes=8589934592
--xla_gpu_all_gather_combine_threshold_bytes=8589934592
--xla_gpu_reduce_scatter_combine_threshold_bytes=8589934592
--xla_gpu_enable_all_gather_combine_by_dim=false
--xla_gpu_enable_reduce_scatter_combine_by_dim=false
--xla_gpu_enable_pipelined_p2p=false
--xla_gpu_collective_permute_decomposer_threshold=33521664
--xla_gpu_enable_nccl_user_buffers
--xla_gpu_enable_nccl_comm_splitting
--xla_gpu_enable_nccl_per_stream_comms
--xla_gpu_enable_custom_fusions=true
--xla_gpu_enable_pipelined_all_gather=true
--xla_gpu_enable_pipelined_reduce_scatter=true
--xla_gpu_enable_pipelined_all_reduce=true
--xla_gpu_enable_pipelined_collectives=false
--xla_gpu_enable_while_loop_double_buffering=true
--xla_gpu_multi_streamed_windowed_einsum=true
--xla_gpu_threshold_for_windowed_einsum_mib=0
--xla_gpu_enable_xla_runtime_executable=true
--xla_gpu_enable_latency_hiding_scheduler=true
--xla_gpu_enable_triton_gemm=false
--xla_gpu_enable_triton_softmax_fusion=false
--xla_gpu_cudnn_gemm_fusion
--xla_gpu_lhs_enable_gpu_async_tracker=false
"""


def test_maxtexts_flags_end_a_process_over_one_of_them():
  report = check.check(_MAXTEXT)
  kinds = flag_effects.kinds(report)
  assert kinds.pop("xla_gpu_graph_level") == "unknown"
  assert set(kinds.values()) == (
    {"default", "renamed"} if IS_NEW else {"default"}
  )
  assert kinds["xla_gpu_enable_highest_priority_async_stream"] == "default"
  found = flag_effects.values(report.suggestion)
  alive = flag_effects.values(_MAXTEXT.replace("--xla_gpu_graph_level=0", ""))
  assert found == {**alive, "xla_gpu_enable_command_buffer": ""}


def test_jax_toolboxs_flags_end_a_process_over_eight_of_them():
  report = check.check(_JAX_TOOLBOX)
  kinds = flag_effects.kinds(report)
  unknown = {name for name, kind in kinds.items() if kind == "unknown"}
  assert unknown == {
    "xla_gpu_cudnn_gemm_fusion",
    "xla_gpu_enable_async_collectives",
    "xla_gpu_enable_custom_fusions",
    "xla_gpu_enable_nccl_per_stream_comms",
    "xla_gpu_enable_pipelined_collectives",
    "xla_gpu_enable_triton_softmax_fusion",
    "xla_gpu_enable_xla_runtime_executable",
    "xla_gpu_lhs_enable_gpu_async_tracker",
  }
  assert kinds["xla_gpu_all_reduce_combine_threshold_bytes"] == "duplicate"
  assert (
    kinds["xla_gpu_collective_permute_decomposer_threshold"] == "contradiction"
  )
  assert kinds["xla_gpu_enable_nccl_comm_splitting"] == "default"
  assert not check.check(report.suggestion).is_fatal


@settings(max_examples=15)
@given(st.lists(flag_effects.SOME, max_size=5))
def test_what_is_suggested_sets_the_same_in_no_more_flags(flags: list[str]):
  report = check.check(" ".join(flags))
  assert flag_effects.sets(report.suggestion) == flag_effects.sets(
    " ".join(flags)
  )
  assert len(syntax.parse(report.suggestion)[0]) <= len(flags)
  again = check.check(report.suggestion)
  assert {f.kind for f in again.findings} <= {"contradiction"}
