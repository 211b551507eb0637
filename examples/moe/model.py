# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The Mixture of Experts in Flax: a Llama with routed feed-forward layers.

Each device keeps its part of the experts and of the batch. An all-to-all sends
each token to the devices of its experts, and a second one brings the results
back. An expert takes a fixed number of tokens of each sequence, so that shapes
are static and a sequence's loss does not depend on the others in its batch.

Shapes below: B sequences of S tokens on this device, D = d_model, E experts,
split over N devices, K = num_chosen, C = capacity, F = d_ffn.
"""

from __future__ import annotations

from typing import cast

from flax import linen as nn
import jax
import jax.numpy as jnp

from common import sharding
from llama.model import Llama
from llama.model import Part
from moe.config import MoeConfig


class Experts(Part):
  """The routed feed-forward layer, [B, S, D] to [B, S, D].

  Sows the losses of its router in the collection "losses".
  """

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    c = cast(MoeConfig, self.config)
    router = self.weight("router", (c.d_model, c.num_experts), ("embed", None))
    inner = (c.num_experts, c.d_model, c.d_ffn)
    gate = self.weight("gate", inner, ("experts", "expert_embed", None))
    up = self.weight("up", inner, ("experts", "expert_embed", None))
    outer = (c.num_experts, c.d_ffn, c.d_model)
    down = self.weight("down", outer, ("experts", None, "expert_embed"))

    logits = (x @ router).astype(jnp.float32)
    batch = sharding.partition_spec(("batch",), self.mesh)
    experts = sharding.partition_spec(("experts",), self.mesh)
    routed = jax.shard_map(
      self._routed,
      mesh=self.mesh,
      in_specs=(batch, batch, experts, experts, experts),
      out_specs=(batch, batch),
    )
    y, balance = routed(x, logits, gate, up, down)
    # Router z-loss: arXiv 2202.08906, equation 5.
    z = jnp.mean(jnp.square(jax.nn.logsumexp(logits, axis=-1)))
    loss = c.balance_weight * jnp.mean(balance) + c.z_weight * z
    self.sow("losses", "router", loss)
    return y

  def _routed(
    self,
    x: jax.Array,
    logits: jax.Array,
    gate: jax.Array,
    up: jax.Array,
    down: jax.Array,
  ) -> tuple[jax.Array, jax.Array]:
    """The work of one device: route, send, run its experts, bring back."""
    c = cast(MoeConfig, self.config)
    probabilities = jax.nn.softmax(logits)
    weights, chosen = jax.lax.top_k(probabilities, c.num_chosen)
    capacity = c.capacity(x.shape[1])
    slots = assign_slots(chosen, c.num_experts, capacity)

    rows = jax.vmap(_scatter, (0, 0, None))(x, slots, c.num_experts * capacity)
    rows = rows.reshape(len(x), c.num_experts, capacity, c.d_model)
    # [B, E, C, D] here to [N B, E/N, C, D] where the experts are.
    sent = jax.lax.all_to_all(rows, "expert", 1, 0, tiled=True)
    hidden = nn.silu(jnp.einsum("becd,edf->becf", sent, gate))
    hidden *= jnp.einsum("becd,edf->becf", sent, up)
    results = jnp.einsum("becf,efd->becd", hidden, down)
    back = jax.lax.all_to_all(results, "expert", 0, 1, tiled=True)

    back = back.reshape(len(x), -1, c.d_model)
    picked = jax.vmap(_gather)(back, slots)
    y = jnp.einsum("bskd,bsk->bsd", picked, weights.astype(x.dtype))
    return y, balance_loss(probabilities, chosen)


def assign_slots(
  chosen: jax.Array, num_experts: int, capacity: int
) -> jax.Array:
  """Assigns each token a slot at each of its experts, in order of tokens.

  Args:
    chosen: The experts of each token, int32 [B, S, K].
    num_experts: E.
    capacity: C, the slots of one expert for one sequence.

  Returns:
    int32 [B, S, K]: slots of expert e are e C to e C + C - 1; E C means none.
  """
  flat = chosen.reshape(len(chosen), -1)
  is_chosen = jax.nn.one_hot(flat, num_experts, dtype=jnp.int32)
  # The number of earlier tokens at the same expert.
  before = jnp.sum((jnp.cumsum(is_chosen, axis=1) - 1) * is_chosen, axis=-1)
  none = num_experts * capacity
  slots = jnp.where(before < capacity, flat * capacity + before, none)
  return slots.reshape(chosen.shape)


def balance_loss(probabilities: jax.Array, chosen: jax.Array) -> jax.Array:
  """Returns each sequence's load-balancing loss, 1 if experts are equally busy.

  This is equation 4 of arXiv 2101.03961, for one sequence instead of a batch,
  so that the loss of a batch stays the mean of its sequences' losses.

  Args:
    probabilities: The router's, float32 [B, S, E].
    chosen: The experts of each token, int32 [B, S, K].
  """
  num_experts = probabilities.shape[-1]
  share = jax.nn.one_hot(chosen, num_experts).mean(axis=(1, 2))
  return num_experts * jnp.sum(share * probabilities.mean(axis=1), axis=-1)


def _scatter(x: jax.Array, slots: jax.Array, num_slots: int) -> jax.Array:
  """Puts tokens [S, D] into their slots [S, K]; returns [num_slots, D]."""
  copies = jnp.broadcast_to(x[:, None], (*slots.shape, x.shape[-1]))
  empty = jnp.zeros((num_slots, x.shape[-1]), x.dtype)
  return empty.at[slots].set(copies, mode="drop")


def _gather(rows: jax.Array, slots: jax.Array) -> jax.Array:
  """Takes rows out of their slots [S, K]; 0 for tokens without a slot."""
  return rows.at[slots].get(mode="fill", fill_value=0)


def moe(config: MoeConfig, mesh: jax.sharding.Mesh) -> Llama:
  """Returns the decoder: token ids [B, S] to logits [B, S, vocab_size]."""
  return Llama(config, mesh, ffn=Experts)
