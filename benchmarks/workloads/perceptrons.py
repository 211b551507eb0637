# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Steps of two-layer perceptrons, trained by gradient descent.

`lower` unrolls the layers, so that each may have its own width, and its
collectives their own tuning key. There are three layouts over all devices:
every layer's weights sharded and gathered for use (FSDP), hidden units sharded
(TP), or one expert's layers on each device and rows exchanged (EP).

`lower_scanned` scans over layers: the smallest steps with the features of large
ones, which XLA schedules in about a second. Weights and rows are sharded over
one mesh axis and gathered for use, hidden units over the other.

`two_hosts_step` is small, in float32, and runs on two hosts, which split every
product. Tokens are gathered before the first of a layer's two products and
scattered after the second, as in Megatron-LM's sequence parallelism, in a scan
over layers. A loop accumulates the gradients of micro-batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np

_AXIS = "x"
_ROWS = PartitionSpec(_AXIS, None)
_EXPERTS = PartitionSpec(_AXIS, None, None)
# Shardings of the weights up and down.
_SPECS = {
  "fsdp": (_ROWS, _ROWS),
  "tp": (PartitionSpec(None, _AXIS), _ROWS),
  "ep": (_EXPERTS, _EXPERTS),
}

Layout = Literal["fsdp", "tp", "ep"]


def _lowered_step(
  loss: Callable[[Any, jax.Array], jax.Array],
  params: Any,
  rows: jax.ShapeDtypeStruct,
  mesh: Mesh,
) -> jax.stages.Lowered:
  """A step of gradient descent, which donates the parameters."""

  def train_step(params: Any, h: jax.Array) -> Any:
    value, grads = jax.value_and_grad(loss)(params, h)
    rate = jnp.bfloat16(0.01)
    return jax.tree.map(lambda p, g: p - rate * g, params, grads), value

  weights = jax.tree.map(lambda weight: weight.sharding, params)
  out = (weights, NamedSharding(mesh, PartitionSpec()))
  step = jax.jit(train_step, donate_argnums=0, out_shardings=out)
  return step.lower(params, rows)


def lower(
  devices: Sequence[jax.Device],
  *,
  layout: Layout,
  hidden: Sequence[int],
  width: int = 2048,
  rows_per_device: int = 4096,
  forward_only: bool = False,
) -> jax.stages.Lowered:
  """Lowers one step of unrolled layers.

  Args:
    devices: the devices of the layout.
    layout: see the module's docstring.
    hidden: hidden units of each layer, a multiple of the devices.
    width: width of the residual stream.
    rows_per_device: rows on each device; with "tp", all devices have all rows.
    forward_only: computes only the loss of each row, so that "fsdp" has one
      gather per layer, and no other communication.
  """
  mesh = Mesh(np.array(devices), (_AXIS,))

  def shape(spec: PartitionSpec, *sizes: int) -> jax.ShapeDtypeStruct:
    sharding = NamedSharding(mesh, spec)
    return jax.ShapeDtypeStruct(sizes, jnp.bfloat16, sharding=sharding)

  up, down = _SPECS[layout]
  experts = (len(devices),) if layout == "ep" else ()
  params = [
    {
      "up": shape(up, *experts, width, units),
      "down": shape(down, *experts, units, width),
    }
    for units in hidden
  ]
  if forward_only:
    params = [{"up": layer["up"]} for layer in params]
  rows = shape(_ROWS, rows_per_device * len(devices), width)
  if layout == "tp":
    rows = shape(PartitionSpec(None, None), rows_per_device, width)

  def losses(params: Any, h: jax.Array) -> jax.Array:
    for layer in params:
      h = _apply(mesh, layout, h, layer)
    return jnp.mean(jnp.square(h.astype(jnp.float32)), axis=-1)

  if forward_only:
    return jax.jit(losses).lower(params, rows)
  return _lowered_step(
    lambda params, h: jnp.mean(losses(params, h)), params, rows, mesh
  )


def _apply(
  mesh: Mesh, layout: Layout, h: jax.Array, layer: dict[str, jax.Array]
) -> jax.Array:
  """One perceptron, with its residual."""

  def whole(weight: jax.Array) -> jax.Array:
    if layout != "fsdp":
      return weight
    return jax.lax.with_sharding_constraint(
      weight, NamedSharding(mesh, PartitionSpec())
    )

  if layout == "ep":
    return h + _experts(mesh, h, layer)
  w_up = whole(layer["up"])
  w_down = whole(layer["down"]) if "down" in layer else w_up.T
  return h + jax.nn.relu(h @ w_up) @ w_down


