# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Library calls, by name and attributes: what is told of what they do.

A call's name says whose it is. XLA's own libraries (cuBLAS, cuDNN, cuSOLVER and
so on), kernels that XLA generates, host callbacks and most of Transformer
Engine's calls work on what one device holds. Of Transformer Engine's,
CollectiveGemm says in an attribute that it gathers or scatters
(transformer_engine/jax/csrc/extensions/gemm.cpp), and expert parallelism moves
tokens over NCCL (te_ep_*). What any other call does, such as cuDecomp's FFTs or
a user's own, nothing tells.
"""

from __future__ import annotations

from collections.abc import Mapping
import re

from lagom_xla.passes import hlo

# Calls that take about as long as their bytes: sorts, norms, activations,
# quantizations and the like.
_BY_BYTES = (
  *("__cub$", "__cudnn$norm", "__cudnn$softmax", "__gpu$TopK"),
  *("te_act_", "te_dact_", "te_dbias_", "te_dequantize", "te_quantize"),
  *("te_norm_", "te_scaled_", "te_grouped_quantize", "te_rht_amax"),
  *("te_fused_topk", "te_fused_moe_aux", "te_topk", "te_inspect"),
  *("te_grouped_gemm_d2h", "te_layernorm", "te_rmsnorm", "te_gelu"),
)
_LOCAL = (
  *("__cu", "__gpu$", "__triton", "__op$", "te_", "cub_", "cublas_", "cudnn_"),
  *("cufft_", "cusolver_", "cusparse_", "cu_threefry", "cuda_threefry"),
  *("xla_python_", "xla_ffi_python_", "xla_ffi_partitioned_python_"),
)
_COMMUNICATING = ("te_ep_",)

_NUMBER = re.compile(rb"(\w+) = (-?\d+) : i(?:32|64)\b")
_TRUTH = re.compile(rb"(\w+) = (true|false)\b")


def attributes(module: hlo.Module, call: hlo.Instruction) -> Mapping[str, int]:
  """A call's own attributes that are numbers, or true (1) or false (0)."""
  raw = module.raw_backend_config(call)
  found = {name.decode(): int(n) for name, n in _NUMBER.findall(raw)}
  truths = {n.decode(): int(t == b"true") for n, t in _TRUTH.findall(raw)}
  return found | truths


def of_instruction(
  module: hlo.Module, instruction: hlo.Instruction
) -> hlo.Instruction | None:
  """The call that an instruction is, or starts; None if it is none."""
  if instruction.opcode == "async-start":
    called = module.computations[instruction.called_computation_ids[0]]
    return of_instruction(module, called.root)
  return instruction if instruction.opcode == "custom-call" else None


def takes_its_bytes(call: hlo.Instruction) -> bool:
  """Whether a call takes about as long as its bytes do."""
  return call.custom_call_target.startswith(_BY_BYTES)


def may_communicate(module: hlo.Module, call: hlo.Instruction) -> bool:
  """Whether a call may hold collectives: all that nothing tells may."""
  target = call.custom_call_target
  if target.startswith(_COMMUNICATING):
    return True
  if attributes(module, call).get("collective_op", 0):
    return True
  return not target.startswith(_LOCAL)
