# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Arms are settings that users could use anyway: recipes, XLA's defaults."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np
import pytest

import arm_steps
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.flags import debug_options
from lagom_xla.flags import options as xla_options
from lagom_xla.flags import recipes
from lagom_xla.passes import hlo
from lagom_xla.passes.schedule import digest
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.search.xla import knobs


@pytest.mark.parametrize("recipe", recipes.RECIPES)
def test_a_recipe_names_its_source_and_fits_the_installed_jaxlib(recipe):
  assert recipe.source and len(recipe.date) == len("2026-01-01")
  fitted = recipes.as_options(recipe)
  for name, value in fitted.options.items():
    option = debug_options.find(name)
    assert option is not None and option.default != value
  pipelined = [name for name in fitted.options if "pipeline" in name]
  assert len(pipelined) == 2  # For reduce-scatters, it is on by default.
  assert fitted.options[arm_steps.DOUBLED] is True
  read = recipe.flags.split()
  left_out = [m for m in fitted.messages if m.endswith("It was left out.")]
  assert len(left_out) < len(read)
  for message in left_out:
    assert message.split()[0] in recipe.flags


_TRITON = "xla_gpu_enable_triton_gemm"


def test_recipes_by_number_of_nodes_are_chosen_by_cluster_size():
  sizes = {
    num_nodes: {r.num_nodes for r in recipes.for_nodes(num_nodes)} - {None}
    for num_nodes in (1, 3, 8, 128)
  }
  assert sizes == {1: {1}, 3: {2}, 8: {8}, 128: {16}}


def _products(recipe: recipes.Recipe) -> set[str]:
  return {_TRITON} & recipes.as_options(recipe).options.keys()


def test_arms_are_recipes_without_options_that_change_matmuls():
  published = arms_lib.known(arm_steps.H100).arms
  expected = recipes.for_nodes(arm_steps.H100.num_nodes)
  assert [a.name for a in published] == [r.name for r in expected]
  assert any(map(_products, expected)) and not all(map(_products, expected))
  for arm, recipe in zip(published, expected, strict=True):
    assert arm.source
    assert _TRITON not in arm.config.options
    told = [note for note in arm.notes if f"{_TRITON} is left out" in note]
    assert len(told) == len(_products(recipe))


def test_arms_keep_the_matmul_options_of_recipes_on_gpus(monkeypatch):
  monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
  for arm, recipe in zip(
    arms_lib.known(arm_steps.H100).arms,
    recipes.for_nodes(arm_steps.H100.num_nodes),
    strict=True,
  ):
    assert _products(recipe) <= arm.config.options.keys()


def test_xla_flags_that_change_only_matmuls_add_no_default_arm(monkeypatch):
  monkeypatch.setenv("XLA_FLAGS", f"--{_TRITON}=false")
  arms = arms_lib.known(arm_steps.H100).arms
  assert all(arm.source and _TRITON not in arm.config.options for arm in arms)


def test_xlas_defaults_are_an_arm_if_xla_flags_is_set(monkeypatch):
  monkeypatch.setenv(
    "XLA_FLAGS",
    f"--{arm_steps.SLOP}=80 --xla_force_host_platform_device_count=8",
  )
  plain, *others = arms_lib.known(arm_steps.H100).arms
  option = debug_options.find(arm_steps.SLOP)
  assert option is not None
  assert plain.config.options == {arm_steps.SLOP: option.default}
  for arm in others:
    assert arm.config.options[arm_steps.SLOP] == option.default


_SCHEDULER = "xla_gpu_enable_latency_hiding_scheduler"


def _exchanging(devices: Sequence[jax.Device]) -> jax.stages.Lowered:
  """A ragged-all-to-all, which XLA's estimates do not cover."""
  mesh, spec = Mesh(np.array(devices), ("x",)), P("x")

  def exchange(rows, sizes):
    offsets = jnp.cumsum(sizes) - sizes
    return lax.ragged_all_to_all(
      *(rows, jnp.zeros_like(rows)),
      *(offsets, sizes, offsets, sizes),
      axis_name="x",
    )

  mapped = jax.shard_map(
    exchange, mesh=mesh, in_specs=(spec, spec), out_specs=spec
  )
  rows = NamedSharding(mesh, spec)
  return jax.jit(mapped).lower(
    jax.ShapeDtypeStruct((512, 256), jnp.bfloat16, sharding=rows),
    jax.ShapeDtypeStruct((64,), jnp.int32, sharding=rows),
  )


def _sending(devices: Sequence[jax.Device]) -> jax.stages.Lowered:
  """A loop of permutes, which XLA turns into sends if asked to."""
  mesh, spec = Mesh(np.array(devices), ("x",)), P("x")

  def pass_on(_, x):
    return lax.ppermute(x, "x", [(i, i + 1) for i in range(4)]) @ x.T @ x

  def loop(x):
    return lax.fori_loop(0, 8, pass_on, x)

  mapped = jax.shard_map(loop, mesh=mesh, in_specs=spec, out_specs=spec)
  rows = NamedSharding(mesh, spec)
  x = jax.ShapeDtypeStruct((512, 256), jnp.bfloat16, sharding=rows)
  return jax.jit(mapped).lower(x)


def test_xlas_scheduler_stays_on_for_steps_with_sends(h100s):
  lowered = _sending(h100s)
  target = target_lib.of_step(lowered, arm_steps.H100, name="step")
  options = {
    "xla_gpu_collective_permute_decomposer_threshold": 0,
    "xla_gpu_enable_pipelined_p2p": True,
  }
  module = target.schedule(config_lib.XlaConfig(options=options))
  computations = module.proto.computations
  assert "send" in {i.opcode for c in computations for i in c.instructions}
  assert knobs.is_latency_hiding(module)
  assert knobs.is_on_if_unset(module, arm_steps.H100.gpu)


@pytest.mark.parametrize("is_set_to", [True, False])
@pytest.mark.parametrize(
  ("exchanges", "cluster", "is_on"),
  [
    (False, "1x8xh100", True),
    (False, "1x8xb200", True),
    (False, "1x8xa100_80", False),
    (True, "1x8xh100", False),
  ],
)
def test_the_arm_of_xlas_defaults_schedules_as_without_xla_flags(
  fsdp_step: Callable[..., jax.stages.Lowered],
  monkeypatch,
  exchanges,
  cluster,
  is_on,
  is_set_to,
):
  where = cluster_lib.parse(cluster)
  devices = devices_lib.devices(where)
  lowered = _exchanging(devices) if exchanges else fsdp_step(devices=devices)
  target = target_lib.of_step(lowered, where, name="step")

  def schedule(**options: bool | int | float | str) -> hlo.Module:
    return target.schedule(config_lib.XlaConfig(options=options))

  unset, today = schedule(), schedule(**{_SCHEDULER: is_set_to})
  assert knobs.is_latency_hiding(unset) == is_on
  flags = xla_options.xla_flags({_SCHEDULER: is_set_to})
  monkeypatch.setenv("XLA_FLAGS", flags)
  step = step_lib.of_module(today, where)
  first, *others = arms_lib.decided(arms_lib.known(where).arms, step)
  assert all(map(arms_lib.is_decided, others))
  if first.is_recipe:  # In this jaxlib "false" is "unset".
    assert not is_set_to
    made = today
  else:
    made = schedule(**{_SCHEDULER: is_set_to, **first.config.options})
  assert digest.of(made.proto) == digest.of(unset.proto)
