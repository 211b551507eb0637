# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The GPT-2 decoder in Flax NNX.

Shapes follow "Language Models are Unsupervised Multitask Learners", table 2,
but tokens are bytes and the head is not tied to the embedding. Parameters are
in float32, products in bfloat16.

Shapes below: B sequences of S tokens, D = d_model.
"""

from __future__ import annotations

import dataclasses

from flax import nnx
import jax
import jax.numpy as jnp

_VOCAB_SIZE = 256


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class GptConfig:
  """The shape of one GPT and of its training sequences."""

  num_layers: int
  d_model: int
  num_heads: int
  seq_len: int


SIZES: dict[str, GptConfig] = {
  "tiny": GptConfig(num_layers=2, d_model=64, num_heads=4, seq_len=64),
  "117m": GptConfig(num_layers=12, d_model=768, num_heads=12, seq_len=1024),
  "1.5b": GptConfig(num_layers=48, d_model=1600, num_heads=25, seq_len=1024),
}


class Attention(nnx.Module):
  """Causal self-attention."""

  def __init__(self, config: GptConfig, *, rngs: nnx.Rngs):
    self.num_heads = config.num_heads
    self.qkv = _linear(config.d_model, 3 * config.d_model, rngs)
    self.out = _linear(config.d_model, config.d_model, rngs)

  def __call__(self, x: jax.Array) -> jax.Array:
    """Mixes tokens; [B, S, D] in and out."""
    heads = (*x.shape[:-1], self.num_heads, -1)
    q, k, v = (t.reshape(heads) for t in jnp.split(self.qkv(x), 3, axis=-1))
    mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    return self.out(mixed.reshape(x.shape))


class Layer(nnx.Module):
  """Attention and a feed-forward network, each after a norm."""

  def __init__(self, config: GptConfig, *, rngs: nnx.Rngs):
    width = config.d_model
    self.attention_norm = nnx.LayerNorm(width, rngs=rngs)
    self.attention = Attention(config, rngs=rngs)
    self.ffn_norm = nnx.LayerNorm(width, rngs=rngs)
    self.up = _linear(width, 4 * width, rngs)
    self.down = _linear(4 * width, width, rngs)

  def __call__(self, x: jax.Array) -> jax.Array:
    """Adds to the residual stream; [B, S, D] in and out."""
    x = x + self.attention(self.attention_norm(x))
    return x + self.down(jax.nn.gelu(self.up(self.ffn_norm(x))))


class Gpt(nnx.Module):
  """A decoder of bytes."""

  def __init__(self, config: GptConfig, *, rngs: nnx.Rngs):
    self.tokens = nnx.Embed(_VOCAB_SIZE, config.d_model, rngs=rngs)
    self.positions = nnx.Embed(config.seq_len, config.d_model, rngs=rngs)
    self.layers = nnx.List(
      Layer(config, rngs=rngs) for _ in range(config.num_layers)
    )
    self.norm = nnx.LayerNorm(config.d_model, rngs=rngs)
    self.head = _linear(config.d_model, _VOCAB_SIZE, rngs)

  def __call__(self, tokens: jax.Array) -> jax.Array:
    """Maps tokens int32 [B, S] to logits float32 [B, S, 256]."""
    x = self.tokens(tokens) + self.positions(jnp.arange(tokens.shape[-1]))
    for layer in self.layers:
      x = layer(x)
    return self.head(self.norm(x)).astype(jnp.float32)


def _linear(num_in: int, num_out: int, rngs: nnx.Rngs) -> nnx.Linear:
  return nnx.Linear(num_in, num_out, dtype=jnp.bfloat16, rngs=rngs)
