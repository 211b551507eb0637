# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Which values of a program are pinned to the sharding of the batch."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np

from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.passes.program import pins as pins_lib

_CLUSTER = cluster_lib.parse("1x8xh100")
_ROWS, _WIDTH = 64, 32


def test_state_with_the_shape_of_the_batch_is_not_pinned(
  h100s: Sequence[jax.Device],
) -> None:
  mesh = Mesh(np.array(h100s), ("d",))

  def loss(params, x):
    for w in params:  # State is float32, activations are bfloat16.
      w = w.astype(x.dtype)
      x = x + jnp.tanh(x @ w.T) @ w
    return jnp.sum(x.astype(jnp.float32))

  def step(params, means, batch):
    def micro(grads, x):
      more = jax.grad(loss)(params, x)
      return jax.tree.map(jnp.add, grads, more), None

    zeros = jax.tree.map(jnp.zeros_like, params)
    grads, _ = jax.lax.scan(micro, zeros, batch)
    means = jax.tree.map(lambda m, g: 0.9 * m + g, means, grads)
    params = jax.tree.map(lambda p, m: p - m / (1 + m * m), params, means)
    return params, means

  def shape(sizes, dtype, *spec):
    sharding = NamedSharding(mesh, P(*spec))
    return jax.ShapeDtypeStruct(sizes, dtype, sharding=sharding)

  params = [shape((_ROWS, _WIDTH), jnp.float32) for _ in range(3)]
  batch = shape((4, _ROWS, _WIDTH), jnp.bfloat16, None, "d")
  lowered = jax.jit(step).lower(params, params, batch)
  target = target_lib.of_step(lowered, _CLUSTER, name="step")
  _, pins = pins_lib.pin_activations(
    target.lowered.stablehlo, [2 * len(params)]
  )
  assert pins and {pin.shape for pin in pins} == {f"bf16[{_ROWS},{_WIDTH}]"}
