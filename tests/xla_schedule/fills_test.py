# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fills that XLA can leave out are foretold as XLA leaves them out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lagom_xla.flags import options as xla_options
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels
from lagom_xla.passes import overlap
from lagom_xla.search.xla import knobs

Scheduled = Callable[..., hlo.Module]

_UNFILLED = {"xla_gpu_enable_dus_accumulator_zero_init_elimination": True}
_DOUBLED = {"xla_gpu_enable_while_loop_double_buffering": True}
_GATHER = {"xla_gpu_enable_pipelined_all_gather": True}
_REDUCE = {"xla_gpu_enable_pipelined_all_reduce": True}


def _unfilled(module: hlo.Module) -> list[tuple[int, ...]]:
  """The shapes of arrays that are taken as they come."""
  return sorted(
    tuple(i.shape.dimensions)
    for computation in module.computations.values()
    for i in computation.instructions
    if i.custom_call_target == kernels.ALLOCATION
  )


def _foretold(module: hlo.Module) -> list[tuple[int, ...]]:
  """The shapes of arrays that XLA could take as they come."""
  return sorted(tuple(i.shape.dimensions) for i in knobs.zero_fills(module))


def _kernel_bytes(module: hlo.Module) -> int:
  found = overlap.analyze(module).kernels.values()
  return sum(k.executions * k.num_bytes for k in found)


@pytest.mark.parametrize(
  "options",
  [{}, _DOUBLED, _GATHER, _REDUCE, {**_GATHER, **_REDUCE, **_DOUBLED}],
  ids=["plain", "doubled", "gather ahead", "reduce behind", "all"],
)
def test_what_xla_leaves_out_is_foretold(
  scheduled: Scheduled,
  fsdp_step: Callable[..., jax.stages.Lowered],
  options: Mapping[str, Any],
) -> None:
  options = xla_options.fit(options).options
  module = scheduled(fsdp_step(), **options)
  compiled = scheduled(fsdp_step(), **options, **_UNFILLED)

  assert _unfilled(module) == []
  assert _foretold(module) == _unfilled(compiled)


def test_a_step_writes_less_by_what_was_filled(
  scheduled: Scheduled, fsdp_step: Callable[..., jax.stages.Lowered]
) -> None:
  module = scheduled(fsdp_step())
  compiled = scheduled(fsdp_step(), **_UNFILLED)

  filled = sum(
    hlo.shape_bytes(i.shape)
    for i in compiled.entry.instructions
    if i.custom_call_target == kernels.ALLOCATION
  )
  assert filled > 0
  assert _kernel_bytes(compiled) == _kernel_bytes(module) - filled


@pytest.mark.parametrize("reads", [False, True], ids=["written", "read"])
def test_what_an_iteration_reads_is_filled(
  scheduled: Scheduled, h100s: Sequence[jax.Device], reads: bool
) -> None:
  mesh = jax.sharding.Mesh(np.array(h100s), ("x",))

  def sharded(*spec: str | None) -> jax.sharding.NamedSharding:
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))

  @jax.jit
  def step(rows: jax.Array, weight: jax.Array) -> jax.Array:
    def write(at: int, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
      row, stack = state
      row = jnp.tanh((row + stack[-1] if reads else row) @ weight)
      return row, jax.lax.dynamic_update_index_in_dim(stack, row, at, 0)

    stack = jnp.zeros((4, *rows.shape))
    return jax.lax.fori_loop(0, 4, write, (rows, stack))[1]

  lowered = step.lower(
    jax.ShapeDtypeStruct((64, 512), jnp.float32, sharding=sharded("x")),
    jax.ShapeDtypeStruct((512, 512), jnp.float32, sharding=sharded()),
  )
  module = scheduled(lowered)

  left_out = _foretold(module)
  assert left_out == _unfilled(scheduled(lowered, **_UNFILLED))
  assert left_out == ([] if reads else [(4, 8, 512)])
