# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The parts of a decoder layer, in Flax, as one GPU of a layout runs them.

Every part takes and returns a tuple of *streams*: the sequences of a microbatch
in one piece, or cut in halves, of which one's collectives can hide behind the
other's products. A part declares its weights once, for all streams. Parameters
come in the type they are used in. A stream is [B, S, d_model].

Products that read the same input are one: queries, keys and values, and the two
halves of SwiGLU. Under tensor parallelism each GPU's columns hold its own heads
and features, as Megatron-LM lays them out.

The paper's frameworks run FlashAttention, which never writes the scores to
memory. Its counterpart here is a call by the name that Transformer Engine gives
its fused attention, with the same operands: enough for a schedule, and for the
cost model, which counts a fused attention's operations. It has no code, so what
is to run takes `written_out`.

By all-to-all every GPU sends each token to the GPUs of its experts, and gets
the results back. XLA needs static shapes. So every GPU sends every expert the
same number of tokens: its share if the router were perfectly balanced. An
expert's rows beyond that are dropped, and missing ones are zeros. The bytes
sent and the operations are then those of a dropless router that is balanced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from flax import linen as nn
import jax
from jax.ad_checkpoint import checkpoint_name
import jax.numpy as jnp

from benchmarks.workloads import layout as layout_lib
from benchmarks.workloads.architectures import Architecture

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
    sent = jax.lax.all_to_all(sent, layout_lib.DATA, 0, 1, tiled=True)
  done = run(sent)
  if num_gpus > 1:
    done = jax.lax.all_to_all(done, layout_lib.DATA, 1, 0, tiled=True)
  done = done.reshape(num_experts * capacity, -1)
  back = jnp.take(done, slot, axis=0, mode="fill", fill_value=0)
  weighted = jnp.einsum("tkd,tk->td", back, weights)
  return weighted.reshape(x.shape)


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


Streams = tuple[jax.Array, ...]

_NORM_EPSILON = 1e-5
_ROTARY_BASE = 10_000.0
_RANDOM = nn.initializers.normal(0.02)


class Part(nn.Module):
  """What all parts share.

  Attributes:
    arch: the model.
    layout: how it is spread.
    is_fused: whether attention is a library call.
  """

  arch: Architecture
  layout: layout_lib.Layout
  is_fused: bool

  @property
  def shared(self) -> tuple[Architecture, layout_lib.Layout, bool]:
    """The attributes, for a part of this part."""
    return self.arch, self.layout, self.is_fused

  def weight(
    self,
    name: str,
    *shape: int,
    model_dim: int | None = None,
    is_expert: bool = False,
    init: nn.initializers.Initializer = _RANDOM,
  ) -> jax.Array:
    """Declares a parameter by its full shape; returns it ready for use."""
    axes = self.layout.axes(
      len(shape), model_dim=model_dim, is_expert=is_expert
    )
    boxed: Any = nn.with_partitioning(init, axes)
    part = self.layout.part(shape, axes)
    weight = self.param(name, boxed, part, jnp.float32)
    return self.layout.ready(weight, is_expert=is_expert)

  def bias(self, name: str, size: int, model_dim: int | None = None):
    """A bias, or zero where the model has none."""
    if not self.arch.has_bias:
      return 0.0
    return self.weight(
      name, size, model_dim=model_dim, init=nn.initializers.zeros
    )


class Norm(Part):
  """RMSNorm or LayerNorm, computed in float32."""

  @nn.compact
  def __call__(self, xs: Streams) -> Streams:
    """Norms each token."""
    size = self.arch.d_model
    scale = self.weight("scale", size, init=nn.initializers.ones)
    bias: Any = 0.0
    if self.arch.norm_has_bias:
      bias = self.weight("bias", size, init=nn.initializers.zeros)
    return tuple(normed(x, self.arch.norm) * scale + bias for x in xs)


def normed(x: jax.Array, kind: Literal["rms", "layer"]) -> jax.Array:
  """Unit mean square, for "layer" around a mean of zero."""
  wide = x.astype(jnp.float32)
  if kind == "layer":
    wide -= jnp.mean(wide, axis=-1, keepdims=True)
  mean_square = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
  return (wide * jax.lax.rsqrt(mean_square + _NORM_EPSILON)).astype(x.dtype)


def rotate(
  x: jax.Array, num_features: int, first: jax.Array | int
) -> jax.Array:
  """Turns pairs of the first features of each head by the token's position.

  Args:
    x: [B, S, heads, head_dim].
    num_features: features that are turned.
    first: the position of the first token.
  """
  turning, rest = x[..., :num_features], x[..., num_features:]
  exponents = jnp.arange(0, num_features, 2, dtype=jnp.float32) / num_features
  positions = first + jnp.arange(x.shape[1])
  angles = positions[:, None] * _ROTARY_BASE**-exponents
  cos, sin = jnp.cos(angles)[:, None, :], jnp.sin(angles)[:, None, :]
  first, second = jnp.split(turning.astype(jnp.float32), 2, axis=-1)
  turned = (first * cos - second * sin, second * cos + first * sin)
  return jnp.concatenate((*(t.astype(x.dtype) for t in turned), rest), axis=-1)


