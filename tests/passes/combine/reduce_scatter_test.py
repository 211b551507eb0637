# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Which all-reduces are reduce-scatters, and that making them so is safe."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest

import hlo_text
from lagom_xla.passes import hlo
from lagom_xla.passes import registry
from lagom_xla.passes.combine import combinable

_BODY = """
  x = f32[16,8] parameter(0)
  total = f32[16,8] all-reduce(x), channel_id=1,
    replica_groups={groups}, use_global_device_ids=true, to_apply=add
  id.u = u32[] partition-id()
  id = s32[] convert(id.u)
  zero = s32[] constant(0)
  one = s32[] constant(1)
  two = s32[] constant(2)
  four = s32[] constant(4)
  size = s32[] constant({size})
{offset}
  {shard}
  ROOT out = f32[{shape}] negate(shard)
"""

# Eight devices as a mesh of 2 x 4, whose rows and columns are groups.
_ALL = "{{0,1,2,3,4,5,6,7}}"
_ROWS = "{{0,1,2,3},{4,5,6,7}}"
_COLUMNS = "{{0,4},{1,5},{2,6},{3,7}}"
_REVERSED = "{{7,6,5,4,3,2,1,0}}"

_LINEAR = "  offset = s32[] multiply(id, size)"
_COLUMN = """\
  rank = s32[] remainder(id, four)
  offset = s32[] multiply(rank, size)"""
_ROW = """\
  rank = s32[] divide(id, four)
  offset = s32[] multiply(rank, size)"""
_TABLE = """\
  table = s32[8] constant({14,12,10,8,6,4,2,0})
  entry = s32[1] dynamic-slice(table, id), dynamic_slice_sizes={1}
  offset = s32[] reshape(entry)"""
_CLAMPED = """\
  far = s32[] multiply(id, size)
  last = s32[] constant(14)
  offset = s32[] clamp(zero, far, last)"""
_PARAMETER = "  offset = s32[] parameter(1)"

# Name -> replica groups, size of a shard, how the offset is computed.
_MATCHING = {
  "all devices": (_ALL, 2, _LINEAR),
  "rows of a mesh": (_ROWS, 4, _COLUMN),
  "columns of a mesh": (_COLUMNS, 8, _ROW),
  "a table": (_REVERSED, 2, _TABLE),
  "a clamped offset": (_ALL, 2, _CLAMPED),
}
_OTHER = {
  "another order": (_REVERSED, 2, _LINEAR),
  "a table in another order": (_ALL, 2, _TABLE),
  "shards that overlap": (_ALL, 2, "  offset = s32[] add(id, one)"),
  "shards of other groups": (_ROWS, 4, _LINEAR),
  "an offset from outside": (_ALL, 2, _PARAMETER),
  "an offset that may be negative": (
    _ALL,
    2,
    "  less = s32[] subtract(id, one)\n  offset = s32[] multiply(less, size)",
  ),
}


def _module(groups: str, size: int, offset: str) -> hlo.Module:
  shard = (
    f"shard = f32[{size},8] dynamic-slice(total, offset, zero),"
    f" dynamic_slice_sizes={{{size},8}}"
  )
  body = _BODY.format(
    groups=groups, size=size, offset=offset, shard=shard, shape=f"{size},8"
  )
  return hlo_text.load(body, header="num_partitions=8")


def _made(module: hlo.Module) -> hlo.Module:
  """A copy in which reduce-scatters stand for pairs."""
  copy = hlo.load(module.proto.SerializeToString())
  combinable.make_all(copy)
  return hlo.load(copy.proto.SerializeToString())


def _run(module: hlo.Module, x: np.ndarray) -> np.ndarray:
  """Runs a module on eight CPU devices, in the place of a jitted step."""
  mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
  size = module.entry.root.shape.dimensions[0]
  spec = jax.sharding.PartitionSpec("x")

  def step(x: jax.Array) -> jax.Array:
    return jax.shard_map(
      lambda shard: -shard[:size], mesh=mesh, in_specs=spec, out_specs=spec
    )(x)

  def replace(serialized: bytes) -> bytes | None:
    if hlo.load(serialized).name != "jit_" + step.__name__:
      return None
    return module.proto.SerializeToString()

  with registry.transformation(
    replace, stage=registry.Stage.PRE_SCHEDULER, platform="cpu"
  ):
    compiled = jax.jit(step).lower(x).compile()
  return np.asarray(compiled(x))


@pytest.mark.parametrize("name", _OTHER)
def test_other_slices_are_left_alone(name):
  module = _module(*_OTHER[name])
  (candidate,) = combinable.find(module).values()
  assert candidate.kind == "all-reduce"
  assert _made(module).proto == module.proto


@pytest.mark.parametrize("name", _MATCHING)
def test_a_made_reduce_scatter_gives_the_same_bits(name):
  module = _module(*_MATCHING[name])
  (candidate,) = combinable.find(module).values()
  assert (candidate.label, candidate.kind) == ("total", "reduce-scatter")
  made = _made(module)
  assert "reduce-scatter" in made.entry.opcodes
  assert "all-reduce" not in made.entry.opcodes
  x = np.random.default_rng(0).normal(size=(8 * 16, 8)).astype(np.float32)
  before = _run(module, x)
  np.testing.assert_allclose(before, _expected(*_MATCHING[name], x), rtol=1e-4)
  np.testing.assert_array_equal(_run(made, x), before)


def _expected(
  groups: str, size: int, unused_offset: str, x: np.ndarray
) -> np.ndarray:
  """The negated shards of the sums over each group, by device."""
  shards = {}
  for group in json.loads(groups.replace("{", "[").replace("}", "]")):
    total = np.sum(x.reshape(8, 16, 8)[group], axis=0)
    for rank, device in enumerate(group):
      shards[device] = -total[rank * size : (rank + 1) * size]
  return np.concatenate([shards[device] for device in range(8)])
