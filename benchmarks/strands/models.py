# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Models that strands are judged on, where they are not published ones."""

from __future__ import annotations

import dataclasses

from benchmarks.workloads import architectures

_HEAD_DIM = 128


def part_of(name: str, num_layers: int) -> architectures.Architecture:
  """So many layers of a published model, with its embedding and head."""
  whole = architectures.ARCHITECTURES[name]
  return dataclasses.replace(whole, num_layers=num_layers)


def gpt_25b() -> architectures.Architecture:
  """A GPT with 25 thousand million parameters.

  DHelix (arXiv 2411.15871) ran models of that size on 64 A40s, 8 data-parallel
  by 8 tensor-parallel. Their widths and depths are not public; these are ours.
  """
  num_layers, width, vocab_size = 54, 6144, 50304
  # Products; their biases and the norms' scales and biases; the final norm's.
  in_layer = 12 * width**2 + 9 * width + 4 * width
  return architectures.Architecture(
    num_layers=num_layers,
    d_model=width,
    num_heads=48,
    num_kv_heads=48,
    head_dim=_HEAD_DIM,
    d_ffn=4 * width,
    vocab_size=vocab_size,
    num_params=num_layers * in_layer + 2 * width + vocab_size * (2 * width + 1),
    norm="layer",
    norm_has_bias=True,
    has_bias=True,
    is_gated=False,
  )


def dhellam_demo() -> architectures.Architecture:
  """The model that DHelix's authors ship with their code.

  8 layers as wide as Llama 3.1 70B's with attention of as many key as query
  heads, and Llama 2's vocabulary (DHeLlam, script/run.sh at commit 4834e95).
  """
  return _llama_like(
    num_layers=8,
    width=8192,
    num_heads=64,
    num_kv_heads=64,
    d_ffn=28672,
    vocab_size=32000,
  )


def qwen3_14b_like() -> architectures.Architecture:
  """Qwen3-14B (its config.json) without the norms of queries and keys.

  TWIST, DHelix rebuilt for Hopper, was measured on such a one, which had no
  rotary embedding either; here that is left in.
  """
  return _llama_like(
    num_layers=40,
    width=5120,
    num_heads=40,
    num_kv_heads=8,
    d_ffn=17408,
    vocab_size=151936,
  )


def _llama_like(
  *,
  num_layers: int,
  width: int,
  num_heads: int,
  num_kv_heads: int,
  d_ffn: int,
  vocab_size: int,
) -> architectures.Architecture:
  """A decoder with SwiGLU and RMSNorm, and heads as wide as Llama's."""
  attention = 2 * width * (num_heads + num_kv_heads) * _HEAD_DIM
  in_layer = attention + 3 * width * d_ffn + 2 * width
  return architectures.Architecture(
    num_layers=num_layers,
    d_model=width,
    num_heads=num_heads,
    num_kv_heads=num_kv_heads,
    head_dim=_HEAD_DIM,
    d_ffn=d_ffn,
    vocab_size=vocab_size,
    num_params=num_layers * in_layer + width + 2 * vocab_size * width,
  )
