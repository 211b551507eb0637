# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The train step of all models: loss, gradients, AdamW."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flax import linen as nn
from flax import struct
import jax
import jax.numpy as jnp
import optax

from common import sharding


class TrainState(struct.PyTreeNode):
  """The state that a step takes, donates and returns.

  Leaves are arrays, or their specs or shardings.
  """

  step: Any
  params: Any
  opt_state: Any


Batch = dict[str, jax.Array]
BatchSpec = dict[str, jax.ShapeDtypeStruct]
Metrics = dict[str, jax.Array]
Step = Callable[..., tuple[TrainState, Metrics]]
Loss = Callable[[Any, Batch], jax.Array]

_SEQUENCES_PER_SHARD = 2


def build(
  model: Any,
  loss_of: Loss,
  *,
  batch_size: int,
  seq_len: int,
  learning_rate: float,
  accumulate: int,
  micro_batches: int,
) -> tuple[jax.stages.Wrapped, tuple[TrainState, BatchSpec]]:
  """Builds a step, and the shapes and shardings of its arguments.

  Args:
    model: A Flax module with a `mesh`, called with tokens.
    loss_of: The loss (params, batch) -> scalar, a mean over the batch.
    batch_size: Sequences over all devices; 0 for two per shard of the batch, in
      each accumulated micro-batch.
    seq_len: Tokens per sequence.
    learning_rate: Learning rate of AdamW.
    accumulate: Micro-batches whose gradients a loop accumulates.
    micro_batches: Micro-batches that each of those is split into, side by side.

  Returns:
    The jitted step (state, batch) -> (state, metrics), which donates the state
    and returns one with the same layout, and its arguments as
    ShapeDtypeStructs.

  Raises:
    ValueError: The batch cannot be split evenly.
  """
  mesh = model.mesh
  num_shards = sharding.num_shards("batch", mesh)
  batch_size = batch_size or _SEQUENCES_PER_SHARD * num_shards * accumulate
  num_parts = accumulate * micro_batches
  sharding.check_divisible("batch_size", batch_size, "batch", mesh, num_parts)

  optimizer = _optimizer(learning_rate)
  key = jax.eval_shape(jax.random.key, 0)
  boxed = jax.eval_shape(_initializer(model, optimizer), key)
  state_sharding = sharding.named_shardings(boxed, mesh)
  state = jax.tree.map(_spec, nn.unbox(boxed), state_sharding)

  tokens = jax.ShapeDtypeStruct(
    (batch_size, seq_len),
    jnp.int32,
    sharding=jax.sharding.NamedSharding(
      mesh, sharding.partition_spec(("batch",), mesh)
    ),
  )
  whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
  value_and_grad = _value_and_grad(loss_of, accumulate, micro_batches)
  step = jax.jit(
    _step_function(value_and_grad, optimizer),
    donate_argnums=0,
    out_shardings=(state_sharding, whole),
  )
  return step, (state, {"inputs": tokens, "targets": tokens})


def init_state(
  model_of: Callable[..., Any],
  state: TrainState,
  *,
  model: str,
  layers: str = "scan",
  seed: int = 0,
) -> TrainState:
  """Initializes a state, each value on the devices that hold it.

  Args:
    model_of: Makes the model: `model_of` of an example.
    state: The ShapeDtypeStructs from `train_step` of that example.
    model: The size given to `train_step`.
    layers: The layers given to `train_step`.
    seed: The same seed gives the same parameters on every mesh.
  """
  module = model_of(state.step.sharding.mesh, model=model, layers=layers)
  init = _initializer(module, _optimizer(learning_rate=0.0))
  shardings = jax.tree.map(lambda spec: spec.sharding, state)
  unboxed = jax.jit(lambda key: nn.unbox(init(key)), out_shardings=shardings)
  return unboxed(jax.random.key(seed))


def cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
  """Returns the mean negative log-likelihood in nats.

  A mask selects the target's logit. This stays local if the vocabulary is split
  over devices, where an index would gather the logits.

  Args:
    logits: float32 [B, S, vocab_size].
    targets: int32 [B, S].
  """
  vocab = jnp.arange(logits.shape[-1])
  is_target = targets[..., None] == vocab
  target_logits = jnp.sum(jnp.where(is_target, logits, 0.0), axis=-1)
  return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - target_logits)


def _value_and_grad(
  loss_of: Loss, accumulate: int, micro_batches: int
) -> Callable[..., tuple[jax.Array, Any]]:
  value_and_grad = jax.value_and_grad(loss_of)
  if micro_batches > 1:
    import lagom_xla

    value_and_grad = lagom_xla.micro_batches(loss_of, micro_batches)
  if accumulate > 1:
    value_and_grad = _accumulated(value_and_grad, accumulate)
  return value_and_grad


def _accumulated(
  value_and_grad: Callable[..., tuple[jax.Array, Any]], num: int
) -> Callable[..., tuple[jax.Array, Any]]:
  """The same for one micro-batch at a time, in the memory of one."""

  def parts_of(tokens: jax.Array) -> jax.Array:
    # Each device splits its own part of the batch, so no token moves.
    parts = tokens.reshape(-1, num, *tokens.shape[1:])
    return jnp.moveaxis(parts, 1, 0)

  def accumulated(params: Any, batch: Batch) -> tuple[jax.Array, Any]:
    def add(total: Any, part: Batch) -> tuple[Any, None]:
      return jax.tree.map(jnp.add, total, value_and_grad(params, part)), None

    zeros = jnp.zeros(()), jax.tree.map(jnp.zeros_like, params)
    total, _ = jax.lax.scan(add, zeros, jax.tree.map(parts_of, batch))
    loss, grads = jax.tree.map(lambda leaf: leaf / num, total)
    return loss, grads

  return accumulated


def _step_function(
  value_and_grad: Callable[..., tuple[jax.Array, Any]],
  optimizer: optax.GradientTransformation,
) -> Step:
  def train_step(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
    loss, grads = value_and_grad(state.params, batch)
    updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
    new_state = TrainState(
      step=state.step + 1,
      params=optax.apply_updates(state.params, updates),
      opt_state=opt_state,
    )
    metrics = {"loss": loss, "grad_norm": optax.tree.norm(grads)}
    return new_state, metrics

  return train_step


def _optimizer(learning_rate: float) -> optax.GradientTransformation:
  return optax.chain(
    optax.clip_by_global_norm(1.0),
    optax.adamw(learning_rate, b1=0.9, b2=0.95, weight_decay=0.1),
  )


def _initializer(
  model: Any, optimizer: optax.GradientTransformation
) -> Callable[[jax.Array], TrainState]:
  def init(key: jax.Array) -> TrainState:
    # The fewest tokens of which every device has a part.
    mesh = model.mesh
    shape = [sharding.num_shards(axis, mesh) for axis in ("batch", "sequence")]
    params = model.init(key, jnp.zeros(shape, jnp.int32))["params"]
    return TrainState(
      step=jnp.zeros((), jnp.int32),
      params=params,
      opt_state=optimizer.init(params),
    )

  return init


def _spec(
  value: jax.ShapeDtypeStruct, place: jax.sharding.Sharding
) -> jax.ShapeDtypeStruct:
  return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=place)
