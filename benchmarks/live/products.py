# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Training with one all-reduce beside products that need nothing of it.

The rows of a batch, scaled, move a prototype that all hosts share, while frozen
layers embed them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.live import training

_AXIS = "data"
_NUM_BATCHES = 2
_P = jax.sharding.PartitionSpec


def build(
  devices: Sequence[jax.Device], *, width: int, num_products: int
) -> training.Training:
  """Makes the training.

  Args:
    devices: to train on.
    width: of the layers, and rows of a host's batch.
    num_products: in the chain.
  """
  mesh = training.mesh(devices, _AXIS)

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
    training.filled((width, width), mesh, seed=n, scale=width**-0.5)
    for n in range(num_products)
  ]
  num_devices = len(devices)
  batches = [
    {
      "rows": training.filled(
        (num_devices * width, width), mesh, _AXIS, seed=seed, scale=1.0
      ),
      "layers": layers,
    }
    for seed in range(_NUM_BATCHES)
  ]
  return training.Training(
    step=jax.jit(step, donate_argnums=training.DONATED),
    state=training.filled((width, width), mesh, seed=num_products, scale=0.1),
    batches=batches,
  )
