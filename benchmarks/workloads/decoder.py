# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A decoder in Flax, as one GPU of a layout runs it.

Its layers take a tuple of streams (parts.py). Two streams, halves of one
microbatch, are how DeepSpeed-Domino (arXiv 2409.15241) overlaps tensor
parallelism, and dual-batch overlap expert parallelism.
"""

from __future__ import annotations

from typing import Any, Literal

from flax import linen as nn
import jax
import jax.numpy as jnp

from benchmarks.workloads import parts
from benchmarks.workloads.parts import Streams


class Layer(parts.Part):
  """One decoder layer, in the (carry, output) form that nn.scan asks for."""

  is_dense: bool = True

  @nn.compact
  def __call__(self, xs: Streams) -> tuple[Streams, None]:
    """Adds what the layer computes to each stream."""
    normed_xs = self._norm("attention_norm", xs)
    mixed, bias = parts.Attention(*self.shared, name="attention")(normed_xs)
    if self.arch.is_parallel:
      fed, fed_bias = self._plain("ffn", self.arch.d_ffn, normed_xs)
      both = tuple(m + f for m, f in zip(mixed, fed, strict=True))
      return self._add(xs, both, bias + fed_bias), None
    xs = self._add(xs, mixed, bias)
    normed_xs = self._norm("ffn_norm", xs)
    if self.is_dense:
      return self._add(
        xs, *self._plain("ffn", self.arch.d_ffn, normed_xs)
      ), None
    routed = parts.RoutedExperts(*self.shared, name="experts")(normed_xs)
    after = tuple(x + r for x, r in zip(xs, routed, strict=True))
    experts = self.arch.experts
    assert experts is not None
    if experts.num_shared:
      width = experts.num_shared * experts.d_ffn
      after = self._add(after, *self._plain("shared", width, normed_xs))
    return after, None

  def _norm(self, name: str, xs: Streams) -> Streams:
    normed_xs = parts.Norm(*self.shared, name=name)(xs)
    return tuple(self.layout.enter(x) for x in normed_xs)

  def _plain(self, name: str, d_ffn: int, xs: Streams) -> tuple[Streams, Any]:
    return parts.FeedForward(*self.shared, d_ffn, name=name)(xs)

  def _add(self, xs: Streams, partial: Streams, bias: Any) -> Streams:
    return tuple(
      x + self.layout.leave(p) + bias for x, p in zip(xs, partial, strict=True)
    )


class Decoder(parts.Part):
  """Token ids, one [B, S] per stream, to the mean loss of the next token.

  Attributes:
    kept: what a layer keeps for its backward pass, which computes the rest
      again: "nothing", or "products", with attention among them. Gathered
      weights are never kept.
    layers_per_trip: layers in the body of the loop over layers.
  """

  kept: Literal["nothing", "products"]
  layers_per_trip: int

  @nn.compact
  def __call__(self, tokens: Streams, targets: Streams) -> jax.Array:
    """The loss of this GPU's sequences."""
    arch = self.arch
    tokens = tuple(map(self.layout.sequence_part, tokens))
    targets = tuple(map(self.layout.sequence_part, targets))
    embedding = self.weight(
      "embedding", arch.vocab_size, arch.d_model, model_dim=0
    )
    head = embedding
    if not arch.is_tied:
      head = self.weight("head", arch.vocab_size, arch.d_model, model_dim=0)
    head_bias = self.bias("head_bias", arch.vocab_size, model_dim=0)
    xs = self._layers(tuple(self._embed(embedding, t) for t in tokens))
    xs = parts.Norm(*self.shared, name="final_norm")(xs)
    losses = [
      self._loss(self.layout.enter(x) @ head.T + head_bias, t)
      for x, t in zip(xs, targets, strict=True)
    ]
    return sum(losses, jnp.float32(0)) / len(losses)

  def _layers(self, xs: Streams) -> Streams:
    experts = self.arch.experts
    num_first = experts.num_dense_layers if experts else 0
    for index in range(num_first):
      xs, _ = self._remat(Layer)(*self.shared, name=f"first_{index}")(xs)
    num_layers = self.arch.num_layers - num_first
    stack = nn.scan(
      self._remat(Layer),
      variable_axes={"params": 0},
      split_rngs={"params": True},
      length=num_layers,
      unroll=min(self.layers_per_trip, num_layers),
      metadata_params={nn.PARTITION_NAME: None},
    )
    return stack(*self.shared, experts is None, name="layers")(xs)[0]

  def _remat(self, layer: type[Layer]) -> Any:
    policies = jax.checkpoint_policies
    policy = policies.nothing_saveable
    if self.kept == "products":
      policy = policies.save_from_both_policies(
        policies.dots_with_no_batch_dims_saveable,
        policies.save_only_these_names(parts.MIXED),
      )
    return nn.remat(layer, prevent_cse=False, policy=policy)

  def _embed(self, embedding: jax.Array, tokens: jax.Array) -> jax.Array:
    """Rows of an embedding of which this GPU may hold a part."""
    size = embedding.shape[0]
    local = tokens - self.layout.model_index() * size
    is_here = (local >= 0) & (local < size)
    rows = jnp.take(embedding, jnp.clip(local, 0, size - 1), axis=0)
    return self.layout.leave(jnp.where(is_here[..., None], rows, 0))

  def _loss(self, logits: jax.Array, targets: jax.Array) -> jax.Array:
    """Mean negative log-likelihood, from this GPU's part of the logits."""
    logits = logits.astype(jnp.float32)
    size = logits.shape[-1]
    greatest = self.layout.greatest(jnp.max(logits, axis=-1, keepdims=True))
    shifted = logits - greatest
    local = targets - self.layout.model_index() * size
    is_target = local[..., None] == jnp.arange(size)
    picked = jnp.sum(jnp.where(is_target, shifted, 0), axis=-1)
    sums = self.layout.total(jnp.sum(jnp.exp(shifted), axis=-1))
    return jnp.mean(jnp.log(sums) - self.layout.total(picked))
