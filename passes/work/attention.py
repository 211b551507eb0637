# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fused attention: library calls that multiply queries, keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lagom_xla.passes import hlo

TARGETS = ("__cudnn$fmha", "te_fused_attn", "cudnn_fmha")


def is_backward(call: hlo.Instruction) -> bool:
  """Whether a call is the gradient of one."""
  return "ackward" in call.custom_call_target


def flops(
  call: hlo.Instruction, query: hlo.Shape, key: hlo.Shape, config: _Config
) -> int:
  """Operations of a call, for the scores that its mask leaves.

  Forward is two products, backward five (Dao 2022, FlashAttention, sec. 3.1).

  Args:
    call: of one of `TARGETS`.
    query: [batch, length, heads, size], or as cuDNN's config says.
    key: [batch, key length, ...].
    config: the call's backend_config.
  """
  products = 5 if is_backward(call) else 2
  fmha = config.get("cudnn_fmha_backend_config")
  scores = _scores(query, key) if fmha is None else _scores_of_cudnn(fmha)
  return products * 2 * scores * query.dimensions[-1]


_Config = Mapping[str, Any]


def _scores(query: hlo.Shape, key: hlo.Shape) -> int:
  """By the shapes alone; 0 where they are packed in another way.

  Whether there is a causal mask is in attributes that differ by library, so one
  is assumed where query and key are of one length.
  """
  if len(query.dimensions) != 4 or len(key.dimensions) < 4:
    return 0
  batch, length, heads, _ = query.dimensions
  key_length = key.dimensions[1]
  if key_length == length:
    return batch * heads * length * length // 2
  return batch * heads * length * key_length


def _scores_of_cudnn(fmha: _Config) -> int:
  """By cuDNN's config (JAX's fused_attention_stablehlo.py writes it).

  Under a causal mask query i sees the keys up to i, and of these at most a
  window's.
  """
  shape = fmha["intermediate_tensor_shape"]["dimensions"]
  batch, heads, length, key_length = map(int, shape)
  if "CAUSAL" not in fmha.get("mask_type", ""):
    return batch * heads * length * key_length
  window = int(fmha.get("sliding_window_length", 0)) or key_length
  most = min(length, key_length, window)
  return batch * heads * most * (2 * length - most) // 2
