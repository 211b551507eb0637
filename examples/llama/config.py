# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Shapes of Llama models.

Sizes with a published counterpart have the shape of that model's `config.json`
(Llama 3.1 8B, 70B and 405B, Llama 3.2 1B and 3B), except that the head is never
tied to the embedding.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
from typing import Literal, TypeVar

_Config = TypeVar("_Config", bound="LlamaConfig")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class LlamaConfig:
  """The shape of one Llama decoder and of its training batches.

  Attributes:
    num_layers: Decoder layers.
    d_model: Width of the residual stream.
    num_heads: Query heads.
    num_kv_heads: Key and value heads, each shared by num_heads / num_kv_heads
      query heads.
    head_dim: Width of one head.
    d_ffn: Width of the SwiGLU hidden layer.
    vocab_size: Rows of the embedding, at least 256 (tokens are bytes).
    seq_len: Tokens per training sequence, by default.
    rope_theta: Base of the rotary frequencies.
    norm_epsilon: Added to the mean square in RMSNorm.
    layers: "scan" for one loop over stacked parameters, "unroll" for a copy of
      the layer's code per layer.
    remat: Whether the backward pass recomputes a layer's activations instead of
      keeping them.
    sequence_parallel: Whether `tp` splits the residual stream along the
      sequence, instead of leaving it whole on every device.
  """

  num_layers: int
  d_model: int
  num_heads: int
  num_kv_heads: int
  head_dim: int
  d_ffn: int
  vocab_size: int = 128256
  seq_len: int = 4096
  rope_theta: float = 500000.0
  norm_epsilon: float = 1e-5
  layers: Literal["scan", "unroll"] = "scan"
  remat: bool = True
  sequence_parallel: bool = False

  def num_layer_params(self) -> int:
    """Returns the parameters of one decoder layer."""
    query_and_output = 2 * self.d_model * self.num_heads * self.head_dim
    key_and_value = 2 * self.d_model * self.num_kv_heads * self.head_dim
    gate_up_and_down = 3 * self.d_model * self.d_ffn
    norms = 2 * self.d_model
    return query_and_output + key_and_value + gate_up_and_down + norms

  def num_params(self) -> int:
    """Returns the parameters of the whole model."""
    embedding = head = self.vocab_size * self.d_model
    layers = self.num_layers * self.num_layer_params()
    final_norm = self.d_model
    return embedding + layers + final_norm + head


SIZES: dict[str, LlamaConfig] = {
  "tiny": LlamaConfig(
    num_layers=2,
    d_model=128,
    num_heads=16,
    num_kv_heads=8,
    head_dim=8,
    d_ffn=256,
    vocab_size=256,
    seq_len=64,
  ),
  "small": LlamaConfig(
    num_layers=8,
    d_model=1024,
    num_heads=16,
    num_kv_heads=8,
    head_dim=64,
    d_ffn=2048,
    vocab_size=16384,
    seq_len=1024,
  ),
  "1b": LlamaConfig(
    num_layers=16,
    d_model=2048,
    num_heads=32,
    num_kv_heads=8,
    head_dim=64,
    d_ffn=8192,
  ),
  "3b": LlamaConfig(
    num_layers=28,
    d_model=3072,
    num_heads=24,
    num_kv_heads=8,
    head_dim=128,
    d_ffn=8192,
  ),
  "8b": LlamaConfig(
    num_layers=32,
    d_model=4096,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    d_ffn=14336,
  ),
  "70b": LlamaConfig(
    num_layers=80,
    d_model=8192,
    num_heads=64,
    num_kv_heads=8,
    head_dim=128,
    d_ffn=28672,
  ),
  "405b": LlamaConfig(
    num_layers=126,
    d_model=16384,
    num_heads=128,
    num_kv_heads=8,
    head_dim=128,
    d_ffn=53248,
  ),
}


def llama_config(
  size: str,
  *,
  layers: str = "scan",
  num_layers: int = 0,
  sequence_parallel: bool = False,
) -> LlamaConfig:
  """Returns the config of a named size.

  Args:
    size: A key of SIZES.
    layers: "scan" or "unroll".
    num_layers: Decoder layers; 0 for the size's own.
    sequence_parallel: Whether `tp` splits the residual stream along the
      sequence.

  Raises:
    ValueError: The size or the kind of layers does not exist.
  """
  config = sized(SIZES, size, layers=layers, num_layers=num_layers)
  return dataclasses.replace(config, sequence_parallel=sequence_parallel)


def sized(
  sizes: Mapping[str, _Config], size: str, *, layers: str, num_layers: int
) -> _Config:
  """Returns the config of a named size; see `llama_config`."""
  if size not in sizes:
    raise ValueError(
      f"There is no model {size!r}: choose one of {', '.join(sizes)}."
    )
  if layers not in ("scan", "unroll"):
    raise ValueError(f"layers is {layers!r}: choose 'scan' or 'unroll'.")
  config = sizes[size]
  return dataclasses.replace(
    config, layers=layers, num_layers=num_layers or config.num_layers
  )
