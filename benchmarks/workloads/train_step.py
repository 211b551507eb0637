# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The train step of a workload: mixed precision, microbatches, Adam.

Parameters and Adam's second moment are float32; its first moment is bfloat16.
Once per step, parameters are cast to the workload's type, in which they are
gathered, multiplied and summed. Gradients of several microbatches are
accumulated in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import dataclasses
from typing import Any, cast

from flax import linen as nn
import jax
import jax.numpy as jnp
import optax

from benchmarks.workloads import decoder
from benchmarks.workloads import layout as layout_lib
from benchmarks.workloads.decoder import Architecture


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
  """A train step.

  Attributes:
    arch: the model.
    layout: its layout over GPUs.
    microbatch_size: sequences per data-parallel GPU and microbatch.
    num_microbatches: microbatches per step.
    seq_len: tokens per sequence.
    num_streams: number of pieces of a microbatch, see decoder.py.
    layers_per_trip: see decoder.Decoder.
    dtype: the type of computation and communication.
    is_fused: whether attention is a library call, which can be scheduled but
      not run.
  """

  arch: Architecture
  layout: layout_lib.Layout
  microbatch_size: int
  num_microbatches: int = 1
  seq_len: int = 2048
  num_streams: int = 1
  layers_per_trip: int = 1
  dtype: str = "bfloat16"
  is_fused: bool = True


def train_step(
  devices: Sequence[jax.Device], workload: Workload
) -> tuple[jax.stages.Wrapped, tuple[Any, jax.ShapeDtypeStruct]]:
  """Builds the step, and the shapes and shardings of its arguments.

  Returns:
    The jitted step (state, tokens) -> (state, loss), which donates the state,
    and its arguments as ShapeDtypeStructs. The state is (parameters, Adam's
    state); tokens are int32 [microbatches, streams, sequences, seq_len + 1].

  Raises:
    ValueError: the layout is for another number of devices.
  """
  mesh = workload.layout.mesh(devices)
  boxed = jax.eval_shape(
    lambda key: _init(workload, key), jax.eval_shape(jax.random.key, 0)
  )
  specs = nn.get_partition_spec(boxed)
  tokens_spec = jax.sharding.PartitionSpec(None, None, layout_lib.DATA)

  def spec(shape: tuple[int, ...], dtype: Any, axes: Any):
    sharding = jax.sharding.NamedSharding(mesh, axes)
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

  state = jax.tree.map(
    lambda value, axes: spec(value.shape, value.dtype, axes),
    nn.unbox(boxed),
    specs,
  )
  tokens = spec(_tokens_shape(workload), jnp.int32, tokens_spec)
  step = jax.shard_map(
    _local_step(workload, specs[0]),
    mesh=mesh,
    in_specs=(specs, tokens_spec),
    out_specs=(specs, jax.sharding.PartitionSpec()),
    check_vma=False,
  )
  step.__name__ = "train_step"
  return jax.jit(step, donate_argnums=0), (state, tokens)


def lower(
  devices: Sequence[jax.Device], workload: Workload
) -> jax.stages.Lowered:
  """The step lowered for devices, which need not exist here."""
  step, args = train_step(devices, workload)
  return step.lower(*args)


def _tokens_shape(workload: Workload) -> tuple[int, ...]:
  num_sequences = workload.microbatch_size * workload.layout.data
  return (
    workload.num_microbatches,
    workload.num_streams,
    num_sequences // workload.num_streams,
    workload.seq_len + 1,
  )


def _optimizer() -> optax.GradientTransformation:
  return optax.adamw(
    3e-4, b1=0.9, b2=0.95, weight_decay=0.1, mu_dtype=jnp.bfloat16
  )


def _init(workload: Workload, key: jax.Array) -> Any:
  model = decoder.Decoder(
    workload.arch, workload.layout.whole, False, workload.layers_per_trip
  )
  tokens = (jnp.zeros((1, 2), jnp.int32),)
  params = model.init(key, tokens, tokens)["params"]
  return params, _optimizer().init(params)


def _local_step(workload: Workload, specs: Any) -> Callable[..., Any]:
  """The program of one GPU; `specs` are the parameters' partition specs."""
  layout = workload.layout
  model = decoder.Decoder(
    workload.arch, layout, workload.is_fused, workload.layers_per_trip
  )

  def loss_of(weights: Any, tokens: jax.Array) -> jax.Array:
    inputs, targets = tuple(tokens[..., :-1]), tuple(tokens[..., 1:])
    loss = cast(jax.Array, model.apply({"params": weights}, inputs, targets))
    # Gradients are summed over GPUs with different tokens.
    return loss / (layout.num_losses * workload.num_microbatches)

  def local_step(state: Any, tokens: jax.Array) -> Any:
    params, adam = state
    weights = _as_type(params, workload.dtype)
    weights = jax.tree.map(layout.gathered, weights, specs)
    if workload.num_microbatches == 1:
      loss, gradients = jax.value_and_grad(loss_of)(weights, tokens[0])
      gradients = _as_type(gradients, "float32")
    else:
      loss, gradients = _accumulated(loss_of, weights, tokens)
    gradients = jax.tree.map(layout.added, gradients, specs)
    updates, adam = _optimizer().update(gradients, adam, params)
    return (optax.apply_updates(params, updates), adam), layout.add_losses(loss)

  return local_step


def _accumulated(
  loss_of: Callable[[Any, jax.Array], jax.Array],
  weights: Any,
  tokens: jax.Array,
) -> tuple[jax.Array, Any]:
  """Loss and gradients, summed over microbatches."""

  def add(sums: Any, microbatch: jax.Array) -> tuple[Any, None]:
    more = jax.value_and_grad(loss_of)(weights, microbatch)
    return jax.tree.map(lambda a, b: a + b.astype(a.dtype), sums, more), None

  zeros = jax.tree.map(lambda w: jnp.zeros(w.shape, jnp.float32), weights)
  sums = (jnp.float32(0), zeros)
  return jax.lax.scan(add, sums, tokens)[0]


def _as_type(tree: Any, dtype: str) -> Any:
  return jax.tree.map(lambda x: x.astype(dtype), tree)
