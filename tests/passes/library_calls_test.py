# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Which library calls may hold collectives."""

from __future__ import annotations

from typing import Any

import jax
from jax.experimental.pallas import mosaic_gpu as plgpu
import jax.numpy as jnp
import pytest

import hlo_text
from lagom_xla.passes import hlo
from lagom_xla.passes import library_calls


def _may_communicate(module: hlo.Module) -> bool:
  (call,) = (i for i in module.entry.instructions if i.opcode == "custom-call")
  return library_calls.may_communicate(module, call)


@pytest.mark.parametrize(
  ("target", "expected"),
  [
    ("__cublas$lt$matmul", False),
    ("__cudnn$fmhaSoftmax", False),
    ("__gpu$xla.gpu.triton", False),
    ("cu_lu_pivots_to_permutation", False),
    ("cusolver_potrf_ffi", False),
    ("cusparse_gtsv2_f32", False),
    ("te_dact_dbias_quantize_ffi", False),
    ("te_fused_attn_score_mod_backward_ffi", False),
    ("te_gemm_v2_ffi", False),
    ("te_norm_forward_v3_ffi", False),
    ("triton_kernel_call", False),
    ("__cublasMp$matmul", True),
    ("cufftmp_forward", True),
    ("cusolver_mp_potrf_ffi", True),
    ("mpi_allreduce_ffi", True),
    ("nvshmem_put", True),
    ("te_collective_gemm_ffi", True),
    ("te_ep_combine_bwd_ffi", True),
    ("te_gemm_all_gather_ffi", True),
    ("te_userbuffers_gemm", True),
    ("users_own_call", True),
  ],
)
def test_calls_may_communicate_unless_their_names_are_known_as_local(
  target: str, expected: bool
) -> None:
  module = hlo_text.load(
    f"""
      x = f32[64] parameter(0)
      ROOT y = f32[64] custom-call(x), custom_call_target="{target}"
    """
  )
  assert _may_communicate(module) == expected


def test_a_mosaic_kernel_that_only_copies_does_not_communicate() -> None:
  array = jax.ShapeDtypeStruct((128,), jnp.float32)

  def copies(x_ref, y_ref):
    y_ref[...] = x_ref[...]

  step = jax.jit(plgpu.kernel(copies, out_type=array))
  lowered = step.trace(array).lower(lowering_platforms=("cuda",))
  computation: Any = lowered.compiler_ir("hlo")
  module = hlo.load(computation.as_serialized_hlo_module_proto())
  assert not _may_communicate(module)
