# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Published decoders as the few figures that tell them apart.

One decoder (`decoder.py`) stands for all of them. What differs is here: sizes,
the norm, where positions enter, whether attention and feed-forward share one
residual branch, and how a feed-forward layer is split into experts. Sizes are
those of each model's own config.json, and `num_params` is what its weights
count to.
"""

from __future__ import annotations

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Experts:
  """A feed-forward layer of routed experts, with some that are always used.

  Attributes:
    num_routed: experts to choose from.
    num_chosen: experts that a token is sent to.
    d_ffn: hidden width of one expert.
    num_shared: experts that every token goes through.
    num_dense_layers: first layers that keep a plain feed-forward layer.
  """

  num_routed: int
  num_chosen: int
  d_ffn: int
  num_shared: int = 0
  num_dense_layers: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Architecture:
  """A decoder.

  Attributes:
    num_layers: decoder layers.
    d_model: width of the residual stream.
    num_heads: query heads.
    num_kv_heads: key and value heads.
    d_ffn: hidden width of a plain feed-forward layer.
    vocab_size: rows of the embedding.
    num_params: parameters, as counted from the published weights.
    head_dim: width of one head.
    norm: "rms" or "layer".
    norm_has_bias: whether a layer norm adds a bias.
    has_bias: whether products add a bias.
    is_gated: SwiGLU; else GELU.
    is_parallel: attention and feed-forward read the same norm and add to the
      same residual.
    is_tied: whether the head is the embedding.
    rotary_dim: features of a head that are rotated; 0 for ALiBi.
    norms_heads: whether all queries and all keys are normed before they are
      rotated.
    experts: None for a dense model.
  """

  num_layers: int
  d_model: int
  num_heads: int
  num_kv_heads: int
  d_ffn: int
  vocab_size: int
  num_params: int
  head_dim: int = 128
  norm: Literal["rms", "layer"] = "rms"
  norm_has_bias: bool = False
  has_bias: bool = False
  is_gated: bool = True
  is_parallel: bool = False
  is_tied: bool = False
  rotary_dim: int = 128
  norms_heads: bool = False
  experts: Experts | None = None


ARCHITECTURES: dict[str, Architecture] = {
  # microsoft/phi-2
  "phi-2": Architecture(
    num_layers=32, d_model=2560, num_heads=32, num_kv_heads=32, d_ffn=10240,
    vocab_size=51200, num_params=2_779_683_840, head_dim=80, norm="layer",
    norm_has_bias=True, has_bias=True, is_gated=False, is_parallel=True,
    rotary_dim=32,
  ),
  # meta-llama/Meta-Llama-3-8B
  "llama-3-8b": Architecture(
    num_layers=32, d_model=4096, num_heads=32, num_kv_heads=8, d_ffn=14336,
    vocab_size=128256, num_params=8_030_261_248,
  ),
  # meta-llama/Meta-Llama-3-70B
  "llama-3-70b": Architecture(
    num_layers=80, d_model=8192, num_heads=64, num_kv_heads=8, d_ffn=28672,
    vocab_size=128256, num_params=70_553_706_496,
  ),
  # mosaicml/mpt-7b
  "mpt-7b": Architecture(
    num_layers=32, d_model=4096, num_heads=32, num_kv_heads=32, d_ffn=16384,
    vocab_size=50432, num_params=6_649_286_656, norm="layer", is_gated=False,
    is_tied=True, rotary_dim=0,
  ),
  # deepseek-ai/deepseek-moe-16b-base
  "deepseek-moe-16b": Architecture(
    num_layers=28, d_model=2048, num_heads=16, num_kv_heads=16, d_ffn=10944,
    vocab_size=102400, num_params=16_375_728_128,
    experts=Experts(
      num_routed=64, num_chosen=6, num_shared=2, d_ffn=1408, num_dense_layers=1
    ),
  ),
  # allenai/OLMoE-1B-7B-0924
  "olmoe-1b-7b": Architecture(
    num_layers=16, d_model=2048, num_heads=16, num_kv_heads=16, d_ffn=1024,
    vocab_size=50304, num_params=6_919_161_856, norms_heads=True,
    experts=Experts(num_routed=64, num_chosen=8, d_ffn=1024),
  ),
  # mistralai/Mixtral-8x7B-v0.1
  "mixtral-8x7b": Architecture(
    num_layers=32, d_model=4096, num_heads=32, num_kv_heads=8, d_ffn=14336,
    vocab_size=32000, num_params=46_702_792_704,
    experts=Experts(num_routed=8, num_chosen=2, d_ffn=14336),
  ),
  # A GPT of the size that DHelix (arXiv 2411.15871) ran on 64 A40s; its widths
  # and depths are not public, these are ours.
  "gpt-25b": Architecture(
    num_layers=54, d_model=6144, num_heads=48, num_kv_heads=48, d_ffn=24576,
    vocab_size=50304, num_params=25_083_692_160, norm="layer",
    norm_has_bias=True, has_bias=True, is_gated=False,
  ),
  # What DHelix's authors ship (DHeLlam, script/run.sh at commit 4834e95): eight
  # layers as wide as Llama 3.1 70B's with as many key as query heads, and Llama
  # 2's vocabulary.
  "dhellam-demo": Architecture(
    num_layers=8, d_model=8192, num_heads=64, num_kv_heads=64, d_ffn=28672,
    vocab_size=32000, num_params=8_309_055_488,
  ),
  # Qwen3-14B (its config.json) without the norms of queries and keys. TWIST,
  # DHelix rebuilt for Hopper, was measured on such a one, which had no rotary
  # embedding either; here that is left in.
  "qwen3-14b": Architecture(
    num_layers=40, d_model=5120, num_heads=40, num_kv_heads=8, d_ffn=17408,
    vocab_size=151936, num_params=14_768_296_960,
  ),
}  # fmt: skip
