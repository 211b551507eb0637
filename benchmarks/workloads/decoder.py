# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A decoder in Flax, as one GPU of a layout runs it.

Every part takes and returns a tuple of *streams*: the sequences of a
microbatch, whole or in two halves. The collectives of one half can hide behind
the products of the other, as in DeepSpeed-Domino (arXiv 2409.15241) for tensor
parallelism and dual-batch overlap for expert parallelism. A part declares its
weights once, for all streams. Parameters come in the type in which they are
used. A stream is [B, S, d_model].

Products with the same input are one: queries, keys and values, and the two
halves of SwiGLU. Under tensor parallelism, each GPU's columns hold its own
heads and features, in the layout of Megatron-LM.

The paper's frameworks run FlashAttention, which never writes the scores to
memory. Here, it is a call with the name and operands of Transformer Engine's
fused attention. This is enough for a schedule and for the cost model, which
counts the operations of fused attention. It has no code, so steps that run use
`_written_out`. ALiBi would have no cost, and is left out.

By all-to-all, every GPU sends each token to the GPUs of its experts, and gets
the results back. XLA needs static shapes, so every GPU sends every expert the
same number of tokens: its share for a perfectly balanced router. An expert's
rows beyond that are dropped, and missing ones are zeros. So the bytes sent and
the operations are those of a balanced dropless router.

One decoder covers all published ones. They differ in an `Architecture`: sizes,
the norm, where positions enter, whether attention and feed-forward share one
residual branch, and how a feed-forward layer is split into experts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import dataclasses
from typing import Any, Literal

from flax import linen as nn
import jax
import jax.numpy as jnp

from benchmarks.workloads import layout as layout_lib


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Experts:
  """A feed-forward layer with routed experts, and some that are always used.

  Attributes:
    num_routed: experts to choose from.
    num_chosen: experts of each token.
    d_ffn: hidden width of one expert.
    num_shared: experts that every token goes through.
    num_dense_layers: first layers that keep a plain feed-forward layer.
  """

  num_routed: int
  num_chosen: int
  d_ffn: int
  num_shared: int = 0
  num_dense_layers: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Architecture:
  """A decoder.

  Attributes:
    num_layers: decoder layers.
    d_model: width of the residual stream.
    num_heads: query heads.
    num_kv_heads: key and value heads.
    d_ffn: hidden width of a plain feed-forward layer.
    vocab_size: rows of the embedding.
    num_params: parameters, counted from the published weights.
    head_dim: width of one head.
    norm: "rms" or "layer".
    norm_has_bias: whether a layer norm adds a bias.
    has_bias: whether products add a bias.
    is_gated: SwiGLU; else GELU.
    is_parallel: attention and feed-forward read the same norm and add to the
      same residual.
    is_tied: whether the head is the embedding.
    rotary_dim: rotated features of a head; 0 for none.
    norms_heads: whether all queries and all keys are normalized before they are
      rotated.
    experts: None for a dense model.
  """

  num_layers: int
  d_model: int
  num_heads: int
  num_kv_heads: int
  d_ffn: int
  vocab_size: int
  num_params: int
  head_dim: int = 128
  norm: Literal["rms", "layer"] = "rms"
  norm_has_bias: bool = False
  has_bias: bool = False
  is_gated: bool = True
  is_parallel: bool = False
  is_tied: bool = False
  rotary_dim: int = 128
  norms_heads: bool = False
  experts: Experts | None = None