def _experts(
  mesh: Mesh, h: jax.Array, layer: dict[str, jax.Array]
) -> jax.Array:
  """Sends an equal part of each device's rows to every expert and back."""
  num_experts = mesh.shape[_AXIS]

  def on_device(rows: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
    width = rows.shape[-1]
    parts = rows.reshape(num_experts, -1, width)
    mine = jax.lax.all_to_all(parts, _AXIS, 0, 0)
    hidden = jax.nn.relu(mine.reshape(-1, width) @ up[0]) @ down[0]
    back = jax.lax.all_to_all(hidden.reshape(parts.shape), _AXIS, 0, 0)
    return back.reshape(rows.shape)

  spec = PartitionSpec(_AXIS)
  return jax.shard_map(
    on_device, mesh=mesh, in_specs=(spec, spec, spec), out_specs=spec
  )(h, layer["up"], layer["down"])


def lower_scanned(
  devices: Sequence[jax.Device],
  *,
  data: int,
  num_layers: int,
  width: int,
  hidden: int,
  rows_per_device: int,
) -> jax.stages.Lowered:
  """Lowers one step of scanned layers.

  Args:
    devices: the devices of the layout.
    data: size of the axis that shards weights and rows; the other one shards
      hidden units.
    num_layers: iterations of the scan.
    width: width of the residual stream.
    hidden: hidden units of each layer.
    rows_per_device: rows on each device.
  """
  mesh = Mesh(np.reshape(devices, (data, -1)), ("data", "model"))

  def sharded(*spec: str | None) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec(*spec))

  def stacked(*shape: int, spec: tuple[str, str]) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(
      (num_layers, *shape), jnp.bfloat16, sharding=sharded(None, *spec)
    )

  def layer(h: jax.Array, weights: Any) -> tuple[jax.Array, None]:
    up, down = (
      jax.lax.with_sharding_constraint(weights[name], sharded(*spec))
      for name, spec in (("up", (None, "model")), ("down", ("model", None)))
    )
    h += jax.nn.relu(h @ up) @ down
    return jax.lax.with_sharding_constraint(h, sharded("data", None)), None

  def loss(params: Any, h: jax.Array) -> jax.Array:
    h, _ = jax.lax.scan(layer, h, params)
    return jnp.mean(jnp.square(h.astype(jnp.float32)))

  params = {
    "up": stacked(width, hidden, spec=("data", "model")),
    "down": stacked(hidden, width, spec=("model", "data")),
  }
  rows = jax.ShapeDtypeStruct(
    (data * rows_per_device, width),
    jnp.bfloat16,
    sharding=sharded("data", None),
  )
  return _lowered_step(loss, params, rows, mesh)


_HOSTS_AXIS = "model"
_P = jax.sharding.PartitionSpec


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
  """The step's sizes, over both hosts together; micro-batches accumulate."""

  tokens: int
  width: int = 512
  hidden: int = 2048
  num_layers: int = 4
  num_microbatches: int = 4


def two_hosts_step(
  devices: Sequence[jax.Device],
  sizes: Sizes,
  *,
  donate_argnums: tuple[int, ...] = (),
) -> tuple[jax.stages.Wrapped, tuple[Any, ...]]:
  """The jitted step (weights, batch) -> (weights, loss), and its arguments."""
  mesh = jax.sharding.Mesh(np.array(devices), (_HOSTS_AXIS,))
  rows = _P(None, _HOSTS_AXIS)
  specs = {
    "up": _P(None, None, _HOSTS_AXIS),
    "down": _P(None, _HOSTS_AXIS),
  }

  def shape(spec: Any, *size: int) -> jax.ShapeDtypeStruct:
    sharding = jax.sharding.NamedSharding(mesh, spec)
    return jax.ShapeDtypeStruct(size, jnp.float32, sharding=sharding)

  step = jax.shard_map(
    lambda w, x: _local_step(sizes, w, x),
    mesh=mesh,
    in_specs=(specs, rows),
    out_specs=(specs, _P()),
    check_vma=False,
  )
  step.__name__ = "train_step"
  arguments = (
    {
      "up": shape(specs["up"], sizes.num_layers, sizes.width, sizes.hidden),
      "down": shape(specs["down"], sizes.num_layers, sizes.hidden, sizes.width),
    },
    shape(rows, sizes.num_microbatches, sizes.tokens, sizes.width),
  )
  return jax.jit(step, donate_argnums=donate_argnums), arguments


def _layer(x: jax.Array, weights: Any) -> tuple[jax.Array, None]:
  whole = jax.lax.all_gather(x, _HOSTS_AXIS, axis=0, tiled=True)
  hidden = jax.nn.relu(whole @ weights["up"])
  out = jax.lax.psum_scatter(
    hidden @ weights["down"], _HOSTS_AXIS, scatter_dimension=0, tiled=True
  )
  return x + out, None


def _loss(weights: Any, x: jax.Array) -> jax.Array:
  x, _ = jax.lax.scan(jax.checkpoint(_layer), x, weights)
  return jnp.mean(jnp.square(x))


def _local_step(sizes: Sizes, weights: Any, batch: jax.Array) -> Any:
  """The program of one host."""
  zeros = (jnp.float32(0), jax.tree.map(jnp.zeros_like, weights))

  def add(sums: Any, x: jax.Array) -> tuple[Any, None]:
    more = jax.value_and_grad(_loss)(weights, x)
    return jax.tree.map(jnp.add, sums, more), None

  (loss, gradients), _ = jax.lax.scan(add, zeros, batch)
  rate = 1e-3 / sizes.num_microbatches
  stepped = jax.tree.map(lambda w, g: w - rate * g, weights, gradients)
  return stepped, jax.lax.psum(loss, _HOSTS_AXIS)


def filled(spec: jax.ShapeDtypeStruct) -> jax.Array:
  """An array of small numbers, the same on both hosts."""
  rng = np.random.default_rng(0)
  whole = rng.normal(scale=0.02, size=spec.shape).astype(spec.dtype)
  return jax.make_array_from_callback(
    spec.shape, spec.sharding, lambda index: whole[index]
  )
