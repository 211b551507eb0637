# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Cases: train steps of users, each over two links.

The training of a case is a jitted step, its initial state, and batches:

- perceptrons in Flax, data-parallel, with Optax's SGD;
- one all-reduce beside products that do not depend on it: the scaled rows of a
  batch update a prototype shared by all hosts, while frozen layers embed them;
- chains of collectives and products that can be cut into pieces: the step of
  `perceptrons.two_hosts_step`;
- a small Llama in Flax, data-parallel or tensor-parallel, in float32, the type
  in which CPUs multiply. The tensor-parallel one splits heads and hidden units
  over the devices, and each half of a layer ends in an all-reduce (arXiv
  1909.08053, section 3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import itertools
from typing import Any, Literal, cast

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.workloads import perceptrons as perceptrons_lib
from lagom_xla.passes import registry

# If passes make XLA drop donation, a step that donates its state gets no
# proposals.
DONATED = (0,) if registry.keeps_donation() else ()

_P = jax.sharding.PartitionSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
  """A step with its state and batches, for a training loop.

  Attributes:
    step: jitted, (state, batch) -> (state, loss).
    state: arrays on all devices.
    batches: batches to repeat.
  """

  step: jax.stages.Wrapped
  state: Any
  batches: Sequence[Any]


def of_loss(
  loss_of: Callable[[Any, Any], jax.Array],
  optimizer: optax.GradientTransformation,
  state: Mapping[str, Any],
  batches: Sequence[Any],
  mesh: jax.sharding.Mesh,
) -> Training:
  """The training of a model; `state` has "params" and the optimizer's "opt"."""

  def train_step(state: Any, batch: Any) -> tuple[Any, jax.Array]:
    loss, grads = jax.value_and_grad(loss_of)(state["params"], batch)
    updates, opt = optimizer.update(grads, state["opt"], state["params"])
    params = optax.apply_updates(state["params"], updates)
    return {"params": params, "opt": opt}, loss

  layout = jax.tree.map(lambda leaf: leaf.sharding, state)
  whole = jax.sharding.NamedSharding(mesh, _P())
  return Training(
    step=jax.jit(
      train_step, donate_argnums=DONATED, out_shardings=(layout, whole)
    ),
    state=state,
    batches=batches,
  )


def in_a_row(devices: Sequence[jax.Device], axis: str) -> jax.sharding.Mesh:
  """A mesh of one axis, for the compiler's partitioner."""
  return jax.sharding.Mesh(
    np.asarray(devices), (axis,), axis_types=(jax.sharding.AxisType.Auto,)
  )


def filled(
  shape: Sequence[int],
  mesh: jax.sharding.Mesh,
  *spec: str | None,
  seed: int,
  scale: float,
) -> jax.Array:
  """A float32 array of normal numbers, the same in every process."""
  whole = np.random.default_rng(seed).normal(scale=scale, size=shape)
  return placed(whole.astype(jnp.float32), mesh, *spec)


def placed(
  whole: np.ndarray, mesh: jax.sharding.Mesh, *spec: str | None
) -> jax.Array:
  """Lays an array out over a mesh; every process has the whole array."""
  sharding = jax.sharding.NamedSharding(mesh, _P(*spec))
  return jax.make_array_from_callback(
    whole.shape, sharding, lambda index: whole[index]
  )


_AXIS = "data"
_NUM_BATCHES = 4


def perceptrons(
  devices: Sequence[jax.Device], *, num_layers: int, width: int, num_rows: int
) -> Training:
  """Training of layers with two arrays each; `num_rows` is the total batch."""
  mesh = in_a_row(devices, _AXIS)
  layers = [(nn.Dense(width), nn.relu) for _ in range(num_layers)]
  model = nn.Sequential([*itertools.chain.from_iterable(layers)])
  optimizer = optax.sgd(1e-2)
  params = model.init(jax.random.key(0), jnp.zeros((1, width)))
  state = {"params": params, "opt": optimizer.init(params)}
  state = jax.tree.map(lambda leaf: placed(np.asarray(leaf), mesh), state)

  def loss_of(params: Any, batch: Any) -> jax.Array:
    predicted = cast(jax.Array, model.apply(params, batch["inputs"]))
    return jnp.mean(jnp.square(predicted - batch["targets"]))

  batches = [
    {
      name: filled((num_rows, width), mesh, _AXIS, seed=2 * n + of, scale=1.0)
      for of, name in enumerate(("inputs", "targets"))
    }
    for n in range(_NUM_BATCHES)
  ]
  return of_loss(loss_of, optimizer, state, batches, mesh)


_NUM_PRODUCT_BATCHES = 2


def products(
  devices: Sequence[jax.Device], *, width: int, num_products: int
) -> Training:
  """Training of a chain of products, beside a prototype that hosts share."""
  mesh = in_a_row(devices, _AXIS)

  def local_step(prototype: Any, batch: Any) -> tuple[Any, jax.Array]:
    rows = batch["rows"]
    rows /= jnp.abs(rows).max(axis=-1, keepdims=True)
    moved = prototype + 1e-3 * jax.lax.pmean(rows, _AXIS)
    for layer in batch["layers"]:
      rows = jax.nn.softmax(rows @ layer)
    return moved, jnp.square(rows).mean()[None]

  step = jax.shard_map(
    local_step,
    mesh=mesh,
    in_specs=(_P(), {"rows": _P(_AXIS), "layers": _P()}),
    out_specs=(_P(), _P(_AXIS)),
    check_vma=False,
  )
  step.__name__ = "train_step"
  layers = [
    filled((width, width), mesh, seed=n, scale=width**-0.5)
    for n in range(num_products)
  ]
  num_devices = len(devices)
  batches = [
    {
      "rows": filled(
        (num_devices * width, width), mesh, _AXIS, seed=seed, scale=1.0
      ),
      "layers": layers,
    }
    for seed in range(_NUM_PRODUCT_BATCHES)
  ]
  return Training(
    step=jax.jit(step, donate_argnums=DONATED),
    state=filled((width, width), mesh, seed=num_products, scale=0.1),
    batches=batches,
  )


def sliced(devices: Sequence[jax.Device], *, num_tokens: int) -> Training:
  """Training on micro-batches of this many tokens over all devices."""
  sizes = perceptrons_lib.Sizes(tokens=num_tokens, num_layers=2)
  step, (weights, batch) = perceptrons_lib.two_hosts_step(
    devices, sizes, donate_argnums=DONATED
  )
  return Training(
    step=step,
    state=jax.tree.map(perceptrons_lib.filled, weights),
    batches=[perceptrons_lib.filled(batch)],
  )


Parallel = Literal["data", "model"]

_NUM_LAYERS = 4
_WIDTH = 256
_NUM_HEADS = 4
_HIDDEN = 1024
_VOCABULARY = 512
_NUM_SEQUENCES = 8
_NUM_TOKENS = 128
_THETA = 10000.0
_NUM_LLAMA_BATCHES = 4
# The axis along which tensor parallelism splits each weight.
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
    """Runs attention and the feed-forward layer."""
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


def llama(devices: Sequence[jax.Device], *, parallel: Parallel) -> Training:
  """Training of a Llama whose batch ("data") or weights ("model") are split."""
  mesh = in_a_row(devices, parallel)
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

  batches = [_batch(mesh, parallel, seed) for seed in range(_NUM_LLAMA_BATCHES)]
  return of_loss(loss_of, optimizer, state, batches, mesh)


def _rotated(x: jax.Array) -> jax.Array:
  """Applies rotary position embeddings (arXiv 2104.09864)."""
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
  return placed(np.asarray(leaf), mesh, *spec)


def _batch(mesh: jax.sharding.Mesh, parallel: Parallel, seed: int) -> Any:
  rng = np.random.default_rng(seed)
  tokens = rng.integers(_VOCABULARY, size=(_NUM_SEQUENCES, _NUM_TOKENS + 1))
  tokens = tokens.astype(np.int32)
  spec = (parallel,) if parallel == "data" else ()
  return {
    "inputs": placed(tokens[:, :-1], mesh, *spec),
    "targets": placed(tokens[:, 1:], mesh, *spec),
  }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
  """A train step, and the rates of the link between the hosts, in Mb/s."""

  build: Callable[[Sequence[jax.Device]], Training]
  rates: tuple[int, ...]


CASES: Mapping[str, Case] = {
  "one all-reduce beside products": Case(
    build=functools.partial(products, width=512, num_products=6),
    rates=(200, 1000),
  ),
  "data-parallel MLP": Case(
    build=functools.partial(
      perceptrons, num_layers=8, width=512, num_rows=1024
    ),
    rates=(200, 400),
  ),
  "many small gradients": Case(
    build=functools.partial(perceptrons, num_layers=48, width=64, num_rows=128),
    rates=(200, 1000),
  ),
  "data-parallel Llama": Case(
    build=functools.partial(llama, parallel="data"), rates=(200, 400)
  ),
  "tensor-parallel Llama": Case(
    build=functools.partial(llama, parallel="model"), rates=(200, 400)
  ),
  "slices of many tokens": Case(
    build=functools.partial(sliced, num_tokens=512), rates=(100, 200)
  ),
  "slices of few tokens": Case(
    build=functools.partial(sliced, num_tokens=256), rates=(400, 1000)
  ),
}