ARCHITECTURES: dict[str, Architecture] = {
  # microsoft/phi-2
  "phi-2": Architecture(
    num_layers=32, d_model=2560, num_heads=32, num_kv_heads=32, d_ffn=10240,
    vocab_size=51200, num_params=2_779_683_840, head_dim=80, norm="layer",
    norm_has_bias=True, has_bias=True, is_gated=False, is_parallel=True,
    rotary_dim=32,
  ),
  # meta-llama/Meta-Llama-3-8B
  "llama-3-8b": Architecture(
    num_layers=32, d_model=4096, num_heads=32, num_kv_heads=8, d_ffn=14336,
    vocab_size=128256, num_params=8_030_261_248,
  ),
  # meta-llama/Meta-Llama-3-70B
  "llama-3-70b": Architecture(
    num_layers=80, d_model=8192, num_heads=64, num_kv_heads=8, d_ffn=28672,
    vocab_size=128256, num_params=70_553_706_496,
  ),
  # mosaicml/mpt-7b
  "mpt-7b": Architecture(
    num_layers=32, d_model=4096, num_heads=32, num_kv_heads=32, d_ffn=16384,
    vocab_size=50432, num_params=6_649_286_656, norm="layer", is_gated=False,
    is_tied=True, rotary_dim=0,
  ),
  # deepseek-ai/deepseek-moe-16b-base
  "deepseek-moe-16b": Architecture(
    num_layers=28, d_model=2048, num_heads=16, num_kv_heads=16, d_ffn=10944,
    vocab_size=102400, num_params=16_375_728_128,
    experts=Experts(
      num_routed=64, num_chosen=6, num_shared=2, d_ffn=1408, num_dense_layers=1
    ),
  ),
  # allenai/OLMoE-1B-7B-0924
  "olmoe-1b-7b": Architecture(
    num_layers=16, d_model=2048, num_heads=16, num_kv_heads=16, d_ffn=1024,
    vocab_size=50304, num_params=6_919_161_856, norms_heads=True,
    experts=Experts(num_routed=64, num_chosen=8, d_ffn=1024),
  ),
  # Qwen/Qwen3-30B-A3B, whose norms of queries and keys are per head, though.
  "qwen3-30b-a3b": Architecture(
    num_layers=48, d_model=2048, num_heads=32, num_kv_heads=4, d_ffn=6144,
    vocab_size=151936, num_params=30_532_331_520, norms_heads=True,
    experts=Experts(num_routed=128, num_chosen=8, d_ffn=768),
  ),
  # marin-community/marin#7201, with Llama 3's vocabulary; the shared expert is
  # two of the size of the routed ones.
  "grug-360b-a23b": Architecture(
    num_layers=48, d_model=6144, num_heads=48, num_kv_heads=8, d_ffn=6144,
    vocab_size=128256, num_params=359_170_381_824,
    experts=Experts(num_routed=128, num_chosen=4, d_ffn=3072, num_shared=2),
  ),
  # mistralai/Mixtral-8x7B-v0.1
  "mixtral-8x7b": Architecture(
    num_layers=32, d_model=4096, num_heads=32, num_kv_heads=8, d_ffn=14336,
    vocab_size=32000, num_params=46_702_792_704,
    experts=Experts(num_routed=8, num_chosen=2, d_ffn=14336),
  ),
  # A GPT of the size that DHelix (arXiv 2411.15871) ran on 64 A40s. Its widths
  # and depths are not public; these are ours.
  "gpt-25b": Architecture(
    num_layers=54, d_model=6144, num_heads=48, num_kv_heads=48, d_ffn=24576,
    vocab_size=50304, num_params=25_083_692_160, norm="layer",
    norm_has_bias=True, has_bias=True, is_gated=False,
  ),
  # The demo of DHelix's authors (DHeLlam, script/run.sh at commit 4834e95):
  # eight layers with the width of Llama 3.1 70B, as many key as query heads,
  # and Llama 2's vocabulary.
  "dhellam-demo": Architecture(
    num_layers=8, d_model=8192, num_heads=64, num_kv_heads=64, d_ffn=28672,
    vocab_size=32000, num_params=8_309_055_488,
  ),
  # Qwen3-14B (its config.json) without the norms of queries and keys. TWIST,
  # DHelix for Hopper, was measured on this model without rotary embeddings,
  # which are included here.
  "qwen3-14b": Architecture(
    num_layers=40, d_model=5120, num_heads=40, num_kv_heads=8, d_ffn=17408,
    vocab_size=151936, num_params=14_768_296_960,
  ),
}  # fmt: skip


_FORWARD = "te_fused_attn_forward_ffi"
_BACKWARD = "te_fused_attn_backward_ffi"


def _written_out(
  query: jax.Array, key: jax.Array, value: jax.Array, first: jax.Array | int
) -> jax.Array:
  """Attention that any backend runs, [batch, sequence, heads, head_dim].

  Keys may have fewer heads and more tokens than queries. `first` is the first
  query's position among the keys.
  """
  of_query = first + jnp.arange(query.shape[1])
  is_seen = jnp.arange(key.shape[1])[None, :] <= of_query[:, None]
  return jax.nn.dot_product_attention(
    query, key, value, mask=is_seen[None, None], implementation="xla"
  )


