# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Steps that Python partitions, as JAX's cuDNN attention does.

XLA calls the Python functions by their addresses, so they must be in the
process that compiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.experimental import custom_partitioning
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np

from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import pool as pool_lib
from lagom_xla.compile import target
from lagom_xla.passes import collectives
from lagom_xla.passes.schedule import digest


@custom_partitioning.custom_partitioning
def _doubled(x: jax.Array) -> jax.Array:
  return x + x


def _partition(mesh: Any, args: Any, result: Any) -> Any:
  return mesh, lambda x: x + x, result.sharding, (args[0].sharding,)


_doubled.def_partition(partition=_partition, sharding_rule="i j -> i j")


def test_with_workers_it_is_compiled_where_its_functions_are(
  h100s: Sequence[jax.Device],
) -> None:
  rows = NamedSharding(Mesh(np.array(h100s), ("x",)), P("x"))
  x = jax.ShapeDtypeStruct((512, 512), jnp.bfloat16, sharding=rows)
  lowered = jax.jit(lambda x: jnp.sum(_doubled(x) @ x)).lower(x)
  cluster = cluster_lib.parse("1x8xh100")
  here = target.of_step(lowered, cluster, name="step")
  with pool_lib.Pool(1) as pool:
    module = here.with_workers(pool).schedule()
  assert digest.of(module.proto) == digest.of(here.schedule().proto)
  assert "all-reduce" in {c.kind for c in collectives.find(module)}
