# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What library calls do, judging by their names and attributes.

A call may communicate unless its name marks it as local. Calls of XLA's own
libraries and kernels are local, and so are those whose names consist of words
that local calls of JAX and Transformer Engine use: te_norm_forward_ffi is,
te_userbuffers_gemm and te_ep_dispatch_ffi are not.
Transformer Engine's CollectiveGemm says in an attribute that it gathers or
scatters (transformer_engine/jax/csrc/extensions/gemm.cpp), and Mosaic's kernels
say whether they reach other devices (jax/experimental/mosaic/gpu/core.py).
"""

from __future__ import annotations

from collections.abc import Mapping
import re

from lagom_xla.passes import hlo

# Calls limited by memory: sorts, norms, activations, quantizations and the
# like.
_BY_BYTES = (
  *("__cub$", "__cudnn$norm", "__cudnn$softmax", "__gpu$TopK"),
  *("te_act_", "te_dact_", "te_dbias_", "te_dequantize", "te_quantize"),
  *("te_norm_", "te_scaled_", "te_grouped_quantize", "te_rht_amax"),
  *("te_fused_topk", "te_fused_moe_aux", "te_topk", "te_inspect"),
  *("te_grouped_gemm_d2h", "te_layernorm", "te_rmsnorm", "te_gelu"),
)
# XLA's libraries and generated kernels, jax_triton's, and host callbacks.
_LOCAL = (
  *("__cub$", "__cublas$", "__cudnn$", "__cusolver$", "__gpu$", "__op$"),
  *("__triton", "triton_kernel_call", "xla_python_", "xla_ffi_python_"),
  *("xla_ffi_partitioned_python_",),
)
# Words in the names of local calls, without endings such as "ffi" and "v2".
_LOCAL_WORDS = frozenset(
  # Transformer Engine 0.8 to main of 2026-08, transformer_engine/jax.
  (
    "te act amax attn aux backward bias cast cross d2h dact dbias dequantize"
    " dgated dgelu forward fp8 function fused gated gelu gemm group grouped"
    " inspect layernorm loss lu masked mod moe norm quantize rht rmsnorm scaled"
    " score self sizes softmax topk transpose triang upper with"
    # jax/_src, 0.4 to 0.12: linear algebra, sparse arrays, RNNs, random bits.
    " cu cuda cub cublas cudnn cusolver cusparse batched bwd cholesky coo csr"
    " csrlsvqr fromdense geev geqrf gesvd gesvdj gesvdp getrf gtsv2 matmat"
    " matvec orgqr ormqr permutation pivots potrf rnn sort syevd syevj syrk"
    " sytrd threefry2x32 to todense trsm update"
  ).split()
)
_ENDING = re.compile(r"ffi|v\d+|[fscu]\d+")

_NUMBER = re.compile(rb"(\w+) = (-?\d+) : i(?:32|64)\b")
_TRUTH = re.compile(rb"(\w+) = (true|false)\b")


def attributes(module: hlo.Module, call: hlo.Instruction) -> Mapping[str, int]:
  """A call's attributes that are numbers or booleans (1 for true)."""
  raw = module.raw_backend_config(call)
  found = {name.decode(): int(n) for name, n in _NUMBER.findall(raw)}
  truths = {n.decode(): int(t == b"true") for n, t in _TRUTH.findall(raw)}
  return found | truths


def of_instruction(
  module: hlo.Module, instruction: hlo.Instruction
) -> hlo.Instruction | None:
  """The library call that an instruction is or starts, if any."""
  if instruction.opcode == "async-start":
    called = module.computations[instruction.called_computation_ids[0]]
    return of_instruction(module, called.root)
  return instruction if instruction.opcode == "custom-call" else None


def takes_its_bytes(call: hlo.Instruction) -> bool:
  """Whether a call takes about as long as moving its bytes."""
  return call.custom_call_target.startswith(_BY_BYTES)


def may_communicate(module: hlo.Module, call: hlo.Instruction) -> bool:
  """Whether a call may hold collectives; true unless its name rules it out."""
  target, told = call.custom_call_target, attributes(module, call)
  if target.startswith("mosaic_gpu"):
    raw = module.raw_backend_config(call)
    return bool(
      told.get("uses_xla_collective_metadata", 1)
      or b"xla_replica_ids" in raw
      or b"nvshmem" in raw
    )
  if told.get("collective_op", 0):
    return True
  return not target.startswith(_LOCAL) and not all(
    word in _LOCAL_WORDS or _ENDING.fullmatch(word)
    for word in target.split("_")
  )