class Attention(Part):
  """Returns what the GPUs that share it have to add up, and the bias after."""

  @nn.compact
  def __call__(self, xs: Streams) -> tuple[Streams, Any]:
    """Mixes each sequence, causally."""
    arch, parts = self.arch, self.layout.num_product_parts
    heads, kv_heads = arch.num_heads // parts, arch.num_kv_heads // parts
    rows, width = arch.num_heads * arch.head_dim, arch.d_model
    columns = rows + 2 * arch.num_kv_heads * arch.head_dim
    qkv = self.weight("qkv", width, columns, model_dim=1)
    qkv_bias = self.bias("qkv_bias", columns, model_dim=0)
    output = self.weight("output", rows, width, model_dim=0)
    scales = self._head_scales()
    slopes = self._slopes(heads)

    def mixed(x: jax.Array) -> jax.Array:
      projected = x @ qkv + qkv_bias
      ends = (heads * arch.head_dim, (heads + kv_heads) * arch.head_dim)
      query, key, value = jnp.split(projected, ends, axis=-1)
      if scales is not None:
        query = normed(query, "rms") * scales[0]
        key = normed(key, "rms") * scales[1]
      query, key, value = (
        y.reshape(*y.shape[:2], -1, arch.head_dim) for y in (query, key, value)
      )
      first = self.layout.first_position(x.shape[1])
      if arch.rotary_dim:
        query = rotate(query, arch.rotary_dim, first)
        key = rotate(key, arch.rotary_dim, first)
      key, value = map(self.layout.whole_sequence, (key, value))
      if self.is_fused:
        out = fused(query, key, value)
      else:
        out = written_out(query, key, value, slopes, first)
      return out.reshape(*out.shape[:2], -1)

    partial = tuple(mixed(x) @ output for x in xs)
    return partial, self.bias("output_bias", width)

  def _head_scales(self) -> tuple[jax.Array, jax.Array] | None:
    if not self.arch.norms_heads:
      return None
    ones, size = nn.initializers.ones, self.arch.head_dim
    return (
      self.weight("query_scale", self.arch.num_heads * size, init=ones),
      self.weight("key_scale", self.arch.num_kv_heads * size, init=ones),
    )

  def _slopes(self, num_local: int) -> jax.Array | None:
    """ALiBi's slopes of this GPU's heads (arXiv 2108.12409, section 3)."""
    if self.arch.rotary_dim:
      return None
    first = self.layout.model_index() * num_local + 1
    heads = first + jnp.arange(num_local)
    return 2.0 ** (-8.0 * heads / self.arch.num_heads)


class FeedForward(Part):
  """SwiGLU or GELU; returns as Attention does."""

  d_ffn: int

  @nn.compact
  def __call__(self, xs: Streams) -> tuple[Streams, Any]:
    """Runs each token through the layer."""
    width, gated = self.arch.d_model, self.arch.is_gated
    columns = (2 if gated else 1) * self.d_ffn
    up = self.weight("up", width, columns, model_dim=1)
    up_bias = self.bias("up_bias", columns, model_dim=0)
    down = self.weight("down", self.d_ffn, width, model_dim=0)
    hidden = (activated(x @ up + up_bias, gated) for x in xs)
    return tuple(h @ down for h in hidden), self.bias("down_bias", width)


def activated(x: jax.Array, is_gated: bool) -> jax.Array:
  """SwiGLU over two halves, or GELU."""
  if not is_gated:
    return nn.gelu(x)
  gate, up = jnp.split(x, 2, axis=-1)
  return nn.silu(gate) * up


class RoutedExperts(Part):
  """The experts that tokens are sent to; returns whole sums."""

  @nn.compact
  def __call__(self, xs: Streams) -> Streams:
    """Runs each token through its experts."""
    experts, width = self.arch.experts, self.arch.d_model
    assert experts is not None
    num, hidden = experts.num_routed, experts.d_ffn
    router = self.weight("router", width, num)
    up = self.weight("up", num, width, 2 * hidden, is_expert=True)
    down = self.weight("down", num, hidden, width, is_expert=True)

    def run(rows: jax.Array) -> jax.Array:
      return activated(rows @ up, True) @ down

    return tuple(
      send_and_return(
        x, router, run, num_chosen=experts.num_chosen, num_gpus=self.layout.data
      )
      for x in xs
    )
