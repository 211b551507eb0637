# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Training of a case: a jitted step, the state it starts from, and batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lagom_xla.passes import registry

# Where passes make XLA forget donated inputs, nothing is proposed for a step
# that donates its state.
DONATED = (0,) if registry.keeps_donation() else ()

_P = jax.sharding.PartitionSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
  """What a training loop needs.

  Attributes:
    step: jitted, (state, batch) -> (state, loss).
    state: arrays on all devices.
    batches: to go through again and again.
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
  """Makes the training of a model.

  Args:
    loss_of: of parameters and a batch.
    optimizer: of Optax.
    state: "params", and "opt" for the optimizer's; stays where it is laid out.
    batches: to go through again and again.
    mesh: of the devices.
  """

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


def mesh(devices: Sequence[jax.Device], axis: str) -> jax.sharding.Mesh:
  """Devices in a row, for the compiler to partition over."""
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
  """An array laid out over a mesh, of which every process has all."""
  sharding = jax.sharding.NamedSharding(mesh, _P(*spec))
  return jax.make_array_from_callback(
    whole.shape, sharding, lambda index: whole[index]
  )
