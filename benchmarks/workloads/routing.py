# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The routing of tokens to experts on other GPUs and back.

By all-to-all, every GPU sends each token to the GPUs of its experts, and gets
the results back. By all-gather, every GPU gets all tokens, computes what its
experts make of them, and the results are summed and scattered; that is the
default of Megatron-LM, which the paper runs.

XLA needs static shapes. So every GPU sends every expert the same number of
tokens: its share if the router were perfectly balanced. An expert's rows beyond
that are dropped, and missing ones are zeros. The bytes sent and the operations
are then those of a dropless router that is balanced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp

from benchmarks.workloads import layout

Dispatch = Literal["all-to-all", "all-gather"]


def send_and_return(
  x: jax.Array,
  router: jax.Array,
  run: Callable[[jax.Array], jax.Array],
  *,
  num_chosen: int,
  num_gpus: int,
) -> jax.Array:
  """Runs each token through the experts that the router chooses for it.

  Args:
    x: this GPU's tokens, [B, S, d_model].
    router: [d_model, experts].
    run: runs this GPU's experts on [local experts, rows, d_model].
    num_chosen: experts per token.
    num_gpus: GPUs that the experts are split over.

  Returns:
    The experts' results, weighted by the router and summed, as x.
  """
  rows = x.reshape(-1, x.shape[-1])
  num_experts = router.shape[-1]
  weights, chosen = _choose(rows, router, num_chosen)
  capacity = -(-rows.shape[0] * num_chosen // num_experts)
  sender, slot = _slots(chosen, num_experts, capacity)
  sent = jnp.take(rows, sender, axis=0, mode="fill", fill_value=0)
  sent = sent.reshape(num_experts, capacity, -1)
  if num_gpus > 1:
    sent = jax.lax.all_to_all(sent, layout.DATA, 0, 1, tiled=True)
  done = run(sent)
  if num_gpus > 1:
    done = jax.lax.all_to_all(done, layout.DATA, 1, 0, tiled=True)
  done = done.reshape(num_experts * capacity, -1)
  back = jnp.take(done, slot, axis=0, mode="fill", fill_value=0)
  weighted = jnp.einsum("tkd,tk->td", back, weights)
  return weighted.reshape(x.shape)


def gather_and_scatter(
  x: jax.Array,
  router: jax.Array,
  run: Callable[[jax.Array], jax.Array],
  *,
  num_chosen: int,
  num_gpus: int,
) -> jax.Array:
  """The same with all tokens on every GPU; see `send_and_return`."""
  rows = x.reshape(-1, x.shape[-1])
  num_experts = router.shape[-1]
  weights, chosen = _choose(rows, router, num_chosen)
  first = 0
  if num_gpus > 1:
    rows, weights, chosen = (
      jax.lax.all_gather(y, layout.DATA, axis=0, tiled=True)
      for y in (rows, weights, chosen)
    )
    first = jax.lax.axis_index(layout.DATA) * (num_experts // num_gpus)
  capacity = -(-rows.shape[0] * num_chosen // num_experts)
  sender, slot = _slots(chosen, num_experts, capacity)
  slot_weights = jnp.zeros((num_experts * capacity,), weights.dtype)
  slot_weights = slot_weights.at[slot].set(weights, mode="drop")
  here = num_experts // num_gpus * capacity
  sender = jax.lax.dynamic_slice_in_dim(sender, first * capacity, here)
  slot_weights = jax.lax.dynamic_slice_in_dim(
    slot_weights, first * capacity, here
  )
  sent = jnp.take(rows, sender, axis=0, mode="fill", fill_value=0)
  done = run(sent.reshape(num_experts // num_gpus, capacity, -1))
  done = done.reshape(here, -1) * slot_weights[:, None]
  summed = jnp.zeros_like(rows).at[sender].add(done, mode="drop")
  if num_gpus > 1:
    summed = jax.lax.psum_scatter(summed, layout.DATA, tiled=True)
  return summed.reshape(x.shape)


WAYS = {"all-to-all": send_and_return, "all-gather": gather_and_scatter}


def _choose(
  rows: jax.Array, router: jax.Array, num_chosen: int
) -> tuple[jax.Array, jax.Array]:
  """The weights and the numbers of each token's experts."""
  scores = jax.nn.softmax((rows @ router).astype(jnp.float32), axis=-1)
  weights, chosen = jax.lax.top_k(scores, num_chosen)
  return weights.astype(rows.dtype), chosen


def _slots(
  chosen: jax.Array, num_experts: int, capacity: int
) -> tuple[jax.Array, jax.Array]:
  """Who fills each slot of the experts, and which slot each choice got.

  Args:
    chosen: [tokens, choices], experts.
    num_experts: how many there are.
    capacity: slots of each.

  Returns:
    The token of each of the experts * capacity slots, and the slot of each
    [token, choice]; out of range where there is none.
  """
  num_tokens, num_choices = chosen.shape
  experts = chosen.reshape(-1)
  order = jnp.argsort(experts)
  in_order = experts[order]
  first = jnp.searchsorted(in_order, jnp.arange(num_experts))
  rank = jnp.arange(experts.size) - first[in_order]
  none = num_experts * capacity
  slot = jnp.where(rank < capacity, in_order * capacity + rank, none)
  sender = jnp.full((none,), num_tokens)
  sender = sender.at[slot].set(order // num_choices, mode="drop")
  slot_of = jnp.zeros_like(slot).at[order].set(slot)
  return sender, slot_of.reshape(num_tokens, num_choices)
