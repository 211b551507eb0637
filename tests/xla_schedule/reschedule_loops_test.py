# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Predicted schedules of loops: nested, pipelined, double-buffered."""

from __future__ import annotations

from collections.abc import Sequence
import itertools
from typing import Any

from hypothesis import given
from hypothesis import settings
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lagom_xla.compile import compiler
from lagom_xla.flags import options as xla_options
from lagom_xla.passes import collectives
from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap
import predicted_schedules

loop = predicted_schedules.loop

_KINDS = predicted_schedules.KINDS
Scheduled = predicted_schedules.Scheduled
_assert_legal = predicted_schedules.assert_legal
_choices = predicted_schedules.CHOICES
_predict = predicted_schedules.predict


@pytest.fixture(scope="module")
def nested_step(h100s: Sequence[jax.Device]) -> jax.stages.Lowered:
  """Layers in a loop of four, in a loop of five micro-batches."""
  mesh = jax.sharding.Mesh(np.array(h100s), ("x",))

  def sharded(*spec: str | None) -> jax.sharding.NamedSharding:
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))

  def layer(h: jax.Array, weight: jax.Array) -> tuple[jax.Array, None]:
    return jnp.tanh(
      h @ jax.lax.with_sharding_constraint(weight, sharded())
    ), None

  def loss(weights: jax.Array, rows: jax.Array) -> jax.Array:
    return jnp.mean(jnp.square(jax.lax.scan(layer, rows, weights)[0]))

  @jax.jit
  def step(weights: jax.Array, batches: jax.Array) -> jax.Array:
    def add(sums: jax.Array, rows: jax.Array) -> tuple[jax.Array, None]:
      return sums + jax.grad(loss)(weights, rows), None

    return weights - jax.lax.scan(add, jnp.zeros_like(weights), batches)[0]

  weights = jax.ShapeDtypeStruct(
    (4, 512, 512), jnp.float32, sharding=sharded(None, "x")
  )
  batches = jax.ShapeDtypeStruct(
    (5, 512, 512), jnp.float32, sharding=sharded(None, "x")
  )
  return step.lower(weights, batches)


@pytest.fixture(scope="module")
def nested(scheduled: Scheduled, nested_step: jax.stages.Lowered) -> hlo.Module:
  return scheduled(nested_step, **{compiler.ESTIMATES: True})


def _loops(module: hlo.Module) -> list[int]:
  """Trips of the loops, in schedule order."""
  return [module.trip_count(loop) for loop in module.entry.loops]


def _trips(module: hlo.Module) -> list[int]:
  """Trips of all loops, of those in loops, too."""
  return [
    module.trip_count(loop)
    for id_ in module.executions
    for loop in module.computations[id_].loops
  ]


def _copied_bytes(module: hlo.Module) -> int:
  """Bytes that copies write in a step."""
  return sum(
    module.executions[id_] * hlo.shape_bytes(i.shape)
    for id_ in module.executions
    for i in module.computations[id_].instructions
    if i.opcode == "copy"
  )


def _num_bytes(module: hlo.Module, kind: str) -> int:
  """Bytes of all collectives of a kind that run in a step."""
  return sum(
    c.executions * c.nccl_bytes
    for c in collectives.find(module)
    if c.kind == kind
  )


def _is_fused(module: hlo.Module, start: hlo.Instruction) -> bool:
  """Whether a start runs a fusion."""
  return start.opcode == "async-start" and any(
    module.computations[id_].root.opcode == "fusion"
    for id_ in start.called_computation_ids
  )


def _most_in_flight(module: hlo.Module) -> int:
  """Collectives between start and done at once, within one computation.

  Those that are kernels of XLA's own, as of JAX 0.12, are not limited.
  """
  most = 0
  for computation_id in module.executions:
    computation = module.computations[computation_id]
    inside = [
      c
      for c in collectives.find(module)
      if c.computation == computation.name
      and c.done_id is not None
      and not _is_fused(module, computation.by_id[c.start_id])
    ]
    starts = {c.start_id for c in inside}
    dones = {c.done_id for c in inside}
    changes = [
      (i.id in starts) - (i.id in dones) for i in computation.instructions
    ]
    most = max(most, *itertools.accumulate(changes))
  return most


@pytest.mark.parametrize("name", ["loop", "nested"])
@settings(max_examples=20)
@given(changes=_choices)
def test_any_change_gives_a_legal_schedule_with_the_same_traffic(
  request: pytest.FixtureRequest, name: str, changes: dict[str, Any]
) -> None:
  module = request.getfixturevalue(name)

  predicted = _predict(module, **changes)

  _assert_legal(predicted)
  assert _most_in_flight(predicted) <= changes.get("overlap_limit", 1)
  for kind in _KINDS:
    assert _num_bytes(predicted, kind) == _num_bytes(module, kind)


def test_loops_in_loops_are_changed_in_all_their_copies(
  nested: hlo.Module,
) -> None:
  predicted = _predict(
    nested, pipelined=_KINDS, double_buffered=True, overlap_limit=4
  )

  assert len(_trips(predicted)) > len(_trips(nested))
  for kind in _KINDS:
    assert _num_bytes(predicted, kind) == _num_bytes(nested, kind)


def test_doubled_loops_hand_on_what_they_gathered_without_a_copy(
  scheduled: Scheduled, nested_step: jax.stages.Lowered, nested: hlo.Module
) -> None:
  options = {
    "xla_gpu_enable_pipelined_all_gather": True,
    "xla_gpu_enable_while_loop_double_buffering": True,
  }
  compiled = scheduled(nested_step, **xla_options.fit(options).options)

  predicted = _predict(nested, pipelined=["all-gather"], double_buffered=True)

  assert _copied_bytes(compiled) <= _copied_bytes(nested)
  assert _copied_bytes(predicted) <= _copied_bytes(nested)
  single = _predict(nested, pipelined=["all-gather"])
  assert _copied_bytes(single) > _copied_bytes(nested)


def test_double_buffering_halves_the_trips(loop: hlo.Module) -> None:
  predicted = _predict(loop, double_buffered=True)
  num_kernels = sum(
    k.executions for k in overlap.analyze(loop).kernels.values() if k.flops
  )

  assert _loops(loop) == [4, 4]
  assert _loops(predicted) == [2, 2]
  assert num_kernels == sum(
    k.executions for k in overlap.analyze(predicted).kernels.values() if k.flops
  )


def test_an_odd_iteration_goes_before_the_loop(loop: hlo.Module) -> None:
  pipelined = _predict(loop, pipelined=["all-gather"])
  predicted = _predict(pipelined, double_buffered=True)

  assert _loops(pipelined) == [3, 4]
  assert _loops(predicted) == [1, 2]
  assert _num_bytes(predicted, "all-gather") == _num_bytes(loop, "all-gather")
  _assert_legal(predicted)


def test_an_all_gather_ahead_has_the_whole_iteration_to_hide_in(
  loop: hlo.Module,
) -> None:
  (gather,) = (
    c
    for c in collectives.find(_predict(loop, pipelined=["all-gather"]))
    if c.kind == "all-gather" and c.executions > 1
  )
  predicted = _predict(loop, pipelined=["all-gather"])
  body = next(
    c for c in predicted.computations.values() if gather.start_id in c.by_id
  )
  products = [
    k.instruction_id
    for k in overlap.analyze(predicted).kernels.values()
    if k.computation == body.name and k.flops
  ]

  assert gather.is_pipelined
  graph = dependencies.of(body)
  assert not any(graph.depends(p, gather.start_id) for p in products)
