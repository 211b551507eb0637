# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Causal attention: as one fused library call, or written out.

The paper's frameworks run FlashAttention, which never writes the scores to
memory. Its counterpart here is a call by the name that Transformer Engine gives
its fused attention, with the same operands: enough for a schedule, and for the
cost model, which counts a fused attention's operations. It has no code, so what
is to run takes `written_out`.
"""

from __future__ import annotations

import jax
from jax.ad_checkpoint import checkpoint_name
import jax.numpy as jnp

# What the backward pass needs of the forward one.
MIXED = "mixed"

_FORWARD = "te_fused_attn_forward_ffi"
_BACKWARD = "te_fused_attn_backward_ffi"


def written_out(
  query: jax.Array,
  key: jax.Array,
  value: jax.Array,
  slopes: jax.Array | None,
  first: jax.Array | int,
) -> jax.Array:
  """Attention that any backend runs.

  Args:
    query: [batch, sequence, heads, head_dim].
    key: the same, with as many heads or fewer, and as many tokens or more.
    value: the same as key.
    slopes: ALiBi's slope of each head (arXiv 2108.12409), or None.
    first: the position of the first query among the keys.

  Returns:
    The mixed values, in the query's shape.
  """
  bias = None
  of_query = first + jnp.arange(query.shape[1])
  distance = jnp.arange(key.shape[1])[None, :] - of_query[:, None]
  if slopes is not None:
    bias = (slopes[:, None, None] * distance)[None].astype(query.dtype)
  return jax.nn.dot_product_attention(
    query,
    key,
    value,
    bias=bias,
    mask=(distance <= 0)[None, None],
    implementation="xla",
  )


@jax.custom_vjp
def fused(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
  """Attention as a library call; see `written_out`. ALiBi costs it nothing."""
  return _forward(query, key, value)[0]


def _forward(
  query: jax.Array, key: jax.Array, value: jax.Array
) -> tuple[jax.Array, jax.Array]:
  batch, length, heads, _ = query.shape
  log_sums = jax.ShapeDtypeStruct((batch, heads, length), jnp.float32)
  mixed = jax.ShapeDtypeStruct(query.shape, query.dtype)
  out = jax.ffi.ffi_call(_FORWARD, (mixed, log_sums))(query, key, value)
  return checkpoint_name(out[0], MIXED), checkpoint_name(out[1], MIXED)


def _fused_forward(
  query: jax.Array, key: jax.Array, value: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
  mixed, log_sums = _forward(query, key, value)
  return mixed, (query, key, value, mixed, log_sums)


def _fused_backward(
  saved: tuple[jax.Array, ...], gradient: jax.Array
) -> tuple[jax.Array, ...]:
  query, key, value, *_ = saved
  shapes = tuple(
    jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (query, key, value)
  )
  return tuple(jax.ffi.ffi_call(_BACKWARD, shapes)(*saved, gradient))


fused.defvjp(_fused_forward, _fused_backward)
