# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The perceptron that predicts the next byte from those before it.

Embeddings of the last bytes are concatenated and go through hidden layers (as
in "A Neural Probabilistic Language Model", Bengio et al. 2003). All in float32.
"""

from __future__ import annotations

import dataclasses

from flax import linen as nn
import jax

_VOCAB_SIZE = 256


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class MlpConfig:
  """The shape of one perceptron."""

  context: int
  d_embed: int
  d_hidden: int
  num_layers: int


SIZES: dict[str, MlpConfig] = {
  "tiny": MlpConfig(context=16, d_embed=16, d_hidden=64, num_layers=2),
  "small": MlpConfig(context=32, d_embed=32, d_hidden=1024, num_layers=4),
  "large": MlpConfig(context=64, d_embed=128, d_hidden=8192, num_layers=16),
}


class Mlp(nn.Module):
  """Maps bytes [B, context] to logits of the next byte [B, 256]."""

  config: MlpConfig

  @nn.compact
  def __call__(self, tokens: jax.Array) -> jax.Array:
    c = self.config
    x = nn.Embed(_VOCAB_SIZE, c.d_embed)(tokens)
    x = x.reshape(x.shape[0], -1)
    for _ in range(c.num_layers):
      x = nn.relu(nn.Dense(c.d_hidden)(x))
    return nn.Dense(_VOCAB_SIZE)(x)
