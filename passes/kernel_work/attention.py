# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fused attention: library calls that multiply queries, keys and values.

How many scores there are, and which of them a mask leaves out, is in a call's
attributes: in cuDNN's config (JAX's fused_attention_stablehlo.py writes it),
and in those of Transformer Engine, where masks have the numbers of
NVTE_Mask_Type (transformer_engine/fused_attn.h). Others show shapes alone.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import re
from typing import Any

from lagom_xla.passes import hlo

TARGETS = ("__cudnn$fmha", "te_fused_attn", "cudnn_fmha")

_ATTRIBUTE = re.compile(rb"(\w+) = (-?\d+) : i64")
_CAUSAL, _BOTTOM_RIGHT = (2, 3, 4, 5), (4, 5)
# What Transformer Engine says of the scores; another version of it may not.
_OF_SCORES = frozenset(
  ("mask_type", "input_batch", "attn_heads", "q_max_seqlen", "kv_max_seqlen")
)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Scores:
  """Queries by keys, with the mask on them.

  Attributes:
    num: of such squares: batch times heads.
    length: queries.
    key_length: keys.
    is_causal: whether query i sees the keys up to i only.
    is_bottom_right: whether the last query sees the last key in any case.
    window: keys that a query sees at most; 0 for all.
  """

  num: int
  length: int
  key_length: int
  is_causal: bool
  is_bottom_right: bool = False
  window: int = 0

  @property
  def num_left(self) -> int:
    """Scores that the mask leaves."""
    length, keys = self.length, self.key_length
    window = self.window or keys
    if not self.is_causal:
      return self.num * length * keys
    if self.is_bottom_right and keys > length:
      left = length * keys - length * length // 2
      return self.num * min(left, length * window)
    most = min(length, keys, window)
    return self.num * most * (2 * length - most) // 2


def is_backward(call: hlo.Instruction) -> bool:
  """Whether a call is the gradient of one."""
  return "ackward" in call.custom_call_target


def flops(
  module: hlo.Module, call: hlo.Instruction, query: hlo.Shape, key: hlo.Shape
) -> int:
  """Operations of a call, for the scores that its mask leaves.

  Forward is two products, backward five (Dao 2022, FlashAttention, sec. 3.1).

  Args:
    module: that it is in.
    call: of one of `TARGETS`.
    query: its first operand, with the size of a head last.
    key: its second operand.

  Returns:
    0 where neither attributes nor shapes tell.
  """
  fmha = module.backend_config(call).get("cudnn_fmha_backend_config")
  found = _ATTRIBUTE.findall(module.raw_backend_config(call))
  attributes = {name.decode(): int(value) for name, value in found}
  if fmha is not None:
    scores = _of_cudnn(fmha)
  elif attributes.keys() >= _OF_SCORES:
    scores = _of_transformer_engine(attributes)
  else:
    scores = _of_shapes(query, key)
  if scores is None:
    return 0
  products = 5 if is_backward(call) else 2
  return products * 2 * scores.num_left * query.dimensions[-1]


def _of_cudnn(fmha: Mapping[str, Any]) -> _Scores:
  shape = fmha["intermediate_tensor_shape"]["dimensions"]
  batch, heads, length, key_length = map(int, shape)
  return _Scores(
    num=batch * heads,
    length=length,
    key_length=key_length,
    is_causal="CAUSAL" in fmha.get("mask_type", ""),
    window=int(fmha.get("sliding_window_length", 0)),
  )


def _of_transformer_engine(attributes: Mapping[str, int]) -> _Scores:
  mask = attributes["mask_type"]
  return _Scores(
    num=attributes["input_batch"] * attributes["attn_heads"],
    length=attributes["q_max_seqlen"],
    key_length=attributes["kv_max_seqlen"],
    is_causal=mask in _CAUSAL,
    is_bottom_right=mask in _BOTTOM_RIGHT,
    window=attributes.get("window_size_left", -1) + 1,
  )


def _of_shapes(query: hlo.Shape, key: hlo.Shape) -> _Scores | None:
  """Of [batch, length, heads, size]; causal if queries and keys are as long."""
  if len(query.dimensions) != 4 or len(key.dimensions) < 4:
    return None
  batch, length, heads, _ = query.dimensions
  key_length = key.dimensions[1]
  return _Scores(
    num=batch * heads,
    length=length,
    key_length=key_length,
    is_causal=length == key_length,
  )