@jax.custom_vjp
def _fused(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
  """Attention as a library call."""
  return _forward(query, key, value)[0]


def _forward(
  query: jax.Array, key: jax.Array, value: jax.Array
) -> Sequence[jax.Array]:
  batch, length, heads, _ = query.shape
  log_sums = jax.ShapeDtypeStruct((batch, heads, length), jnp.float32)
  mixed = jax.ShapeDtypeStruct(query.shape, query.dtype)
  return jax.ffi.ffi_call(_FORWARD, (mixed, log_sums))(query, key, value)


def _fused_forward(
  query: jax.Array, key: jax.Array, value: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
  out = tuple(_forward(query, key, value))
  return out[0], (query, key, value, *out)


def _fused_backward(
  saved: tuple[jax.Array, ...], gradient: jax.Array
) -> tuple[jax.Array, ...]:
  query, key, value, *_ = saved
  shapes = tuple(
    jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (query, key, value)
  )
  return tuple(jax.ffi.ffi_call(_BACKWARD, shapes)(*saved, gradient))


_fused.defvjp(_fused_forward, _fused_backward)


def _send_and_return(
  x: jax.Array,
  router: jax.Array,
  run: Callable[[jax.Array], jax.Array],
  *,
  num_chosen: int,
  num_gpus: int,
) -> jax.Array:
  """Runs this GPU's tokens through the experts that the router chooses.

  `run` runs this GPU's experts on [local experts, rows, d_model]. The result is
  their sum weighted by the router.
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
  """The token in each of the experts * capacity slots, and each choice's slot.

  Choices are [tokens, choices]; missing tokens and slots are out of range.
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


class Part(nn.Module):
  """Base of all parts.

  Attributes:
    arch: the model.
    layout: its layout over GPUs.
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
  ) -> jax.Array:
    """Declares a parameter by its full shape; returns it ready for use.

    Only the shape matters here; callers that run a step fill in values.
    """
    axes = self.layout.axes(
      len(shape), model_dim=model_dim, is_expert=is_expert
    )
    boxed: Any = nn.with_partitioning(nn.initializers.zeros, axes)
    part = self.layout.part(shape, axes)
    weight = self.param(name, boxed, part, jnp.float32)
    return self.layout.ready(weight, is_expert=is_expert)

  def bias(self, name: str, size: int, model_dim: int | None = None):
    """A bias, or zero if the model has none."""
    if not self.arch.has_bias:
      return 0.0
    return self.weight(name, size, model_dim=model_dim)


class Norm(Part):
  """RMSNorm or LayerNorm, computed in float32."""

  @nn.compact
  def __call__(self, xs: Streams) -> Streams:
    """Normalizes each token."""
    size = self.arch.d_model
    scale = self.weight("scale", size)
    bias: Any = 0.0
    if self.arch.norm_has_bias:
      bias = self.weight("bias", size)
    return tuple(_normed(x, self.arch.norm) * scale + bias for x in xs)


def _normed(x: jax.Array, kind: Literal["rms", "layer"]) -> jax.Array:
  """Scales to unit mean square; "layer" also subtracts the mean."""
  wide = x.astype(jnp.float32)
  if kind == "layer":
    wide -= jnp.mean(wide, axis=-1, keepdims=True)
  mean_square = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
  return (wide * jax.lax.rsqrt(mean_square + _NORM_EPSILON)).astype(x.dtype)


def _rotate(
  x: jax.Array, num_features: int, first: jax.Array | int
) -> jax.Array:
  """Applies rotary position embeddings to the first features of each head.

  `x` is [B, S, heads, head_dim], and `first` the position of its first token.
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
  """Returns partial sums of the GPUs that share it, and the bias to add."""

  @nn.compact
  def __call__(self, xs: Streams) -> tuple[Streams, Any]:
    """Applies causal attention to each sequence."""
    arch, parts = self.arch, self.layout.num_product_parts
    heads, kv_heads = arch.num_heads // parts, arch.num_kv_heads // parts
    rows, width = arch.num_heads * arch.head_dim, arch.d_model
    columns = rows + 2 * arch.num_kv_heads * arch.head_dim
    qkv = self.weight("qkv", width, columns, model_dim=1)
    qkv_bias = self.bias("qkv_bias", columns, model_dim=0)
    output = self.weight("output", rows, width, model_dim=0)
    scales = self._head_scales()

    def mixed(x: jax.Array) -> jax.Array:
      projected = x @ qkv + qkv_bias
      ends = (heads * arch.head_dim, (heads + kv_heads) * arch.head_dim)
      query, key, value = jnp.split(projected, ends, axis=-1)
      if scales is not None:
        query = _normed(query, "rms") * scales[0]
        key = _normed(key, "rms") * scales[1]
      query, key, value = (
        y.reshape(*y.shape[:2], -1, arch.head_dim) for y in (query, key, value)
      )
      first = self.layout.first_position(x.shape[1])
      if arch.rotary_dim:
        query = _rotate(query, arch.rotary_dim, first)
        key = _rotate(key, arch.rotary_dim, first)
      key, value = map(self.layout.whole_sequence, (key, value))
      if self.is_fused:
        out = _fused(query, key, value)
      else:
        out = _written_out(query, key, value, first)
      return out.reshape(*out.shape[:2], -1)

    partial = tuple(mixed(x) @ output for x in xs)
    return partial, self.bias("output_bias", width)

  def _head_scales(self) -> tuple[jax.Array, jax.Array] | None:
    if not self.arch.norms_heads:
      return None
    size = self.arch.head_dim
    return (
      self.weight("query_scale", self.arch.num_heads * size),
      self.weight("key_scale", self.arch.num_kv_heads * size),
    )


class FeedForward(Part):
  """SwiGLU or GELU; returns the same as Attention."""

  d_ffn: int

  @nn.compact
  def __call__(self, xs: Streams) -> tuple[Streams, Any]:
    """Runs each token through the layer."""
    width, gated = self.arch.d_model, self.arch.is_gated
    columns = (2 if gated else 1) * self.d_ffn
    up = self.weight("up", width, columns, model_dim=1)
    up_bias = self.bias("up_bias", columns, model_dim=0)
    down = self.weight("down", self.d_ffn, width, model_dim=0)
    hidden = (_activated(x @ up + up_bias, gated) for x in xs)
    return tuple(h @ down for h in hidden), self.bias("down_bias", width)


def _activated(x: jax.Array, is_gated: bool) -> jax.Array:
  """SwiGLU over two halves, or GELU."""
  if not is_gated:
    return nn.gelu(x)
  gate, up = jnp.split(x, 2, axis=-1)
  return nn.silu(gate) * up


class RoutedExperts(Part):
  """The routed experts; returns complete sums."""

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
      return _activated(rows @ up, True) @ down

    # If weights are gathered, no token is sent.
    num_gpus = self.layout.data if self.layout.kind == "ep" else 1
    return tuple(
      _send_and_return(
        x, router, run, num_chosen=experts.num_chosen, num_gpus=num_gpus
      )
      for x in xs
    )


class Layer(Part):
  """One decoder layer, in the (carry, output) form of nn.scan."""

  is_dense: bool = True

  @nn.compact
  def __call__(self, xs: Streams) -> tuple[Streams, None]:
    """Adds the layer's output to each stream."""
    normed_xs = self._norm("attention_norm", xs)
    mixed, bias = Attention(*self.shared, name="attention")(normed_xs)
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
    routed = RoutedExperts(*self.shared, name="experts")(normed_xs)
    after = tuple(x + r for x, r in zip(xs, routed, strict=True))
    experts = self.arch.experts
    assert experts is not None
    if experts.num_shared:
      width = experts.num_shared * experts.d_ffn
      after = self._add(after, *self._plain("shared", width, normed_xs))
    return after, None

  def _norm(self, name: str, xs: Streams) -> Streams:
    normed_xs = Norm(*self.shared, name=name)(xs)
    return tuple(self.layout.enter(x) for x in normed_xs)

  def _plain(self, name: str, d_ffn: int, xs: Streams) -> tuple[Streams, Any]:
    return FeedForward(*self.shared, d_ffn, name=name)(xs)

  def _add(self, xs: Streams, partial: Streams, bias: Any) -> Streams:
    return tuple(
      x + self.layout.leave(p) + bias for x, p in zip(xs, partial, strict=True)
    )


class Decoder(Part):
  """Token ids, one [B, S] per stream, to the mean loss of the next token.

  Attributes:
    layers_per_trip: layers in the body of the loop over layers.
  """

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
    xs = Norm(*self.shared, name="final_norm")(xs)
    losses = [
      self._loss(self.layout.enter(x) @ head.T + head_bias, t)
      for x, t in zip(xs, targets, strict=True)
    ]
    return sum(losses, jnp.float32(0)) / len(losses)

  def _layers(self, xs: Streams) -> Streams:
    # The backward pass recomputes a layer's activations.
    layer: Any = nn.remat(Layer, prevent_cse=False)
    experts = self.arch.experts
    num_first = experts.num_dense_layers if experts else 0
    for index in range(num_first):
      xs, _ = layer(*self.shared, name=f"first_{index}")(xs)
    num_layers = self.arch.num_layers - num_first
    stack = nn.scan(
      layer,
      variable_axes={"params": 0},
      split_rngs={"params": True},
      length=num_layers,
      unroll=min(self.layers_per_trip, num_layers),
      metadata_params={nn.PARTITION_NAME: None},
    )
    return stack(*self.shared, experts is None, name="layers")(xs)[0]

  def _embed(self, embedding: jax.Array, tokens: jax.Array) -> jax.Array:
    """Rows of an embedding; this GPU may hold only a part of it."""
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
