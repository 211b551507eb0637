# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Shapes of Mixture-of-Experts models.

"olmoe-1b-7b" has the shape of OLMoE-1B-7B's `config.json` (arXiv 2409.02060),
but not its norms of queries and keys.
"""

from __future__ import annotations

import dataclasses
import math

from llama.config import LlamaConfig
from llama.config import sized


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class MoeConfig(LlamaConfig):
  """The shape of a decoder whose feed-forward layers are experts.

  Attributes:
    d_ffn: Width of one expert's hidden layer.
    num_experts: Experts in a layer.
    num_chosen: Experts that each token goes to.
    capacity_factor: Most tokens of a sequence that an expert takes, relative to
      an even share; it drops the rest.
    balance_weight: Weight of the loss that keeps experts equally busy.
    z_weight: Weight of the loss that keeps the router's logits small.
  """

  num_experts: int
  num_chosen: int
  capacity_factor: float = 1.25
  balance_weight: float = 0.01
  z_weight: float = 0.001

  def capacity(self, seq_len: int) -> int:
    """Returns the most tokens of one sequence that an expert takes."""
    share = seq_len * self.num_chosen / self.num_experts
    return math.ceil(self.capacity_factor * share)

  def num_layer_params(self) -> int:
    """Returns the parameters of one decoder layer."""
    one_expert = 3 * self.d_model * self.d_ffn
    router = self.d_model * self.num_experts
    # Without the feed-forward layer that the experts replace.
    rest = LlamaConfig.num_layer_params(self) - one_expert
    return rest + self.num_experts * one_expert + router


SIZES: dict[str, MoeConfig] = {
  "tiny": MoeConfig(
    num_layers=2,
    d_model=128,
    num_heads=8,
    num_kv_heads=8,
    head_dim=16,
    d_ffn=64,
    num_experts=16,
    num_chosen=2,
    vocab_size=256,
    seq_len=64,
  ),
  "olmoe-1b-7b": MoeConfig(
    num_layers=16,
    d_model=2048,
    num_heads=16,
    num_kv_heads=16,
    head_dim=128,
    d_ffn=1024,
    num_experts=64,
    num_chosen=8,
    vocab_size=50304,
    rope_theta=10000.0,
  ),
}


def moe_config(
  size: str, *, layers: str = "scan", num_layers: int = 0
) -> MoeConfig:
  """Returns the config of a named size.

  Args:
    size: A key of SIZES.
    layers: "scan" or "unroll".
    num_layers: Decoder layers; 0 for the size's own.

  Raises:
    ValueError: The size or the kind of layers does not exist.
  """
  return sized(SIZES, size, layers=layers, num_layers=num_layers)
