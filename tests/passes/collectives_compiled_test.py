# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The collectives of compiled steps move what their shapes say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np

import collective_text
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo


def _elements(collective: collectives.Collective, num_bytes: int) -> int:
  """Elements per step in an operand or result of so many bytes."""
  itemsize = {"bf16": 2, "f32": 4}[collective.element_type]
  return num_bytes * collective.executions // itemsize


def test_a_fsdp_step_gathers_and_scatters_each_parameter_once(
  fsdp_scan: hlo.Module, fsdp_unrolled: hlo.Module, sizes: dict[str, int]
) -> None:
  # Once, because the step keeps what it gathered for the backward pass.
  in_layers = 2 * sizes["layers"] * sizes["width"] * sizes["hidden"]
  num_parameters = in_layers + sizes["width"] * sizes["classes"]
  for module in (fsdp_scan, fsdp_unrolled):
    gathered = scattered = 0
    for collective in collectives.find(module):
      assert collective.groups == (tuple(range(8)),)
      if collective.kind == "all-gather":
        assert collective.result_bytes == 8 * collective.operand_bytes
        gathered += _elements(collective, collective.result_bytes)
      if collective.kind == "reduce-scatter":
        assert collective.operand_bytes == 8 * collective.result_bytes
        scattered += _elements(collective, collective.operand_bytes)
    assert (gathered, scattered) == (num_parameters, num_parameters)


def test_a_tp_step_reduces_activations(
  tp_scan: hlo.Module, sizes: dict[str, int]
) -> None:
  in_loops = [
    c for c in collectives.find(tp_scan) if c.executions == sizes["layers"]
  ]
  assert [c.kind for c in in_loops] == ["all-reduce"] * 2  # One per pass.
  activations = sizes["layers"] * sizes["rows"] * sizes["width"]
  for collective in in_loops:
    assert _elements(collective, collective.operand_bytes) == activations


def test_a_permute_of_a_ring_is_one_group_of_all(
  h100s: Sequence[jax.Device], scheduled: Any
) -> None:
  mesh = Mesh(h100s, ("x",))
  spec = PartitionSpec("x")

  @jax.shard_map(mesh=mesh, in_specs=spec, out_specs=spec)
  def rotate(x: jax.Array) -> jax.Array:
    ring = [(i, (i + 1) % 8) for i in range(8)]
    return jax.lax.ppermute(x, "x", ring) + x

  x = jax.ShapeDtypeStruct(
    (1024, 16), jnp.bfloat16, sharding=NamedSharding(mesh, spec)
  )
  (permute,) = collectives.find(scheduled(jax.jit(rotate).lower(x)))
  assert collective_text.counts(permute) == (
    "collective-permute",
    1,
    4096,
    4096,
  )
  assert permute.groups == (tuple(range(8)),)
  assert set(permute.pairs) == {(i, (i + 1) % 8) for i in range(8)}


def test_a_ragged_exchange_moves_the_smaller_of_its_two_buffers(
  h100s: Sequence[jax.Device], scheduled: Callable[..., hlo.Module]
) -> None:
  """Tokens go to buffers with room for those of all eight ranks, and back."""
  rows, width, ranks = 1024, 256, 8
  mesh = Mesh(np.array(h100s), ("x",))
  spec = PartitionSpec("x")

  def exchange(sent: jax.Array, sizes: jax.Array) -> jax.Array:
    def send(rows: jax.Array, room: int) -> jax.Array:
      buffer = jnp.zeros((room, width), jnp.bfloat16)
      return lax.ragged_all_to_all(
        rows, buffer, sizes, sizes, sizes, sizes, axis_name="x"
      )

    return send(jnp.tanh(send(sent, ranks * rows)), rows)

  def shape(*dimensions: int, dtype: Any) -> jax.ShapeDtypeStruct:
    sharding = NamedSharding(mesh, spec)
    return jax.ShapeDtypeStruct(dimensions, dtype, sharding=sharding)

  lowered = jax.jit(
    jax.shard_map(exchange, mesh=mesh, in_specs=(spec, spec), out_specs=spec)
  ).lower(
    shape(ranks * rows, width, dtype=jnp.bfloat16),
    shape(ranks * ranks, dtype=jnp.int32),
  )
  there, back = collectives.find(scheduled(lowered))
  assert there.kind == back.kind == "ragged-all-to-all"
  assert (there.operand_bytes, there.result_bytes) == (
    rows * width * 2,
    ranks * rows * width * 2,
  )
  assert (back.operand_bytes, back.result_bytes) == (
    there.result_bytes,
    there.operand_bytes,
  )
  for collective in (there, back):
    assert collective.nccl_bytes == rows * width * 2
    assert collective.array_bytes == (rows * width * 2,)
