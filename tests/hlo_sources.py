# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sources of one module, compiled for CPUs, and what reading them gives."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from lagom_xla import errors
from lagom_xla.passes import hlo


def _cpu_compiled() -> jax.stages.Compiled:
  def step(weights: jax.Array, x: jax.Array) -> jax.Array:
    return jax.lax.scan(lambda h, w: (jnp.sin(h @ w), None), x, weights)[0]

  weights = jax.ShapeDtypeStruct((5, 8, 8), jnp.float32)
  x = jax.ShapeDtypeStruct((4, 8), jnp.float32)
  return jax.jit(step, donate_argnums=1).lower(weights, x).compile()


COMPILED = _cpu_compiled()
TEXT = COMPILED.as_text() or ""
PROTO = hlo.load(COMPILED).proto.SerializeToString()
HLO_PROTO = hlo.hlo_pb2.HloProto(
  hlo_module=hlo.load(COMPILED).proto
).SerializeToString()


def names(module: hlo.Module) -> dict[str, list[str]]:
  return {
    c.name: [i.name for i in c.instructions]
    for c in module.computations.values()
  }


def error_of(source: Any) -> str:
  with pytest.raises(errors.HloError) as caught:
    hlo.load(source)
  return str(caught.value)
