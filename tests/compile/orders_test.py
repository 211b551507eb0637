# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A compile runs a step in its config's order, or refuses the order."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import functools

import hypothesis
from hypothesis import strategies as st
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np
import pytest

import compiles
from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes import registry
from lagom_xla.passes.schedule import aliasing
from lagom_xla.passes.schedule import orders as orders_lib
import random_orders

_WIDTH = 16
_NUM_LAYERS = 3
_NUM_STEPS = 10
_DONATES = registry.keeps_donation()
# Nothing is combined.
_PLAIN = config_lib.XlaConfig(
  options={
    f"xla_gpu_{kind}_combine_threshold_bytes": 0
    for kind in ("all_gather", "all_reduce", "reduce_scatter")
  }
)

Params = dict[str, jax.Array]


def _fsdp_loss(params: Params, x: jax.Array) -> jax.Array:
  """Weights sharded by rows; gathered per layer, gradients scattered."""
  for i in range(_NUM_LAYERS):
    w = jax.lax.all_gather(params[f"w{i}"], "x", tiled=True)
    x = x + jnp.tanh(x @ w)
  return jax.lax.pmean(jnp.mean(jnp.square(x)), "x")


def _scanned_loss(params: Params, x: jax.Array) -> jax.Array:
  """Like `_fsdp_loss`, in a loop, whose body is a separate computation."""

  def layer(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
    return x + jnp.tanh(x @ jax.lax.all_gather(w, "x", tiled=True)), None

  stacked = jnp.stack([params[f"w{i}"] for i in range(_NUM_LAYERS)])
  x, _ = jax.lax.scan(layer, x, stacked)
  return jax.lax.pmean(jnp.mean(jnp.square(x)), "x")


_LOSSES = {"fsdp": _fsdp_loss, "scanned": _scanned_loss}


@functools.cache
def _target(
  devices: Sequence[jax.Device], loss: str, *, donate: bool = _DONATES
) -> target_lib.StepTarget:
  mesh = Mesh(np.array(devices), ("x",))
  rows = PartitionSpec("x")

  def train_step(params: Params, x: jax.Array) -> Params:
    grads = jax.grad(_LOSSES[loss])(params, x)
    return {name: p - 0.1 * grads[name] for name, p in params.items()}

  step = jax.shard_map(
    train_step, mesh=mesh, in_specs=(rows, rows), out_specs=rows
  )
  arg = jax.ShapeDtypeStruct(
    (_WIDTH, _WIDTH), jnp.float32, sharding=NamedSharding(mesh, rows)
  )
  jitted = jax.jit(step, donate_argnums=0 if donate else ())
  lowered = jitted.lower({f"w{i}": arg for i in range(_NUM_LAYERS)}, arg)
  return target_lib.of_step(lowered, compiles.H100S, name="step")


def _on_cpus(loss: str) -> target_lib.StepTarget:
  return _target(tuple(jax.devices()), loss)


@functools.cache
def _scheduled_on_cpus(loss: str) -> hlo.Module:
  """The step at a pass after XLA:CPU's scheduler."""
  target = _on_cpus(loss)
  seen: list[hlo.Module] = []

  def read(serialized: bytes) -> None:
    module = hlo.load(serialized)
    if module.name == target.lowered.name:
      seen.append(module)

  with registry.transformation(
    read, stage=registry.Stage.POST_SCHEDULER, platform="cpu"
  ):
    target.lowered.copied().run_compiler({})
  (module,) = seen
  return module


def _trained(
  target: target_lib.StepTarget, config: config_lib.XlaConfig
) -> tuple[hlo.Module, dict[str, np.ndarray]]:
  """The compiled module, and the parameters after some steps."""
  compilation = target.compile(config)
  compiled = compilation.compiled
  assert compiled is not None
  rng = np.random.default_rng(0)
  params, x = jax.tree.map(
    lambda info, sharding: jax.device_put(
      rng.normal(size=info.shape).astype(np.float32) / 4, sharding
    ),
    target.lowered.step.args_info[0],
    compiled.input_shardings[0],
  )
  for _ in range(_NUM_STEPS):
    params = compiled(params, x)
  return compilation.module, {n: np.asarray(p) for n, p in params.items()}


@functools.cache
def _in_xlas_order(loss: str) -> dict[str, np.ndarray]:
  return _trained(_on_cpus(loss), config_lib.DEFAULT)[1]


def _that_run(module: hlo.Module, computation: str) -> list[str]:
  (home,) = [c for c in module.computations.values() if c.name == computation]
  return [
    i.name for i in home.instructions if i.opcode not in aliasing.FORWARDING
  ]


# XLA's CPU backend has no asynchronous collectives: whole ones move.


@pytest.mark.parametrize("loss", _LOSSES)
@hypothesis.settings(max_examples=4)
@hypothesis.given(seed=st.integers(0, 2**32 - 1))
def test_a_step_in_any_legal_order_trains_to_the_same_bits(loss, seed):
  scheduled = _scheduled_on_cpus(loss)
  orders = random_orders.of(scheduled, seed)
  hypothesis.assume(orders)
  config = config_lib.XlaConfig(orders=orders)
  module, trained = _trained(_on_cpus(loss), config)
  for name in orders:
    expected = _that_run(orders_lib.apply(scheduled, orders), name)
    assert _that_run(module, name) == expected
  for name, value in _in_xlas_order(loss).items():
    np.testing.assert_array_equal(trained[name], value)


def test_an_order_does_not_affect_later_compiles_of_the_step():
  target, scheduled = _on_cpus("fsdp"), _scheduled_on_cpus("fsdp")
  entry = scheduled.entry.name
  plain = _that_run(target.compile().module, entry)
  others = [
    config_lib.XlaConfig(orders=random_orders.of(scheduled, seed))
    for seed in range(2)
  ]
  compiled = [_that_run(target.compile(c).module, entry) for c in others]
  assert compiled[0] != compiled[1]
  assert plain not in compiled
  assert _that_run(target.compile().module, entry) == plain


# XLA's GPU compiler, to the end, with no GPU.


@pytest.mark.parametrize("loss", ["fsdp", "scanned"])
def test_xla_keeps_our_order_when_it_generates_code(h100s, loss):
  target = _target(tuple(h100s), loss)
  scheduled = target.schedule(_PLAIN)
  orders = random_orders.of(scheduled, 1)
  config = dataclasses.replace(_PLAIN, orders=orders)
  ordered = target.schedule(config)
  assert orders_lib.of(scheduled, ordered) == orders
  final = target.compile(config).module
  homes = {c.computation for c in collectives.find(scheduled)}
  assert homes & orders.keys()
  # XLA moves a start without a kernel after it back to its done, or makes both
  # one instruction; all others keep their order.
  sync = {c.name for c in collectives.find(final) if c.form == "sync"}
  for name in orders:
    kept = [
      n
      for n in _that_run(final, name)
      if n not in sync and not n.partition(".")[0].endswith("-done")
    ]
    order = [n for n in _that_run(ordered, name) if n in kept]
    assert kept == order
  assert any(
    [n for n in _that_run(final, name) if n in _that_run(scheduled, name)]
    != [n for n in _that_run(scheduled, name) if n in _that_run(final, name)]
    for name in orders
  )
  aliases = final.proto.input_output_alias
  assert aliases == scheduled.proto.input_output_alias
  assert len(aliases.entries) == (_NUM_LAYERS if _DONATES else 0)


def test_a_compiled_module_in_another_order_raises_an_error(h100s):
  target = _target(tuple(h100s), "fsdp")
  scheduled, final = target.schedule(_PLAIN), target.compile(_PLAIN).module
  orders = random_orders.of(scheduled, 1)
  with pytest.raises(errors.CompileError, match="in another order than req"):
    orders_lib.check_followed(final, orders)


def test_an_order_of_another_schedule_is_refused(h100s):
  target = _target(tuple(h100s), "fsdp")
  orders = random_orders.of(target.schedule(_PLAIN), 1)
  combined = config_lib.XlaConfig(orders=orders)
  for run in (target.schedule, target.compile):
    with pytest.raises(errors.ScheduleError, match="is for another schedule"):
      run(combined)


def test_an_illegal_order_is_refused_by_a_compile():
  scheduled = _scheduled_on_cpus("fsdp")
  order = tuple(i.name for i in scheduled.entry.instructions)
  orders = {scheduled.entry.name: order[::-1]}
  with pytest.raises(errors.ScheduleError, match="must stay before"):
    _on_cpus("fsdp").compile(config_lib.XlaConfig(orders=orders))


def test_an_ordered_step_is_not_compiled_where_jax_loses_donations(
  h100s,
):
  target = _target(tuple(h100s), "fsdp", donate=True)
  scheduled = target.schedule(_PLAIN)
  orders = random_orders.of(scheduled, 1)
  config = dataclasses.replace(_PLAIN, orders=orders)
  assert orders_lib.of(scheduled, target.schedule(config)) == orders
  if _DONATES:
    aliases = target.compile(config).module.proto.input_output_alias
    assert len(aliases.entries) == _NUM_LAYERS
    return
  with pytest.raises(
    errors.CompileError,
    match=r"donates inputs, which JAX 0\.10\S+ forgets when a pass orders",
  ):
    target.compile(config)
