# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The Llama decoder in Flax, with a name for every axis of every array.

Parameters are in float32. Each layer casts its own to bfloat16 and then gathers
them (`sharding.gather`). So a scanned model holds the weights of one layer at a
time, and the gathers can hide behind that layer's matrix products.

Shapes below: B sequences of S tokens, D = d_model, H = head_dim.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flax import linen as nn
import jax
import jax.numpy as jnp

from common import sharding
from llama.config import LlamaConfig

_COMPUTE_DTYPE = jnp.bfloat16


class Part(nn.Module):
  """Base of all parts: the shape, the mesh and the declaration of weights."""

  config: LlamaConfig
  mesh: jax.sharding.Mesh

  def weight(
    self,
    name: str,
    shape: tuple[int, ...],
    axes: sharding.AxisNames,
    init: nn.initializers.Initializer = nn.initializers.normal(0.02),
  ) -> jax.Array:
    """Declares a float32 parameter; returns it in bfloat16, gathered."""
    boxed_init: Callable[..., Any] = nn.with_logical_partitioning(init, axes)
    stored = self.param(name, boxed_init, shape, jnp.float32)
    return sharding.gather(stored.astype(_COMPUTE_DTYPE), axes, self.mesh)

  def constrain(self, x: jax.Array, axes: sharding.AxisNames) -> jax.Array:
    """Lays x out over the mesh by its axis names."""
    return sharding.constrain(x, axes, self.mesh)

  def split(self, x: jax.Array) -> jax.Array:
    """Lays [B, S, D] out as the residual stream."""
    sequence = "sequence" if self.config.sequence_parallel else None
    return self.constrain(x, ("batch", sequence, None))

  def whole(self, x: jax.Array) -> jax.Array:
    """Gathers the sequences of [B, S, D], if `tp` splits them."""
    return self.constrain(x, ("batch", None, None))


class RMSNorm(Part):
  """Scales each token to unit mean square (arXiv 1910.07467, equation 4)."""

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    scale = self.weight(
      "scale", (self.config.d_model,), ("embed",), nn.initializers.ones
    )
    wide = x.astype(jnp.float32)
    mean_square = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
    unit = wide * jax.lax.rsqrt(mean_square + self.config.norm_epsilon)
    return unit.astype(x.dtype) * scale


def rotate(x: jax.Array, theta: float) -> jax.Array:
  """Applies rotary position embeddings (arXiv 2104.09864, §3.2.2).

  Args:
    x: Queries or keys [B, S, heads, H]; feature i is paired with i + H / 2.
    theta: Base of the frequencies.
  """
  seq_len, head_dim = x.shape[1], x.shape[-1]
  exponents = jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim
  angles = jnp.arange(seq_len)[:, None] * theta**-exponents
  cos, sin = jnp.cos(angles)[:, None, :], jnp.sin(angles)[:, None, :]
  first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
  turned = (first * cos - second * sin, second * cos + first * sin)
  return jnp.concatenate(turned, axis=-1).astype(x.dtype)


class Attention(Part):
  """Causal attention with grouped key and value heads (arXiv 2305.13245)."""

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    c = self.config
    query = self._heads("query", x, c.num_heads, "heads")
    key = self._heads("key", x, c.num_kv_heads, "kv_heads")
    value = self._heads("value", x, c.num_kv_heads, "kv_heads")
    mixed = jax.nn.dot_product_attention(
      rotate(query, c.rope_theta),
      rotate(key, c.rope_theta),
      value,
      is_causal=True,
      implementation="xla",
    )
    mixed = self.constrain(mixed, ("batch", None, "heads", None))
    output = self.weight(
      "output",
      (c.num_heads, c.head_dim, c.d_model),
      ("heads", "head_dim", "embed"),
    )
    return jnp.einsum("bsnh,nhd->bsd", mixed, output)

  def _heads(
    self, name: str, x: jax.Array, num_heads: int, axis: str
  ) -> jax.Array:
    """Projects x to heads [B, S, num_heads, H]."""
    c = self.config
    projection = self.weight(
      name,
      (c.d_model, num_heads, c.head_dim),
      ("embed", axis, "head_dim"),
    )
    heads = jnp.einsum("bsd,dnh->bsnh", x, projection)
    return self.constrain(heads, ("batch", None, axis, None))


class SwiGLU(Part):
  """The gated feed-forward layer (arXiv 2002.05202, equation 6)."""

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    c = self.config
    gate = self.weight("gate", (c.d_model, c.d_ffn), ("embed", "ffn"))
    up = self.weight("up", (c.d_model, c.d_ffn), ("embed", "ffn"))
    down = self.weight("down", (c.d_ffn, c.d_model), ("ffn", "embed"))
    hidden = nn.silu(x @ gate) * (x @ up)
    return self.constrain(hidden, ("batch", None, "ffn")) @ down


class Layer(Part):
  """One decoder layer, in the (carry, output) form of nn.scan."""

  ffn: type[Part] = SwiGLU

  @nn.compact
  def __call__(self, x: jax.Array) -> tuple[jax.Array, None]:
    c, mesh = self.config, self.mesh
    attended = Attention(c, mesh, name="attention")(
      self.whole(RMSNorm(c, mesh, name="attention_norm")(x))
    )
    x += self.split(attended)
    fed_forward = self.ffn(c, mesh, name="ffn")(
      self.whole(RMSNorm(c, mesh, name="ffn_norm")(x))
    )
    return x + self.split(fed_forward), None


class Llama(Part):
  """Token ids [B, S] to float32 logits [B, S, vocab_size].

  Attributes:
    ffn: The second half of each layer, [B, S, D] to [B, S, D].
  """

  ffn: type[Part] = SwiGLU

  @nn.compact
  def __call__(self, tokens: jax.Array) -> jax.Array:
    c = self.config
    embedding = self.weight(
      "embedding", (c.vocab_size, c.d_model), ("vocab", "embed")
    )
    # Gathered first, so that in the backward pass each device sums the gradient
    # of its own rows of the embedding over all tokens.
    embedded = self.whole(jnp.take(embedding, tokens, axis=0))
    x = self._layers(self.split(embedded))
    x = self.whole(RMSNorm(c, self.mesh, name="final_norm")(x))
    head = self.weight("head", (c.d_model, c.vocab_size), ("embed", "vocab"))
    logits = self.constrain(x @ head, ("batch", None, "vocab"))
    return logits.astype(jnp.float32)

  def _layers(self, x: jax.Array) -> jax.Array:
    c = self.config
    scanned = c.layers == "scan"
    # A loop body is a barrier by itself. In unrolled layers, common
    # subexpression elimination would merge the recomputation into the forward
    # pass.
    layer = nn.remat(Layer, prevent_cse=not scanned) if c.remat else Layer
    if scanned:
      stack = nn.scan(
        layer,
        variable_axes={"params": 0, "losses": 0},
        split_rngs={"params": True},
        length=c.num_layers,
        metadata_params={nn.PARTITION_NAME: "layers"},
      )
      return stack(c, self.mesh, self.ffn, name="layers")(x)[0]
    for index in range(c.num_layers):
      x, _ = layer(c, self.mesh, self.ffn, name=f"layer_{index}")(x)
    return x
