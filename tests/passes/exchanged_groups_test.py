# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Groups of devices that XLA itself exchanges data in.

Groups are compared with the data that XLA's CPU backend really exchanges, and
with what a sharding asks for.
"""

from __future__ import annotations

import jax
from jax._src import compiler
from jax._src.interpreters import mlir
from jax._src.lib import _jax
from jax._src.lib import xla_client
from jax._src.lib.mlir import ir
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np
import pytest

import hlo_text
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from spelled_groups import replica_groups_of


def _gathered_by_xla(spelled: str, group_size: int) -> list[tuple[int, ...]]:
  """The numbers that each of eight CPU devices gets when each sends its own."""
  module = hlo_text.load(
    f"""
  p = s32[8] parameter(0), sharding={{devices=[8]<=[8]}}
  mine = s32[1] custom-call(p), custom_call_target="SPMDFullToShardShape",
    sharding={{manual}}
  all = s32[{group_size}] all-gather(mine), channel_id=1, dimensions={{0}},
    use_global_device_ids=true, sharding={{manual}}, replica_groups={spelled}
  ROOT out = s32[{8 * group_size}] custom-call(all),
    custom_call_target="SPMDShardToFullShape", sharding={{devices=[8]<=[8]}}
""",
    header="num_partitions=8",
  )
  options = compiler.get_compile_options(
    num_replicas=1,
    num_partitions=8,
    device_assignment=np.arange(8).reshape(1, 8),
  )
  options.executable_build_options.use_spmd_partitioning = True
  options.executable_build_options.use_shardy_partitioner = False
  devices = jax.devices()
  proto = module.proto.SerializeToString()
  with mlir.make_ir_context():
    executable = devices[0].client.compile_and_load(
      ir.Module.parse(_jax.mlir.hlo_to_stablehlo(proto)),
      xla_client.DeviceList(tuple(devices)),
      options,
    )
  own = jax.device_put(
    np.arange(8, dtype=np.int32),
    NamedSharding(Mesh(np.array(devices), ("x",)), PartitionSpec("x")),
  )
  results = executable.execute_sharded([own])
  (shards,) = results.disassemble_into_single_device_arrays()
  return [tuple(np.asarray(shard).tolist()) for shard in shards]


@pytest.mark.parametrize(
  "spelled",
  [
    "{{0,5},{1,4},{7,2},{6,3}}",
    "[4,2]<=[2,4]T(1,0)",
    "[2,4]<=[2,2,2]T(1,0,2)",
    "mesh['a'=4,'b'=2] {'a'}",
    "mesh['a'=4,'b'=2] {'b'}",
    "mesh['a'=4,'b'=2] {'b','a'}",
    "mesh['a'=8] {'a':(2)2}",
    "mesh['a'=4,'b'=2] {'b','a':(2)2}",
    "mesh['a'=4,'b'=2] {'a':(1)2,'b'}",
  ],
)
def test_xla_exchanges_data_in_these_groups_and_this_order(
  spelled: str,
) -> None:
  groups = replica_groups_of(spelled, 8)
  got = _gathered_by_xla(spelled, len(groups[0]))
  assert got == [
    next(group for group in groups if device in group) for device in range(8)
  ]


@pytest.mark.parametrize(
  ("axes", "kept"),
  [("abc", "a"), ("abc", "ab"), ("acb", "a"), ("cab", "c"), ("bca", "")],
)
@pytest.mark.parametrize("backend", ["cpu", "h100"])
def test_a_gather_that_sharding_asks_for_joins_the_shards_it_needs(
  backend: str, axes: str, kept: str, request: pytest.FixtureRequest
) -> None:
  devices = (
    jax.devices() if backend == "cpu" else request.getfixturevalue("h100s")
  )
  mesh = Mesh(np.array(devices).reshape(2, 2, 2), ("a", "b", "c"))
  before = NamedSharding(mesh, PartitionSpec(tuple(axes)))
  after = NamedSharding(mesh, PartitionSpec(tuple(kept)))
  shape = (64, 16)
  lowered = jax.jit(
    lambda x: x + 1, in_shardings=before, out_shardings=after
  ).lower(jax.ShapeDtypeStruct(shape, jnp.float32))
  found = collectives.find(hlo.load(lowered.compile()))
  (gather,) = (c for c in found if c.kind == "all-gather")
  owned = _rows_by_device(before, shape)
  wanted = _rows_by_device(after, shape)
  assert sorted(sum(gather.groups, ())) == list(range(8))
  for group in gather.groups:
    together = [row for device in group for row in owned[device]]
    assert all(wanted[device] == together for device in group)


def _rows_by_device(
  sharding: NamedSharding, shape: tuple[int, int]
) -> list[list[int]]:
  place = {d: i for i, d in enumerate(sharding.mesh.devices.flat)}
  rows: list[list[int]] = [[] for _ in place]
  for device, (part, _) in sharding.devices_indices_map(shape).items():
    rows[place[device]] = list(range(*part.indices(shape[0])))
  return rows
