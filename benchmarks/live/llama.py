# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Training of a small Llama in Flax: data-parallel or tensor-parallel.

In float32, in which CPUs multiply. Tensor-parallel, heads and hidden units are
split over the devices, and each half of a layer ends in an all-reduce
(arXiv 1909.08053, section 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.live import training

Parallel = Literal["data", "model"]

_NUM_LAYERS = 4
_WIDTH = 256
_NUM_HEADS = 4
_HIDDEN = 1024
_VOCABULARY = 512
_NUM_SEQUENCES = 8
_NUM_TOKENS = 128
_THETA = 10000.0
_NUM_BATCHES = 4
# The axis along which each weight is split, tensor-parallel.
_SPLIT = {
  "query": 1,
  "key": 1,
  "value": 1,
  "output": 0,
  "gate": 1,
  "up": 1,
  "down": 0,
}


class Layer(nn.Module):
  """One decoder layer, [sequences, tokens, width]."""

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """Attends, and feeds forward."""
    y = nn.RMSNorm(name="attention_norm")(x)
    query, key, value = (
      self._heads(name, y) for name in ("query", "key", "value")
    )
    mixed = jax.nn.dot_product_attention(
      _rotated(query), _rotated(key), value, is_causal=True
    )
    x += self._dense("output", _WIDTH)(mixed.reshape(y.shape))
    y = nn.RMSNorm(name="ffn_norm")(x)
    hidden = nn.silu(self._dense("gate", _HIDDEN)(y))
    return x + self._dense("down", _WIDTH)(
      hidden * self._dense("up", _HIDDEN)(y)
    )

  def _dense(self, name: str, width: int) -> nn.Dense:
    return nn.Dense(width, use_bias=False, name=name)

  def _heads(self, name: str, x: jax.Array) -> jax.Array:
    return self._dense(name, _WIDTH)(x).reshape(*x.shape[:2], _NUM_HEADS, -1)


class Llama(nn.Module):
  """Token ids [sequences, tokens] to logits [sequences, tokens, vocabulary]."""

  @nn.compact
  def __call__(self, tokens: jax.Array) -> jax.Array:
    """Embeds, decodes, and projects to the vocabulary."""
    x = nn.Embed(_VOCABULARY, _WIDTH)(tokens)
    for number in range(_NUM_LAYERS):
      x = Layer(name=f"layer_{number}")(x)
    return nn.Dense(_VOCABULARY, use_bias=False)(nn.RMSNorm()(x))


def build(
  devices: Sequence[jax.Device], *, parallel: Parallel
) -> training.Training:
  """Makes the training.

  Args:
    devices: to train on.
    parallel: what they split: the batch ("data") or the weights ("model").
  """
  mesh = training.mesh(devices, parallel)
  model = Llama()
  optimizer = optax.adamw(1e-3)
  tokens = jnp.zeros((1, _NUM_TOKENS), jnp.int32)
  params = model.init(jax.random.key(0), tokens)
  state = {"params": params, "opt": optimizer.init(params)}
  state = jax.tree_util.tree_map_with_path(
    lambda path, leaf: _placed(path, leaf, mesh, parallel), state
  )

  def loss_of(params: Any, batch: Any) -> jax.Array:
    logits = cast(jax.Array, model.apply(params, batch["inputs"]))
    return optax.softmax_cross_entropy_with_integer_labels(
      logits, batch["targets"]
    ).mean()

  batches = [_batch(mesh, parallel, seed) for seed in range(_NUM_BATCHES)]
  return training.of_loss(loss_of, optimizer, state, batches, mesh)


def _rotated(x: jax.Array) -> jax.Array:
  """Turns pairs of features by the token's position (arXiv 2104.09864)."""
  num_pairs = x.shape[-1] // 2
  angles = (
    jnp.arange(x.shape[1])[:, None]
    * _THETA ** (-jnp.arange(num_pairs) / num_pairs)
  )[:, None, :]
  first, second = jnp.split(x, 2, axis=-1)
  return jnp.concatenate(
    (
      first * jnp.cos(angles) - second * jnp.sin(angles),
      second * jnp.cos(angles) + first * jnp.sin(angles),
    ),
    axis=-1,
  )


def _placed(
  path: Any, leaf: jax.Array, mesh: jax.sharding.Mesh, parallel: Parallel
) -> jax.Array:
  names = {getattr(key, "key", None) for key in path}
  split = next((_SPLIT[name] for name in _SPLIT if name in names), None)
  spec: tuple[str | None, ...] = ()
  if parallel == "model" and split is not None:
    spec = (*(None,) * split, parallel)
  return training.placed(np.asarray(leaf), mesh, *spec)


def _batch(mesh: jax.sharding.Mesh, parallel: Parallel, seed: int) -> Any:
  rng = np.random.default_rng(seed)
  tokens = rng.integers(_VOCABULARY, size=(_NUM_SEQUENCES, _NUM_TOKENS + 1))
  tokens = tokens.astype(np.int32)
  spec = (parallel,) if parallel == "data" else ()
  return {
    "inputs": training.placed(tokens[:, :-1], mesh, *spec),
    "targets": training.placed(tokens[:, 1:], mesh, *spec),
  }
