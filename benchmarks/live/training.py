# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Training of a case: a jitted step, the state it starts from, and batches."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

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
