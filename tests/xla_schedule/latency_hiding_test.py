# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA's latency-hiding scheduler is asked for where it is not on by itself."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.search.xla import joint
from lagom_xla.search.xla import knobs

_OPTION = "xla_gpu_enable_latency_hiding_scheduler"
_ON = config_lib.XlaConfig(options={_OPTION: True})
_LAYERS, _ROWS, _WIDTH, _HIDDEN = 4, 4096, 512, 2048

Exchange = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


def _ragged(x: jax.Array, at: jax.Array, sizes: jax.Array) -> jax.Array:
  return jax.lax.ragged_all_to_all(
    x, jnp.zeros_like(x), at, sizes, at, sizes, axis_name="e"
  )


def _even(x: jax.Array, at: jax.Array, sizes: jax.Array) -> jax.Array:
  del at, sizes
  return jax.lax.all_to_all(x, "e", 0, 0, tiled=True)


def _experts(exchange: Exchange, gpu: str) -> target_lib.StepTarget:
  """Layers that exchange tokens while another product could run."""
  cluster = cluster_lib.parse(f"1x8x{gpu}")
  mesh = Mesh(np.array(devices_lib.devices(cluster)), ("e",))

  def layers(x, weights, at, sizes):
    def layer(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
      routed = exchange(x, at[0], sizes[0])
      return routed @ w @ w.T + jnp.tanh(x @ w) @ w.T, None

    return jax.lax.scan(layer, x, weights)[0]

  def shape(sizes: tuple[int, ...], dtype: jnp.dtype, *spec: str | None):
    sharding = NamedSharding(mesh, P(*spec))
    return jax.ShapeDtypeStruct(sizes, dtype, sharding=sharding)

  split = P("e")
  step = jax.shard_map(
    layers,
    mesh=mesh,
    in_specs=(split, P(), split, split),
    out_specs=split,
    check_vma=False,
  )
  lowered = jax.jit(step).lower(
    shape((8 * _ROWS, _WIDTH), jnp.bfloat16, "e"),
    shape((_LAYERS, _WIDTH, _HIDDEN), jnp.bfloat16),
    shape((8, 8), jnp.int32, "e"),
    shape((8, 8), jnp.int32, "e"),
  )
  return target_lib.of_step(lowered, cluster, name="experts")


def _is_offered(module: hlo.Module, target: target_lib.Target) -> bool:
  step = step_lib.of_module(module, target.cluster)
  return any(v.options == {_OPTION: True} for v in knobs.worth_trying(step))


def _orders(module: hlo.Module) -> list[list[str]]:
  return [
    [i.name for i in c.instructions] for c in module.computations.values()
  ]


@pytest.mark.parametrize(
  ("exchange", "gpu", "is_on"),
  [(_even, "h100", True), (_ragged, "h100", False), (_even, "a100_80", False)],
)
def test_a_schedule_tells_which_scheduler_made_it(h100s, exchange, gpu, is_on):
  target = _experts(exchange, gpu)
  default, asked_for = target.schedule(), target.schedule(_ON)
  assert knobs.is_latency_hiding(asked_for)
  assert knobs.is_latency_hiding(default) == is_on
  assert (_orders(default) == _orders(asked_for)) == is_on
  assert _is_offered(default, target) != is_on
  assert not _is_offered(asked_for, target)


def test_limits_on_overlap_are_for_the_scheduler_that_reads_them(h100s):
  target = _experts(_ragged, "h100")
  limited = config_lib.XlaConfig(
    options={"xla_gpu_experimental_parallel_collective_overlap_limit": 4}
  )
  default = target.schedule()
  assert _orders(target.schedule(limited)) == _orders(default)
  step = step_lib.of_module(default, target.cluster)
  names = {n for v in knobs.worth_trying(step) for n in v.options}
  assert names.isdisjoint(limited.options)


def test_a_search_switches_it_on_beside_a_ragged_all_to_all(h100s):
  found = joint.search(_experts(_ragged, "h100"), arms=())
  assert found.best.config.options[_OPTION] is True
  default, best = found.default.under_nccl_defaults, found.best.tuned
  assert best.total_exposed_us < default.total_exposed_us
  assert best.step_time_us < default.step_time_us
